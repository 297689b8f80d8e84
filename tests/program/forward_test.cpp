// `xformer forward` as its user meets it: files in and out, templates, and what it says to wrong words.
#include <cmath>
#include <cstring>

#include "program.h"

namespace xformer::program_test {
namespace {

// A safetensors file of one type per tensor, its bytes given.
struct Tensor {
  std::string name, type;
  std::vector<int64_t> shape;
  std::string bytes;
};

template <class Number>
std::string bytes_of(const std::vector<Number>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Number)};
}

void write_tensors(const Path& path, const std::vector<Tensor>& tensors) {
  readers::SafetensorsHeader header;
  std::string data;
  for (const Tensor& tensor : tensors) {
    header.tensors.push_back({tensor.name, tensor.type, tensor.shape, data.size(), data.size() + tensor.bytes.size()});
    data += tensor.bytes;
  }
  scratch::put(path, readers::write_safetensors_header(header) + data);
}

std::vector<double> read_doubles(const Path& path, const std::string& name) {
  const MappedFile file(path);
  const auto header = readers::parse_safetensors(file.bytes(), path.string());
  for (const readers::TensorEntry& entry : header.tensors) {
    if (entry.name != name) continue;
    REQUIRE(entry.type == "F64");
    std::vector<double> values((entry.end - entry.begin) / sizeof(double));
    std::memcpy(values.data(), file.bytes().data() + header.data_offset + entry.begin, entry.end - entry.begin);
    return values;
  }
  FAIL("no tensor " << name << " in " << path);
  return {};
}

// One head, one column, three tokens of which the last is padding.
void write_inputs(const Path& path) {
  write_tensors(path, {{"q", "F64", {1, 1, 3, 1}, bytes_of<double>({0, 1, 0})},
                       {"k", "F64", {1, 1, 3, 1}, bytes_of<double>({1, 2, 50})},
                       {"v", "F64", {1, 1, 3, 1}, bytes_of<double>({3, 7, 1000})},
                       {"mask", "BOOL", {1, 3}, bytes_of<uint8_t>({1, 1, 0})}});
}

TEST_CASE("forward writes what it is asked for, with the numbers of the formula", "[forward]") {
  const Place place;
  write_inputs(place / "in.safetensors");
  const std::string files = " --input in.safetensors --output out.safetensors";
  const Outcome outcome = place.run(words("forward --core softmax --capture w* --grad" + files));
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK(outcome.out ==
        "output F64 [1,1,3,1]\nweights F64 [1,1,3,3]\ngrad.q F64 [1,1,3,1]\ngrad.k F64 [1,1,3,1]\n"
        "grad.v F64 [1,1,3,1]\ngrad.weights F64 [1,1,3,3]\n");
  const std::vector<double> output = read_doubles(place / "out.safetensors", "output");
  const std::vector<double> weights = read_doubles(place / "out.safetensors", "weights");
  // q = 0 weighs both keys alike; q = 1 weighs them e : e^2, that is w = 1 / (1 + e) for the first.
  const double w = 1 / (1 + std::exp(1.0));
  CHECK(output[0] == Approx(5).epsilon(1e-14));
  CHECK(output[1] == Approx(3 * w + 7 * (1 - w)).epsilon(1e-14));
  CHECK(weights[2] == 0);
  CHECK(weights[3] == Approx(w).epsilon(1e-14));
  // d output_0 / d q_0 is the covariance of k and v under its weights: 1/2 (3 1 + 7 2) - 5 1.5.
  CHECK(read_doubles(place / "out.safetensors", "grad.q")[0] == Approx(1).epsilon(1e-12));
  CHECK(read_doubles(place / "out.safetensors", "grad.v")[2] == 0);
  const MappedFile file(place / "out.safetensors");
  const auto metadata = readers::parse_safetensors(file.bytes(), "out").metadata;
  CHECK(metadata.at("core") == "softmax");
  CHECK(Json::parse(metadata.at("options"))["head_dim"] == 1);
  CHECK(contains(metadata.at("xformer"), "0."));

  // What a seed draws is in the output, and gives the same output when it comes back in.
  REQUIRE(place.run(words("forward --core linformer --set attention.projected_len=2 --seed 5 --json" + files)).code ==
          0);
  CHECK(read_doubles(place / "out.safetensors", "shared.linformer_e").size() == 2 * 3);
  CHECK_FALSE(std::filesystem::exists(place / "runs"));
}

TEST_CASE("forward of a run is that of its weights file", "[forward]") {
  const Place place;
  REQUIRE(place.run(tiny("mrs-linear", "--steps 4 --out run")).code == 0);
  write_tensors(place / "in.safetensors", {{"tokens", "I64", {2, 4}, bytes_of<int64_t>({1, 5, 3, 2, 4, 2, 0, 0})},
                                           {"mask", "BOOL", {2, 4}, bytes_of<uint8_t>({1, 1, 1, 1, 1, 1, 0, 0})},
                                           {"labels", "I64", {2}, bytes_of<int64_t>({3, 9})}});
  const Outcome run = place.run(
      words("forward run --input in.safetensors --output run.safetensors --capture layer*.mixer,pooled --grad"));
  INFO(run.err);
  REQUIRE(run.code == 0);
  for (const char* line : {"logits F32 [2,10]\n", "loss F32 []\n", "layer1.mixer F32 [2,4,", "pooled F32 [2,",
                           "grad.layer0.mixer.query.weight F32 [", "grad.pooled F32 [2,"})
    CHECK(contains(run.out, line));
  CHECK(contains(run.err, "note: "));  // the run pads to more than 4 tokens
  // The same without the run's folder: the plan's keys by --set, as in tiny().
  Words model = words("forward --model mrs-linear --task listops --weights run/model.safetensors");
  const Words trained = tiny("mrs-linear", "");
  for (size_t i = 0; i + 1 < trained.size(); ++i)
    if (trained[i] == "--set") model = model + ("--set " + trained[i + 1]);
  const Outcome other =
      place.run(model + "--input in.safetensors --output model.safetensors --capture layer*.mixer,pooled --grad");
  INFO(other.err);
  REQUIRE(other.code == 0);
  CHECK(difference(tensors_of(place / "run.safetensors"), tensors_of(place / "model.safetensors")) == "");
}

TEST_CASE("forward answers wrong words before anything is computed", "[forward]") {
  const Place place;
  write_inputs(place / "in.safetensors");
  scratch::put(place / "broken.safetensors", "nothing");
  std::filesystem::create_directory(place / "folder");
  const std::string files = " --input in.safetensors --output out.safetensors";
  const struct {
    std::string arguments;
    int code;
    Words parts;
  } cases[] = {
      {"forward" + files, 2, {"RUN_DIR, --model NAME, --core NAME", "got none"}},
      {"forward run --core softmax" + files, 2, {"got several"}},
      {"forward --core sotfmax" + files, 2, {"'softmax'?"}},
      {"forward --core softmax --set attention.features=3" + files, 2, {"attention.features", "softmax"}},
      {"forward --core linformer --set attention.projected=4" + files, 2, {"'attention.projected_len'?"}},
      {"forward --core linformer" + files, 2, {"shared.linformer_e F32 or F64 [1,3,3]", "--seed"}},
      {"forward --core softmax --capture weihgts" + files, 2, {"'weihgts'", "there are weights"}},
      {"forward --core softmax --task listops" + files, 2, {"--task belongs to --model"}},
      {"forward run --heads 3" + files, 2, {"--heads belongs to --core, --mixer"}},
      {"forward run --set model.dim=3" + files, 2, {"--set belongs to"}},
      {"forward run" + files, 2, {"run", "plan.json"}},
      {"forward --model softmax --weights x" + files, 2, {"--task"}},
      {"forward --model softmax --task listops" + files, 2, {"--weights FILE", "--seed"}},
      {"forward --model softmax --task listops --weights x" + files, 3, {"x"}},
      {"forward --core softmax --input in.safetensors", 2, {"--output is missing"}},
      {"forward --core softmax --output out.safetensors", 2, {"--input is missing", "--template"}},
      {"forward --core softmax --input none --output out", 3, {"none"}},
      {"forward --core softmax --input broken.safetensors --output out", 3, {"broken.safetensors"}},
      {"forward --core softmax --input in.safetensors --output in.safetensors", 2, {"is the input"}},
      {"forward --core softmax --input in.safetensors --output folder", 2, {"is a folder"}},
      {"forward --core softmax --input in.safetensors --output no/out", 2, {"there is no folder"}},
      {"forward --mixer softmax" + files, 2, {"lacks x", "[b,n,m]"}},
      {"forward --core linformer --template --length 64", 0, {"shared.linformer_e", "[2,64,64]", "mixtures"}},
      {"forward --core softmax --template --input in.safetensors", 0, {"[1,1,3,1]", "(optional)"}},
      {"forward --mixer performer --template --json", 0, {"\"shared.performer_layer0_omega\"", "\"parameter\""}},
      {"forward --core mrs-linformer --list-captures --length 8",
       0,
       {"scale1.short_k F32 [1,1,8,32]", "scale2.short_k"}},
      {"forward --model linear --task listops --list-captures --json", 0, {"\"layer1.mixer.phi_q\"", "\"pooled\""}},
      {"complete forw", 0, {"forward"}},
  };
  for (const auto& entry : cases) check_case(place, entry.arguments, entry.code, entry.parts);
  for (const std::string& name : scratch::names_in(place.path())) CHECK_FALSE(name.starts_with("out"));
}

TEST_CASE("forward writes into pipes and through links, keeps the mode, and refuses devices", "[forward]") {
  const Place place;
  write_inputs(place / "in.safetensors");
  const std::string command = "forward --core softmax --input in.safetensors --output ";
  REQUIRE(place.run(words(command + "plain")).code == 0);
  const std::string expected = scratch::get(place / "plain");
  // A shell reads the pipe, and our words, which would be in between, are on stderr.
  const std::string piped =
      fmt::format("cd {} && {} {}/dev/stdout 2>words | cat >piped", place.path().string(), program_path(), command);
  REQUIRE(std::system(piped.c_str()) == 0);
  CHECK((scratch::get(place / "piped") == expected));
  CHECK(contains(scratch::get(place / "words"), "output F64 [1,1,3,1]"));

  scratch::put(place / "real", "old");
  std::filesystem::permissions(place / "real", std::filesystem::perms(0640));
  std::filesystem::create_symlink("real", place / "link");
  REQUIRE(place.run(words(command + "link")).code == 0);
  CHECK(std::filesystem::is_symlink(place / "link"));
  CHECK((scratch::get(place / "real") == expected));
  CHECK(std::filesystem::status(place / "real").permissions() == std::filesystem::perms(0640));
  check_case(place, command + "/dev/full", 2, {"--output", "/dev/full is a device"});
}

}  // namespace
TEST_CASE("captured weights are drawn", "[forward]") {
  const Place place;
  std::string header = R"({"a":{"dtype":"F32","shape":[1,2,2,2],"data_offsets":[0,32]},)"
                       R"("b":{"dtype":"I64","shape":[1,1],"data_offsets":[32,40]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t size = header.size();
  const float numbers[8] = {1, 2, 3, 4, 5, 6, 7, 800};
  std::string file(reinterpret_cast<const char*>(&size), 8);
  file += header + std::string(reinterpret_cast<const char*>(numbers), 32) + std::string(8, '\0');
  scratch::put(place / "out.safetensors", file);
  const Outcome first = place.run(words("plot map out.safetensors --tensor a"));
  CHECK(first.code == 0);
  CHECK(contains(first.out, "a [0,0]"));
  CHECK(contains(first.out, ">4<"));
  CHECK(contains(place.run(words("plot map out.safetensors --tensor a --at 0,1")).out, ">800<"));
  CHECK(contains(place.run(words("plot map out.safetensors --tensor a --at 0,2")).err, "numbers within [1,2]"));
  CHECK(contains(place.run(words("plot map out.safetensors --tensor a --at 0,0.5")).err, "numbers within [1,2]"));
  CHECK(contains(place.run(words("plot map out.safetensors --tensor a --at 0,0,0")).err, "expected 2 numbers"));
  CHECK(contains(place.run(words("plot map out.safetensors --tensor b")).err, "matrix of numbers 'b'"));
}

}  // namespace xformer::program_test
