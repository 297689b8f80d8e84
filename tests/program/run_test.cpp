// Run directories as their user meets them: records, going on, what is refused, damage, divergence.
#include <pty.h>

#include "program.h"

namespace xformer::program_test {
namespace {

using scratch::put;

TEST_CASE("a run leaves a record, and is not run twice", "[cli]") {
  const Place place;
  const Words command = tiny("mrs-linformer", "--set attention.projected_len=8 --steps 20");
  const Outcome first = place.run(command + Words{"--out", "run", "--record-to", "records"});
  INFO(first.err);
  REQUIRE(first.code == 0);
  CHECK(contains(first.out, "test accuracy"));
  CHECK_FALSE(contains(first.err, "\x1b"));  // a pipe gets no escape codes, and no redrawn lines
  CHECK_FALSE(contains(first.err, "\r"));
  const Json record = json_file(place / "run" / "record.json");
  for (const char* key : {"/schema_version",
                          "/status",
                          "/seed",
                          "/protocol",
                          "/parameters",
                          "/flops_per_example",
                          "/examples_per_s",
                          "/peak_device_bytes",
                          "/peak_process_bytes",
                          "/accuracy",
                          "/chance",
                          "/data/sha256",
                          "/data/sizes/train",
                          "/data/dropped",
                          "/software/libtorch",
                          "/software/commit",
                          "/software/dirty",
                          "/hardware",
                          "/plan/training.batch",
                          "/origins/training.batch",
                          "/dev/0/accuracy",
                          "/selection/rule",
                          "/test/accuracy",
                          "/train_seconds"}) {
    INFO(key);
    const Json::json_pointer pointer(key);
    REQUIRE(record.contains(pointer));
    CHECK_FALSE(record[pointer].is_null());
  }
  CHECK(record["status"] == "completed");
  CHECK(record["deterministic"] == true);  // nothing was said of it
  CHECK(record["origins"]["training.batch"] == "--batch");
  CHECK_FALSE(contains(record.dump(), place.path().string()));  // no path of this machine
  CHECK(scratch::get(place / "run" / "predictions.csv").starts_with("index,label,prediction,score_0"));
  std::vector<Path> records;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(place / "records"))
    if (entry.is_regular_file()) records.push_back(entry.path());
  REQUIRE(records.size() == 1);
  CHECK(json_file(records.front()) == record);

  SECTION("again") {
    const Outcome again = place.run(command + Words{"--out", "run", "--record-to", "again.json"});
    CHECK(again.code == 0);
    CHECK(contains(again.out, "finished already"));
    CHECK(json_file(place / "run" / "record.json") == record);
    CHECK(json_file(place / "again.json") == record);
  }
  SECTION("another plan") {
    const Outcome other = place.run(command + "--set training.clip_norm=1 --out run");
    CHECK(other.code == 2);
    CHECK(contains(other.err, "training.clip_norm: 0.0 -> 1.0"));
    CHECK(place.run(command + "--out run --seed 4").code == 2);
    CHECK(place.run(command + "--out run --resume never").code == 2);
    CHECK(json_file(place / "run" / "record.json") == record);
  }
  SECTION("uncommitted code and results/") {
    const Outcome refused = place.run(command + "--out run --record-to results");
    CHECK(refused.code == (record["software"]["dirty"].get<bool>() ? 2 : 0));
    if (refused.code == 2) CHECK(contains(refused.err, "results/"));
    CHECK(std::filesystem::exists(place / "results") == (refused.code == 0));
  }
  SECTION("evaluated again") {
    for (const std::string split : {"dev", "test"}) {
      const Outcome outcome = place.run(words("eval run --threads 1 --json --split " + split));
      INFO(outcome.err);
      REQUIRE(outcome.code == 0);
      const Json result = Json::parse(outcome.out);
      const double expected = split == "test" ? record["accuracy"] : record["selection"]["best"]["accuracy"];
      CHECK(result["accuracy"] == Approx(expected));
      CHECK(result["examples"] == 32);
      CHECK(result["data"]["sha256"] == record["data"]["sha256"]);
      CHECK_FALSE(contains(outcome.err, "other data"));
    }
  }
}

// What a person at a terminal of 100 columns is shown.
std::string on_terminal(const Place& place, const Words& arguments, const Environment& more) {
  winsize size{30, 100, 0, 0};
  int terminal = -1;
  const pid_t id = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (id == 0) {
    Environment environment = place.environment();
    environment["TERM"] = "xterm";
    for (const auto& [name, value] : more) environment[name] = value;
    for (const auto& [name, value] : environment)
      value.empty() ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value.c_str(), 1);
    const Words command = Words{program_path()} + arguments;
    std::vector<char*> pointers;
    for (const std::string& word : command) pointers.push_back(const_cast<char*>(word.c_str()));
    pointers.push_back(nullptr);
    if (::chdir(place.path().c_str()) == 0) ::execv(pointers[0], pointers.data());
    _exit(127);
  }
  REQUIRE(id > 0);
  std::string shown;
  char buffer[4096];
  for (ssize_t count = 0; (count = ::read(terminal, buffer, sizeof buffer)) > 0;)
    shown.append(buffer, static_cast<size_t>(count));
  ::close(terminal);
  int status = 0;
  REQUIRE(::waitpid(id, &status, 0) == id);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  return shown;
}

TEST_CASE("a terminal gets one line that is drawn again, in colour unless NO_COLOR is set", "[cli]") {
  const Place place;
  const Words command = tiny("linear", "--steps 20");
  const std::string colour = "\x1b[3", redraw = "\r";
  const std::string with = on_terminal(place, command + "--out first", {});
  CHECK(contains(with, colour));
  CHECK(contains(with, redraw));
  CHECK(contains(with, "examples/s"));
  const std::string without = on_terminal(place, command + "--out second", {{"NO_COLOR", "1"}});
  CHECK_FALSE(contains(without, colour));
  CHECK(contains(without, redraw));
}

TEST_CASE("one process at a time in a run directory", "[cli]") {
  const Place place;
  const Words command = tiny("linear", "--out run --steps 100000 --set training.eval_every=100000");
  Process first(Words{program_path()} + command, place.path(), place.environment());
  REQUIRE(first.says("parameters"));
  // Its output must not go to the first one's files.
  std::filesystem::create_directory(place / "second");
  Words same = command;
  std::replace(same.begin(), same.end(), std::string("run"), (place / "run").string());
  Process second(Words{program_path()} + same, place / "second", place.environment());
  CHECK(second.wait() == 2);
  CHECK(contains(second.err(), "another process"));
  first.send(SIGINT);
  CHECK(first.wait() == 6);
}

TEST_CASE("a signal while the data is made ends the run at once", "[cli]") {
  const Place place;
  Process process(Words{program_path()} + words("train --task listops --model linear --out run --threads 1"),
                  place.path(), place.environment());
  REQUIRE(process.says("making ListOps"));  // the full size takes minutes
  process.send(SIGTERM);
  CHECK(process.wait() == 6);
  CHECK(contains(process.err(), "goes on"));
  CHECK_FALSE(contains(process.err(), "parameters"));
  CHECK_FALSE(std::filesystem::exists(place / "run"));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(place / "cache"))
    CHECK((!entry.is_regular_file() || entry.file_size() == 0));  // only the lock's file stays
}

TEST_CASE("--stop-after and the rest are the whole", "[cli]") {
  const Place place;
  const Words command = tiny("mrs-performer", "--set attention.features=16 --set model.dropout=0.1 --steps 30");
  REQUIRE(place.run(command + "--out whole").code == 0);
  const Outcome half = place.run(command + "--out parts --stop-after 14");
  REQUIRE(half.code == 0);
  CHECK(contains(half.out, "14"));
  CHECK(json_file(place / "parts" / "record.json")["status"] == "stopped");
  CHECK(place.run(words("eval parts --split dev --threads 1")).code == 0);  // of a run that is not finished
  REQUIRE(place.run(command + "--out parts --resume must").code == 0);
  CHECK(resumed_steps(place / "parts") == std::vector<int64_t>{14});
  check_same_end(place / "parts", place / "whole");
}

TEST_CASE("micro-batches add up to the batch", "[cli]") {
  const Place place;
  const Words command = tiny(
      "mrs-linear", "--set model.dropout=0.1 --set model.attention_dropout=0.1 --set training.log_every=1 --steps 10");
  REQUIRE(place.run(command + "--out whole").code == 0);
  REQUIRE(place.run(command + "--out parts --micro-batch 3").code == 0);
  const std::vector<std::string> whole = metrics_of(place / "whole"), parts = metrics_of(place / "parts");
  REQUIRE(whole.size() == parts.size());
  int compared = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    const Json a = Json::parse(whole[i]), b = Json::parse(parts[i]);
    if (a["event"] != "train") continue;
    CHECK(b["loss"].get<double>() == Approx(a["loss"].get<double>()).epsilon(1e-4));
    CHECK(b["gradient_norm"].get<double>() == Approx(a["gradient_norm"].get<double>()).epsilon(1e-3));
    ++compared;
  }
  CHECK(compared == 10);
}

void damage(const Path& path, int64_t place, bool cut) {
  std::string bytes = scratch::get(path);
  const size_t at = place < 0 ? bytes.size() + static_cast<size_t>(place) : static_cast<size_t>(place);
  if (cut) bytes.resize(at);
  else bytes[at] = static_cast<char>(bytes[at] ^ 1);
  put(path, bytes);
}

TEST_CASE("a damaged checkpoint is passed over, and nothing is lost but time", "[cli]") {
  const Place place;
  const Words command = tiny("linear", "--set model.dropout=0.1 --steps 30 --checkpoint-every 4");
  REQUIRE(place.run(command + "--out whole").code == 0);
  REQUIRE(place.run(command + "--out begun --stop-after 14").code == 0);
  const std::vector<std::string> checkpoints = checkpoints_of(place / "begun");
  REQUIRE(checkpoints == std::vector<std::string>{"step-00000012.safetensors", "step-00000014.safetensors"});
  const std::string header = scratch::get(place / "begun" / "checkpoints" / checkpoints[1]);
  const struct {
    const char* what;
    int64_t place;
    bool cut;
  } cases[] = {{"a bit of a weight", -20, false},
               {"a bit of the header's length", 3, false},
               {"a bit of the state", static_cast<int64_t>(header.find("\\\"evaluated_step\\\":10") + 19), false},
               {"a bit of a tensor's name", static_cast<int64_t>(header.find("model.layer0") + 6), false},
               {"the last byte missing", -1, true},
               {"half a header", 60, true},
               {"an empty file", 0, true}};
  for (const auto& entry : cases) {
    INFO(entry.what);
    std::filesystem::remove_all(place / "run");
    std::filesystem::copy(place / "begun", place / "run", std::filesystem::copy_options::recursive);
    damage(place / "run" / "checkpoints" / checkpoints[1], entry.place, entry.cut);
    const Outcome outcome = place.run(command + "--out run");
    INFO(outcome.err);
    REQUIRE(outcome.code == 0);
    CHECK(contains(outcome.err, "warning: "));
    CHECK(contains(outcome.err, "step-00000014.safetensors"));
    CHECK(contains(outcome.err, "falling back"));
    CHECK(resumed_steps(place / "run").back() == 12);
    check_same_end(place / "run", place / "whole");
  }
  // Both damaged: from the start, and the new checkpoints are kept although they are older than the damaged ones.
  std::filesystem::remove_all(place / "run");
  std::filesystem::copy(place / "begun", place / "run", std::filesystem::copy_options::recursive);
  for (const std::string& name : checkpoints) damage(place / "run" / "checkpoints" / name, -20, false);
  REQUIRE(place.run(command + "--out run --stop-after 6").code == 0);
  CHECK(checkpoints_of(place / "run") ==
        std::vector<std::string>{"step-00000004.safetensors", "step-00000006.safetensors"});
  REQUIRE(place.run(command + "--out run").code == 0);
  check_same_end(place / "run", place / "whole");
}

TEST_CASE("a run that diverges says so", "[cli]") {
  const Place place;
  const Outcome outcome =
      place.run(tiny("linear", "--set training.learning_rate=1e30 --set training.max_skips=2 --steps 30 --out run"));
  INFO(outcome.err);
  CHECK(outcome.code == 5);
  CHECK(contains(outcome.err, "not finite"));
  CHECK(contains(outcome.err, "a lower training.learning_rate"));
  CHECK_FALSE(contains(outcome.err, "step -1"));
  CHECK_FALSE(contains(outcome.err, "step -1"));
  const Json record = json_file(place / "run" / "record.json");
  CHECK(record["status"] == "diverged");
  CHECK_FALSE(record.contains("accuracy"));
}

}  // namespace
}  // namespace xformer::program_test
