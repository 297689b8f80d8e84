// The command line as its user meets it: what each command says and with which exit code, over names, options and data.
#include <set>

#include "core/text.h"
#include "program.h"

namespace xformer::program_test {
namespace {

using scratch::put;

TEST_CASE("wrong words are answered with the nearest right one", "[cli]") {
  const Place place;
  std::filesystem::create_directory(place / "empty");
  put(place / "file", "x");
  put(place / "wrong-key.json", R"({"task": "listops", "training.bach": 3})");
  put(place / "wrong-name.json", R"({"modle": "linear"})");
  put(place / "wrong-type.json", R"({"training.batch": "many"})");
  put(place / "broken.json", "{\"model\": ");
  put(place / "broken.toml", "model = 'linear'\nseed =\n");
  put(place / "twice.yaml", "training.batch: 3\ntraining: {batch: 4}\n");
  put(place / "circle.json", R"({"extends": "circle.json"})");
  put(place / "grid.json", R"({"tasks": ["listops"], "models": ["linear"]})");
  put(place / "record.json", R"({"schema_version": 1, "status": "completed", "task": "listops", "model": "linear",
    "accuracy": 0.5, "test": {"examples": 4}})");
  std::filesystem::create_directory(place / "named.json");
  const std::string train = "train --task listops --model ";
  const struct {
    std::string arguments;
    int code;
    Words parts;
  } cases[] = {
      {train + "mrs-linfomer", 2, {"'mrs-linfomer'", "did you mean 'mrs-linformer'?"}},
      {train + "lineer", 2, {"'linear'?"}},
      {train + "encodr/linear", 2, {"'encoder'?"}},
      {"train --task listop --model linear", 2, {"'listop'", "'listops'?"}},
      {train + "linear --protocol mlpen15k", 2, {"'mlpen-15k'?"}},
      {train + "mrs-linformer --set attention.projected_length=4",
       2,
       {"attention.projected_length", "'attention.projected_len'?", "--set"}},
      {train + "linear --set training.bach=4", 2, {"'training.batch'?"}},
      {train + "linear --set training.batch", 2, {"expected", "=value", "training.batch"}},
      {train + "linear --set =4", 2, {"expected"}},
      {train + "linear --set training.batch=abc", 2, {"training.batch", "an integer", "abc"}},
      {train + "linear --set training.batch=1.5", 2, {"training.batch", "an integer"}},
      {train + "linear --set training.batch=0", 2, {"training.batch", "at least 1", "0"}},
      {train + "linear --set training.beta2=1", 2, {"training.beta2", "below 1"}},
      {train + "linear --set training.learning_rate=nan", 2, {"training.learning_rate", "a number"}},
      {train + "linear --set training.cycle_beta1=perhaps", 2, {"true or false"}},
      {train + "linear --set training.schedule=rsqr", 2, {"'rsqrt'?"}},
      {train + "mrs-linear --set attention.scales=1,2,3", 2, {"scales", "2 heads"}},
      {train + "linear --set data.min_length=70 --set data.max_length=60", 2, {"length"}},
      {train + "linear --step 3", 2, {"'--step'", "'--steps'?", "--help"}},
      {train + "linear --steps 0", 2, {"--steps", "from 1", "'0'"}},
      {train + "linear --steps many", 2, {"--steps", "whole number", "'many'"}},
      {train + "linear --seed -1", 2, {"--seed", "from 0"}},
      {train + "linear --micro-batch 64", 2, {"micro_batch", "at most", "32"}},
      {train + "linear --length 100", 2, {"--length", "data.max_length"}},
      {train + "linear --precision fp8", 2, {"fp8", "fp32, tf32, bf16, fp16"}},
      {train + "linear --precision bf61", 2, {"'bf16'?"}},
      {train + "linear --device gpu", 2, {"'gpu'", "cpu"}},
      {train + "linear --kernels chek", 2, {"'check'?"}},
      {train + "linear --deterministic maybe", 2, {"known: on, off"}},
      {train + "linear --dump-config=ful", 2, {"'full'?"}},
      {train + "linear --resume mus", 2, {"'must'?"}},
      {train + "linear --resume must --out nothing", 2, {"--resume must", "nothing"}},
      {train + "linear --data nowhere", 3, {"nowhere", "there is no file or folder"}},
      {train + "linear --data file", 3, {"file", "expected a folder"}},
      {train + "linear --data empty", 3, {"basic_train.tsv", "basic.train.tsv", "empty"}},
      {train + "linear --data empty --set data.min_length=5", 2, {"data.min_length", "generator"}},
      {train + "linear --config nofile.json", 3, {"nofile.json"}},
      {train + "linear --config wrong-key.json", 2, {"'training.batch'?", "wrong-key.json"}},
      {train + "linear --config wrong-name.json", 2, {"'model'?", "wrong-name.json"}},
      {train + "linear --config wrong-type.json", 2, {"training.batch", "wrong-type.json", "an integer"}},
      {train + "linear --config broken.json", 2, {"broken.json", "JSON", "line 1, column"}},
      {train + "linear --config broken.toml", 2, {"broken.toml", "TOML", "line 2"}},
      {train + "linear --config twice.yaml", 2, {"'training.batch'", "twice"}},
      {train + "script:none.pt", 3, {"none.pt"}},
      {train + "mrs-script:file", 3, {"file: no TorchScript module", "torch.jit.script"}},
      {train + "plugin:none.so", 3, {"none.so"}},
      {train + "mrs-plugin:file", 3, {"file: no attention for this program", "xformer_attention()"}},
      {"check none.pt", 3, {"none.pt"}},
      {"check none.so", 3, {"none.so"}},
      {"check my.py", 2, {"`python3 my.py` makes, my.pt"}},
      {"check sofmax", 2, {"'softmax'?"}},
      {"export-template mine.txt", 2, {"mine.txt", "my_attention.py"}},
      {"export-pytorch nowhere model.py", 2, {"nowhere", "no run directory"}},
      {train + "linear --bs 3", 2, {"'--bs'", "--batch"}},
      {train + "linear --weight-decay 0.1", 2, {"--set training.weight_decay=VALUE"}},
      {train + "linear --set lr=fast", 2, {"training.learning_rate", "--set", "a number"}},
      {train + "linear heads=two", 2, {"model.heads", "an integer"}},
      {train + "linear training.batch=0", 2, {"training.batch", "at least 1"}},
      {train + "linear --lr=", 2, {"--lr"}},
      {train + "linear --threads 5000", 2, {"--threads", "at most 1024"}},
      {"eval nothing --shift-by 2", 2, {"--shift-by", "--shift"}},
      {"sweep grid.json --cell zzz", 2, {"--cell: 'zzz'", "listops/linear/seed 0"}},
      {"sweep grid.json --data nowhere", 3, {"--data nowhere"}},
      {"sweep grid.json --gpus 0 --device cpu", 2, {"--gpus", "--device cpu"}},
      {"sweep grid.json --record-to file/x", 2, {"file/x", "--record-to", "file is no folder"}},
      {train + "linear --record-to file/x", 2, {"file/x", "--record-to", "file is no folder"}},
      {"report record.json --average lisops", 2, {"--average", "'listops'?"}},
      {"report record.json --average listops", 2, {"--average", "two columns"}},
      {train + "linear --lr 0", 2, {"training.learning_rate", "--lr"}},
      {train + "linear --epochs 0", 2, {"--epochs", "from 1"}},
      {train + "linear --epochs 2 --steps 3", 2, {"--steps and --epochs"}},
      {"train linformer listops", 2, {"'linformer'", "did you mean --model linformer?"}},
      {train + "mrs-diet", 2, {"'mrs-deit'?"}},
      {train + "mrs-lstm", 2, {"lstm has no attention"}},
      {train + "zzzzzzzz", 2, {"the nearest of"}},
      {"describe zzzzzzzz", 2, {"the nearest of"}},
      {"describe mlpenn", 2, {"'mlpen'?"}},
      {"sweep", 2, {"expected an experiment file, or a grid"}},
      {"sweep --model linear", 2, {"--model and --task"}},
      {"sweep --model lineer --task listops", 2, {"'linear'?"}},
      {"help trian", 2, {"'train'?"}},
      {train + "linear --config circle.json", 2, {"circle"}},
      {train + "linear --out file/run", 2, {"file/run", "the run directory", "file is no folder"}},
      {"train --task listops", 2, {"--model"}},
      {"train --model linear", 2, {"--task"}},
      {"trian", 2, {"'train'?", "--help"}},
      {"data chek listops", 2, {"'check'?"}},
      {"data check listop", 2, {"'listops'?"}},
      {"data check listops --protocol mlpn", 2, {"'mlpen'?"}},
      {"selftest --precision bf16", 2, {"--precision", "--part captured"}},
      {"data check listops --data empty", 3, {"basic_train.tsv", "test_d20s.tsv"}},
      {"describe linfomer", 2, {"'linformer'?"}},
      {"describe lisops", 2, {"'listops'?"}},
      {"list tasts", 2, {"'tasks'?"}},
      {"eval nothing", 2, {"nothing", "plan.json"}},
      {"eval nothing --split tset", 2, {"'test'?"}},
      {"completion zhs", 2, {"'zsh'?"}},
      {"plot growh x.json", 2, {"'growth'?"}},
      {"plot growth x.json --out nowhere/x.svg", 2, {"--out nowhere/x.svg", "no folder nowhere"}},
      {"report record.json --out nowhere/x.md", 2, {"--out nowhere/x.md", "no folder nowhere"}},
      {"report record.json --out empty", 2, {"--out empty", "this is a folder"}},
      {"plot growth wrong-key.json", 3, {"wrong-key.json", "bench"}},
      {"report empty --records empty", 2, {"--records", "has records itself"}},
      {train + "linear --steps 3 --steps 4", 2, {"--steps is given more than once"}},
      {train + "linear --record-to named.json", 2, {"--record-to named.json", "folder of such a name"}},
      {"sweep --set lr=1e-3", 2, {"--model and --task", "stand in the file"}},
      {"plot growth wrong-key.json --of tme", 2, {"'time'?"}},
      {"plot curves empty", 3, {"empty", "no record"}},
      {"plot tradeoff nothing", 3, {"nothing", "no such file"}},
      {"report nothing", 3, {"nothing", "no such file"}},
      {"report empty", 3, {"empty", "no record"}},
      {"report broken.json", 3, {"broken.json", "record"}},
      {"report empty --format latx", 2, {"'latex'?"}},
      {"report empty --published wrong-key.json", 3, {"wrong-key.json", "source"}},
  };
  for (const auto& entry : cases) check_case(place, entry.arguments, entry.code, entry.parts);
  // Only a machine without CUDA can show that it is missed.
  if (!std::filesystem::exists("/dev/nvidiactl")) check_case(place, train + "linear --device cuda", 4, {"cuda"});
}

TEST_CASE("what there is, for people and for programs", "[cli]") {
  const Place place;
  const auto parse = [&](const std::string& arguments) {
    const Outcome outcome = place.run(words(arguments));
    INFO("xformer " << arguments << "\n" << outcome.err);
    CHECK(outcome.code == 0);
    CHECK(outcome.err.empty());
    return Json::parse(outcome.out);
  };
  const Json attentions = parse("list attentions --json");
  REQUIRE(attentions.is_array());
  std::vector<std::string> names;
  std::set<std::string> words_of_list;
  for (const Json& attention : attentions) {
    names.push_back(attention.at("name"));
    for (const char* key : {"title", "paper", "class", "complexity", "traits", "options"})
      CHECK(attention.contains(key));
    words_of_list.insert({attention.at("class"), attention.at("complexity")});
  }
  // Whatever stands in the list's columns is explained.
  for (const std::string& word : words_of_list) {
    const Outcome told = place.run({"describe", word});
    CHECK((told.code == 0 && contains(told.out, word + ": ") &&
           contains(told.out, "an attention's time") == (word[0] == 'n')));
  }
  check_case(place, "describe O(n^2)", 0, {"n^2: ", "four times"});
  check_case(place, "describe growth", 0, {"n sqrt n"});
  check_case(place, "describe classes", 0, {"FP", "KR"});
  for (const char* name : {"softmax", "softmax-fused", "linformer", "linear", "performer"})
    for (const std::string prefix : {"", "mrs-"}) CHECK(std::count(names.begin(), names.end(), prefix + name) == 1);
  for (const char* what : {"models", "tasks"}) {
    const Json list = parse(fmt::format("list {} --json", what));
    REQUIRE((list.is_array() && !list.empty()));
    for (const Json& entry : list) CHECK(entry.contains("name"));
  }
  for (const char* name : {"mrs-linformer", "listops", "encoder", "training", "eval"}) {
    const Json described = parse(fmt::format("describe {} --json", name));
    CHECK(described.at("name") == name);
    CHECK_FALSE(described.at("options").empty());
    check_case(place, fmt::format("describe {}", name), 0, {name, "options"});
  }
  for (const char* name : {"vit", "deit", "mrs-deit", "mrs-vit", "ft", "mrs-ft", "lstm", "cnn", "vit/linear"})
    check_case(place, fmt::format("describe {}", name), 0, {"options", "model."});
  check_case(place, "describe mrs-deit", 0, {"vit/mrs-softmax", "attention.scales"});
  check_case(place, "describe mlpen", 0, {"protocol", "training.steps", "listops", "20000"});
  check_case(place, "describe onecycle-linear", 0, {"schedule", "training.schedule=onecycle_linear"});
  check_case(place, "describe adamw", 0, {"optimizer", "training.beta2"});
  check_case(place, "describe accuracy", 0, {"metric", "higher"});
  check_case(place, "describe KR", 0, {"kernel"});
  check_case(place, "describe fixed_length", 0, {"longest length"});
  check_case(place, "describe softmax-fused", 0, {"full, every query", "options     none"});
  check_case(place, "describe listops", 0, {"where the protocols differ", "what all its protocols have"});
  check_case(place, "list", 0, {"mrs-linformer", "listops", "mlpen", "vit, deit"});
  // The program alone, without what the build puts beside it.
  std::filesystem::copy_file(program_path(), place / "alone");
  for (const char* verb : {"list", "--help", "train"}) {
    const Outcome outcome = place.command({place / "alone", verb});
    INFO(outcome.err);
    CHECK(outcome.code == 4);
    CHECK(contains(outcome.err, "scripts/setup builds it"));
  }
  check_case(place, "--help", 0, {"train a model on a task", "print a completion script", "Exit codes"});
  check_case(place, "--version", 0, {"xformer"});
  check_case(place, "version", 0, {"xformer"});
  check_case(place, "help", 0, {"train a model on a task", "Exit codes"});
  check_case(place, "help train", 0, {"--micro-batch"});
  check_case(place, "help data check", 0, {"--data"});
  check_case(place, "analyse span --help", 0, {"--examples", "required attention span"});
  check_case(place, "train --help", 0, {"--model",      "--task",      "--protocol",    "--data",
                                        "--out",        "--record-to", "--seed",        "--steps",
                                        "--stop-after", "--batch",     "--micro-batch", "--length",
                                        "--precision",  "--device",    "--threads",     "--checkpoint-every",
                                        "--eval-every", "--resume",    "--kernels",     "--deterministic",
                                        "--set",        "--config",    "--dry-run",     "--dump-config"});
  for (const char* shell : {"bash", "zsh", "fish"})
    check_case(place, fmt::format("completion {}", shell), 0, {"complete"});
  check_case(place, "complete train --model mrs-linf", 0, {"mrs-linformer\t"});
  check_case(place, "complete train --model=mrs-de", 0, {"--model=mrs-deit\t"});
  check_case(place, "complete train --task listops --protocol mlpen-", 0, {"mlpen-15k\t"});
  check_case(place, "complete train --precision t", 0, {"tf32\t"});
  check_case(place, "complete train --set training.schedule=ons", 0, {""});
  check_case(place, "complete train --set training.schedule=one", 0, {"training.schedule=onecycle_linear\t"});
  check_case(place, "complete data fetch te", 0, {"text\t"});
  put(place / "completion.bash", place.run(words("completion bash")).out);
  CHECK(place.command({"bash", "-n", "completion.bash"}).code == 0);
}

TEST_CASE("names as they are typed stay: in directories, records and rows of reports", "[cli]") {
  const Place place;
  REQUIRE(place.run(tiny("encoder", "--steps 4")).code == 0);
  REQUIRE(std::filesystem::exists(place / "runs/listops/encoder"));
  const Outcome report = place.run(words("report runs"));
  INFO(report.err);
  CHECK(contains(report.out, "encoder"));
  CHECK_FALSE(contains(report.out, "softmax"));
}

// What a person sees in a window of so many columns.
std::string in_window(const Place& place, int columns, const std::string& arguments) {
  const std::string command = fmt::format("stty cols {} 2>/dev/null; {} {}", columns, program_path(), arguments);
  const Outcome outcome = place.command({"script", "-qec", command, "/dev/null"}, {{"TERM", "xterm"}, {"COLUMNS", ""}});
  std::string text = outcome.out;
  std::erase(text, '\r');
  return text;
}

TEST_CASE("everything that people read fits their window, and a pipe gets whole lines", "[cli]") {
  const Place place;
  for (const int columns : {60, 80, 200})
    for (const char* arguments :
         {"--help", "train --help", "data --help", "smat --help", "bench --help", "selftest --help", "sweep --help",
          "list", "describe listops", "describe mrs-linformer", "describe mlpen", "describe training",
          "describe zzzzzzzz", "train --model zzzzzzzz --task listops", "data list"}) {
      const std::string text = in_window(place, columns, arguments);
      INFO(columns << " columns: xformer " << arguments << "\n" << text);
      CHECK(text.size() > 50);
      std::istringstream lines(text);
      for (std::string line; std::getline(lines, line);) CHECK(columns_of(line) <= static_cast<size_t>(columns));
    }
  // A table that a pipe gets as Markdown.
  const std::string bench =
      "bench --models linear --lengths 64 --batch 1 --steps 1 --warmup 2 --set model.dim=16 "
      "--set model.head_dim=8 --no-baseline --threads 1";
  CHECK(contains(place.run(words(bench)).out, "| model | length |"));
  const std::string shown = in_window(place, 80, bench);
  CHECK_FALSE(contains(shown, "|"));
  CHECK(contains(shown, "linear"));
  CHECK(contains(place.run(words("list")).out, "Katharopoulos, Vyas, Pappas, Fleuret"));
}

TEST_CASE("data from files, named on the command line or by XFORMER_DATA", "[cli]") {
  const Place place;
  const std::string sample = std::string(XFORMER_SOURCE) + "/datasets/listops/sample";
  CHECK(place.run(Words{"data", "check", "listops", "--data", sample}).code == 0);
  const Json checked = Json::parse(place.run(Words{"data", "check", "listops", "--json", "--data", sample}).out);
  CHECK((checked["passed"] == true && checked["seconds"] > 0 && checked["peak_process_bytes"] > 1 << 20));
  const Outcome shown = place.run(Words{"data", "show", "listops", "--split", "val", "--count", "2", "--data", sample});
  CHECK(shown.code == 0);
  CHECK(contains(shown.out, "dev 0 of 5"));
  CHECK(contains(shown.out, "label 8, evaluates to 8"));
  check_case(place, "data show listops --index 5 --split dev --data " + sample, 2, {"--index", "0 to 4"});
  check_case(place, "data show listops --index 1 --count 9223372036854775807 --data " + sample, 0, {"train 1 of"});
  const Words command = words(
      "train --task listops --model linear --set model.dim=16 --set model.head_dim=8 --batch 4 --steps 4 --threads 1");
  REQUIRE(place.run(command + Words{"--set", "data.max_length=64", "--out", "named", "--data", sample}).code == 0);
  std::filesystem::create_directory(place / "data");
  std::filesystem::create_directory_symlink(sample, place / "data" / "listops");
  REQUIRE(
      place.run(command + Words{"--set", "data.max_length=64", "--out", "found"}, {{"XFORMER_DATA", place / "data"}})
          .code == 0);
  const Json named = json_file(place / "named" / "record.json"), found = json_file(place / "found" / "record.json");
  CHECK(named["data"]["origin"] == "files");
  CHECK(named["data"]["sha256"] == found["data"]["sha256"]);
  CHECK(named["accuracy"] == found["accuracy"]);
  // A label outside 0 to 9 is named with its file and line.
  std::filesystem::copy(sample, place / "bad", std::filesystem::copy_options::recursive);
  std::string rows = scratch::get(place / "bad" / "basic_val.tsv");
  put(place / "bad" / "basic_val.tsv", rows + "( [MAX 1 ) ]\t11\n");
  check_case(place, "train --task listops --model linear --out bad-run --data bad", 3, {"basic_val.tsv", "11"});
}

TEST_CASE("real ListOps files", "[data]") {
  const auto folder = scratch::real_data("listops");
  if (!folder) {
    WARN("skipped: XFORMER_TEST_DATA names no folder with listops");
    SUCCEED();
    return;
  }
  const Path real = std::filesystem::absolute(*folder);
  const Place place;
  const Outcome checked = place.run(Words{"data", "check", "listops", "--data", (real / "lra_script_output").string()});
  INFO(checked.out << checked.err);
  CHECK(checked.code == 0);
  CHECK(place.run(Words{"data", "check", "listops", "--data", real.string()}).code ==
        0);  // test_d20s.tsv: a test split only
  REQUIRE(place.run(tiny("linear", "--steps 4 --out run")).code == 0);
  const Outcome evaluated = place.run(Words{"eval", "run", "--json", "--threads", "1", "--data", real.string()});
  INFO(evaluated.err);
  REQUIRE(evaluated.code == 0);
  CHECK(Json::parse(evaluated.out)["examples"] == 10000);
  CHECK(contains(evaluated.err, "other data than the run's"));
  const Outcome missing = place.run(Words{"eval", "run", "--split", "dev", "--threads", "1", "--data", real.string()});
  CHECK(missing.code == 3);
  CHECK(contains(missing.err, "no dev split"));
  const Outcome refused = place.run(Words{"train", "--task", "listops", "--model", "linear", "--data", real.string()});
  CHECK(refused.code == 3);
  CHECK(contains(refused.err, "basic_train.tsv"));
}

TEST_CASE("new attention writes its file, test and claims into a source tree, or nothing at all", "[cli]") {
  const Place place;
  for (const char* folder : {"src/attention/variants", "tests/attention", "tests/contract"})
    std::filesystem::create_directories(place / folder);
  const Path source(XFORMER_SOURCE);
  std::filesystem::copy(source / "src/attention/skeletons", place / "src/attention/skeletons");
  const auto claims = [&] { return scratch::get(place / "tests/contract/claims.h"); };
  std::filesystem::copy(source / "tests/contract/claims.h", place / "tests/contract/claims.h");
  const std::string before = claims();
  for (const auto& [words_, parts] : std::map<std::string, Words>{{"softmax", {"'softmax' already"}},
                                                                  {"bigbird", {"'bigbird' already"}},
                                                                  {"mrs-hydra", {"mrs- in front of a name is taken"}},
                                                                  {"double", {"word of C++"}},
                                                                  {"2hydra", {"kebab-case"}},
                                                                  {"hydra --core --mixer", {"--core"}}})
    check_case(place, "new attention " + words_, 2, parts);
  CHECK((claims() == before));
  CHECK(std::filesystem::is_empty(place / "src/attention/variants"));

  for (const std::string role : {"core", "mixer", "block"}) {
    const std::string name = "hydra-" + role, stem = "hydra_" + role;
    check_case(place, "new attention " + name + " --" + role, 0, {"src/attention/variants/" + stem + ".cpp"});
    for (const std::string& file :
         {"src/attention/variants/" + stem + ".cpp", "tests/attention/" + stem + "_test.cpp"}) {
      INFO(file);
      const std::string text = scratch::get(place / file);
      CHECK(contains(text, stem));
      CHECK_FALSE(contains(text, "@"));
    }
    CHECK(contains(claims(), "    {\"" + name + "\",\n     {.appended_padding = true"));
    CHECK(contains(claims(), "\"mrs-" + name + "\"") == (role == "core"));
  }
  CHECK(contains(scratch::get(place / "src/attention/variants/hydra_core.cpp"), "class HydraCoreCore"));
  check_case(place, "new attention hydra-core", 2, {"is there already"});
  check_case(place, "new attention hydra --into nowhere", 2, {"nowhere holds no source tree"});
  // In another tree than the one we stand in, which is then said.
  check_case(place, "new attention hydra-else --into ../" + place.path().filename().string(), 0,
             {place.path().filename().string() + "/src/attention/variants/hydra_else.cpp", "  cd ../"});
}

TEST_CASE("new attention --alone writes a project of one's own anywhere", "[cli]") {
  const Place place;
  for (const std::string role : {"core", "mixer", "block"}) {
    const std::string stem = "hydra_" + role;
    check_case(place, "new attention hydra-" + role + " --alone --into mine --" + role, 0,
               {"mine/" + stem + "/CMakeLists.txt", "-Dxformer_DIR=" + Path(program_path()).parent_path().string()});
    const std::string code = scratch::get(place / "mine" / stem / (stem + ".cpp"));
    CHECK(contains(code, "namespace xformer::attention::variants::" + stem));
    CHECK(contains(code, "result.build_" + role));
    CHECK(contains(scratch::get(place / "mine" / stem / "CMakeLists.txt"),
                   "xformer_attention(" + stem + " " + stem + ".cpp)"));
  }
  check_case(place, "new attention hydra-core --alone --into mine", 2, {"mine/hydra_core is there already"});
}

}  // namespace
}  // namespace xformer::program_test
