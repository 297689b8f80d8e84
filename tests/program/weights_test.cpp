// Weights in and out on the command line: what --init-from, --freeze and --reinit say, record and refuse;
// docs/weights.md.
#include "program.h"

namespace xformer::program_test {
namespace {

using scratch::put;

// The rows of the table in docs/weights.md, as tensors of a file are listed there.
std::vector<std::string> documented_tensors() {
  std::istringstream text(scratch::get(Path(XFORMER_SOURCE) / "docs" / "weights.md"));
  std::vector<std::string> rows;
  bool inside = false;
  for (std::string line; std::getline(text, line);) {
    if (line == "<!-- end tensors -->") break;
    if (inside && line.starts_with("| `")) rows.push_back(line);
    inside = inside || line == "<!-- begin tensors -->";
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

TEST_CASE("the tensors of the default model are those of docs/weights.md", "[weights]") {
  const Place place;
  // The model's sizes come from data.max_length, which stays.
  REQUIRE(place
              .run(words("train --task listops --model mrs-linformer --set data.train_examples=2 data.dev_examples=2"
                         " data.test_examples=2 --batch 1 --steps 1 --threads 1 --out run"))
              .code == 0);
  const Path path = place / "run" / "model.safetensors";
  const MappedFile file(path);
  const auto header = readers::parse_safetensors(file.bytes(), path.string());
  std::vector<std::string> rows;
  for (const readers::TensorEntry& entry : header.tensors)
    rows.push_back(fmt::format("| `{}` | {} | {} |", entry.name, entry.type, fmt::join(entry.shape, " x ")));
  std::sort(rows.begin(), rows.end());
  CHECK(difference(rows, documented_tensors()) == "");
  std::vector<std::string> keys;
  for (const auto& [key, value] : header.metadata) keys.push_back(key);
  CHECK(keys == words("content_sha256 plan step"));
  CHECK(Json::parse(header.metadata.at("plan")) == json_file(place / "run" / "plan.json"));
  CHECK(header.metadata.at("step") == "1");
}

TEST_CASE("a run begins with weights, keeps what is frozen and records it without the path", "[weights]") {
  const Place place;
  REQUIRE(place.run(tiny("linear", "--steps 4 --out first")).code == 0);
  const Outcome outcome = place.run(tiny("linear",
                                         "--steps 3 --out second --init-from first --freeze positions layer0.*"
                                         " --reinit classifier_out.*"));
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  const std::string line =
      "init-from first/model.safetensors: 38 of 40 tensors taken; fresh: classifier_out.weight, classifier_out.bias; "
      "frozen: 17 of 40 tensors (";
  CHECK(contains(outcome.err, line));
  CHECK(contains(scratch::get(place / "second" / "run.log"), line));
  const Json record = json_file(place / "second" / "record.json");
  CHECK(record["init_from"]["file"] == "first");
  CHECK(record["init_from"]["taken"] == 38);
  CHECK(record["init_from"]["fresh"] == 2);
  CHECK(record["init_from"]["unused"] == 0);
  CHECK(record["init_from"]["sha256"] == record["plan"]["training.init_sha256"]);
  CHECK(record["plan"]["training.freeze"] == "positions,layer0.*");
  CHECK(record["origins"]["training.freeze"] == "--freeze");
  CHECK(record["origins"]["training.init_sha256"] == "--init-from");
  CHECK(contains(record["command"], "--init-from <weights>"));
  std::map<std::string, std::string> before, after;  // name -> the rest
  for (auto& [run, into] : {std::pair{"first", &before}, std::pair{"second", &after}})
    for (const std::string& tensor : tensors_of(place / run / "model.safetensors"))
      into->emplace(tensor.substr(0, tensor.find(' ')), tensor);
  for (const auto& [name, tensor] : before) {
    INFO(name);
    CHECK((after.at(name) == tensor) == (name == "positions" || name.starts_with("layer0.")));
  }
  // The same words go on, and so do they after an interruption.
  CHECK(place
            .run(tiny("linear",
                      "--steps 3 --out second --init-from first --freeze positions layer0.*"
                      " --reinit classifier_out.*"))
            .code == 0);
}

TEST_CASE("weights that do not fit are refused with the reason, before anything is made", "[weights]") {
  const Place place;
  REQUIRE(place.run(tiny("linear", "--steps 2 --out first")).code == 0);
  REQUIRE(place.run(tiny("linear", "--steps 3 --out other")).code == 0);
  put(place / "wrong.json", R"({"training.init_sha256": 5})");
  put(place / "text", "these are no weights, but words");
  const std::string command = "train --task listops --model linear --out run --seed 3 --threads 1 ";
  const std::string same =
      command +
      "--set model.dim=16 model.head_dim=8 model.ff_dim=16 model.classifier_dim=16 data.max_length=60 "
      "data.min_length=10 ";
  const struct {
    std::string arguments;
    int code;
    Words parts;
  } cases[] = {
      {command + "--init-from nothing", 3, {"nothing"}},
      {command + "--init-from text", 3, {"text", "header"}},
      {command + "--init-from .", 2, {"neither", "model.safetensors"}},
      {command + "--init-from first", 2, {"model,", "[32, 64]", "[32, 16]", "tokens", "--reinit"}},
      {same + "--init-from first --reinit token", 2, {"training.reinit", "'token'", "'tokens'?"}},
      {same + "--reinit tokens", 2, {"training.reinit", "--init-from"}},
      {same + "--freeze classifier", 2, {"training.freeze", "'classifier'", "'classifier_in.weight'?"}},
      {same + "--freeze *", 2, {"training.freeze", "no parameter to train"}},
      {same + "--set training.init_sha256=abc", 2, {"64 hexadecimal digits", "abc"}},
      {same + "--init-from first --config wrong.json", 2, {"training.init_sha256", "text", "5"}},
      {same + "--init-fro first", 2, {"'--init-from'?"}},
  };
  for (const auto& [arguments, code, parts] : cases) check_case(place, arguments, code, parts);
  CHECK_FALSE(std::filesystem::exists(place / "run"));

  const Outcome dumped = place.run(words(same + "--init-from first --dump-config=minimal"));
  REQUIRE(dumped.code == 0);
  CHECK(!contains(dumped.out, "first"));
  put(place / "plan.json", dumped.out);
  const std::string sha256 = Json::parse(dumped.out)["training.init_sha256"];
  const std::string from_file = "train --config plan.json --threads 1 --out run ";
  check_case(place, from_file, 2, {"plan.json", sha256, "--init-from"});
  check_case(place, from_file + "--init-from other", 3, {"other", sha256});
  check_case(place, from_file + "--init-from first --dry-run", 0, {"40 of 40 tensors taken"});
  CHECK_FALSE(std::filesystem::exists(place / "run"));
}

TEST_CASE("--overwrite removes no run before it is known that the new one can begin, nor the weights of it",
          "[weights]") {
  const Place place;
  REQUIRE(place.run(tiny("linear", "--steps 4 --out first")).code == 0);
  REQUIRE(place.run(tiny("linear", "--steps 2 --out wide --set model.heads=4")).code == 0);
  const Path run = place / "first";
  const std::vector<std::string> before = scratch::names_in(run), tensors = tensors_of(run / "model.safetensors");
  const auto refused = [&](const std::string& from, const std::string& part) {
    const Outcome outcome = place.run(tiny("linear", "--steps 3 --out first --overwrite --init-from " + from));
    INFO(outcome.err);
    CHECK(outcome.code == 2);
    CHECK(contains(outcome.err, part));
    CHECK(scratch::names_in(run) == before);
    CHECK(tensors_of(run / "model.safetensors") == tensors);
    CHECK(checkpoints_of(run).size() == 1);
  };
  for (const char* from : {"first", "first/model.safetensors", "./first/checkpoints/step-00000004.safetensors"}) {
    refused(from, "would be removed with the run there; give another --out");
    refused(std::string(from) + " --dry-run", "would be removed with the run there");
  }
  refused("wide", "of its tensors do not fit the model");
  std::filesystem::copy_file(run / "model.safetensors", place / "kept.safetensors");
  CHECK(place.run(tiny("linear", "--steps 3 --out first --overwrite --init-from kept.safetensors")).code == 0);
  CHECK(json_file(run / "record.json")["steps"]["done"] == 3);
}

TEST_CASE("a run whose first weights are gone is gone on with by its plan", "[weights]") {
  const Place place;
  REQUIRE(place.run(tiny("linear", "--steps 2 --out first")).code == 0);
  const Words command = tiny("linear", "--steps 6 --out second --init-from first");
  REQUIRE(place.run(command + "--stop-after 3").code == 0);
  std::filesystem::rename(place / "first", place / "gone");
  CHECK(place.run(command).code == 3);
  const Outcome outcome = place.run(words("train --config second/plan.json --out second --threads 1"));
  INFO(outcome.err);
  CHECK(outcome.code == 0);
  const Json record = json_file(place / "second" / "record.json");
  CHECK((record["status"] == "completed" && record["resumed_at"] == Json({3})));
  CHECK(record["init_from"]["file"] == "first");
}

}  // namespace
}  // namespace xformer::program_test
