// What a plan promises, what it is made of and what stands in a run's way: --dry-run, --config, --overwrite, --limit,
// --quiet, signals, threads.
#include "program.h"

namespace xformer::program_test {
namespace {

using scratch::put;

// "steps" -> "20", of what --dry-run prints.
std::string said(const Outcome& outcome, const std::string& name) {
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(name + " ")) return line.substr(line.find_first_not_of(' ', name.size()));
  return "";
}

std::string plan_of(const Outcome& outcome) { return said(outcome, "plan"); }

TEST_CASE("a dry run says what the run would do, and fails where it would fail", "[cli]") {
  const Place place;
  const Words command = tiny("linear", "--steps 20 --out run");
  const Outcome fresh = place.run(command + "--dry-run");
  INFO(fresh.out << fresh.err);
  REQUIRE(fresh.code == 0);
  CHECK(said(fresh, "steps") == "20");
  CHECK(said(fresh, "evaluation") == "every 10 steps");
  CHECK(said(fresh, "batch") == "8");
  CHECK(said(fresh, "precision") == "fp32 (default)");
  CHECK(contains(said(fresh, "device"), "1 thread"));
  CHECK(said(fresh, "data") == "generated, on first use");
  CHECK(said(fresh, "run") == "run (new)");
  CHECK(contains(said(fresh, "time"), "--probe"));
  CHECK_FALSE(std::filesystem::exists(place / "run"));

  // A batch that is larger than the data has no more examples than that.
  const auto training = [&](const std::string& batch) {
    Words small = tiny("linear", "--steps 20 --limit train=8 --dry-run --probe");
    std::replace(small.begin(), small.end(), std::string("8"), batch);
    return said(place.run(small), "training");
  };
  CHECK((!training("8").empty() && training("4000") == training("8")));
  // What a run took until it was stopped tells what it will take.
  REQUIRE(place.run(tiny("linear", "--steps 20 --out stopped --stop-after 10")).code == 0);
  CHECK(contains(said(place.run(tiny("linear", "--steps 20 --out stopped --dry-run")), "time"), "as runs of the same"));

  const Outcome probed = place.run(command + "--dry-run --probe");
  INFO(probed.out << probed.err);
  REQUIRE(probed.code == 0);
  CHECK(contains(said(probed, "time"), "s a step, of five"));
  CHECK(contains(said(probed, "memory"), "in tensors"));
  CHECK(said(probed, "data") == "generated, train 256, dev 32, test 32");

  REQUIRE(place.run(command + "--stop-after 14").code == 0);
  CHECK(said(place.run(command + "--dry-run"), "run") == "run (goes on from step 14)");
  CHECK(said(place.run(command + "--dry-run --overwrite"), "run") == "run (what it holds is replaced)");
  CHECK(place.run(command + "--dry-run --set training.clip_norm=1").code == 2);  // another plan
  REQUIRE(place.run(command).code == 0);
  CHECK(said(place.run(command + "--dry-run"), "run") == "run (finished: there is nothing to do)");

  // No such files: the same end as the run's, and nothing is left behind.
  const Words nowhere = words("train --model linear --task uea/JapaneseVowels --out nowhere");
  const Outcome missing = place.run(nowhere + "--dry-run"), run = place.run(nowhere);
  CHECK((missing.code == 3 && run.code == 3));
  CHECK(missing.err == run.err);
  CHECK(contains(said(missing, "steps"), "100 epochs"));
  CHECK_FALSE(std::filesystem::exists(place / "nowhere"));
  CHECK(contains(place.run(words("train --model linear --task uea/Foo --dry-run")).out, "a guess"));
  CHECK(place.run(tiny("linear", "--device cpu --precision tf32 --dry-run")).code == 2);
  check_case(place, "train --model linear --task listops --probe", 2, {"--dry-run"});
}

TEST_CASE("a dumped configuration gives the same plan", "[cli]") {
  const Place place;
  const Words command = tiny("mrs-linformer", "--set attention.projected_len=8 --set attention.scales=1,4 --steps 20");
  const Outcome dry = place.run(command + "--dry-run");
  REQUIRE(dry.code == 0);
  REQUIRE(plan_of(dry) != "");
  CHECK_FALSE(std::filesystem::exists(place / "runs"));
  for (const std::string kind : {"full", "minimal"}) {
    const Outcome dumped = place.run(command + Words{"--dump-config=" + kind});
    REQUIRE(dumped.code == 0);
    put(place / (kind + ".json"), dumped.out);
    CHECK(plan_of(place.run(words("train --dry-run --config " + kind + ".json"))) == plan_of(dry));
  }
  CHECK(Json::parse(scratch::get(place / "minimal.json")).size() <
        Json::parse(scratch::get(place / "full.json")).size());
  // The command line is nearer than the file, and a file nearer than the one it extends.
  put(place / "nearer.json", R"({"extends": "minimal.json", "training.batch": 4})");
  const Json batch =
      Json::parse(place.run(words("train --dump-config=full --config nearer.json")).out)["training.batch"];
  CHECK(batch == 4);
  CHECK(Json::parse(
            place.run(words("train --dump-config=full --config nearer.json --batch 2")).out)["training.batch"] == 2);
  // A full dump names the generator's settings too; with files they must not stand in the way while they are the
  // defaults.
  const std::string sample = std::string(XFORMER_SOURCE) + "/datasets/listops/sample";
  put(place / "files.json", place.run(words("train --model linear --task listops --dump-config=full")).out);
  CHECK(place.run(Words{"train", "--dry-run", "--config", "files.json", "--data", sample}).code == 0);
}

TEST_CASE("a configuration in any form, a record, and words without --set make the same plan", "[cli]") {
  const Place place;
  const std::string plan = plan_of(
      place.run(words("train --dry-run --model mrs-linear --task listops --steps 20 --batch 4 --set model.dim=16 "
                      "--set model.head_dim=8 --lr 0.002 --seed 3")));
  REQUIRE(plan != "");
  put(place / "a.yaml",
      "model: mrs-linear  # with heads of two resolutions\ntask: listops\nseed: 3\nsteps: 20\ntraining: {batch: 4, lr: "
      "2e-3}\nset:\n  model.dim: 16\n  model: {head_dim: 8}\n");
  put(place / "a.toml",
      "model = 'mrs-linear'\ntask = 'listops'\nseed = 3\nsteps = 20\nbs = 4\nlr = 0.002\n[set]\nd_model = 16\n"
      "model.head_dim = 8\n");
  for (const char* command :
       {"--config a.yaml", "--config a.toml",
        "--model mrs-linear --task listops --steps 20 training.batch=4 d_model=16 head_dim=8 lr=0.002 --seed 3",
        "model=mrs-linear task=listops steps=20 seed=3 --set bs=4 model.dim=16 --set head_dim=8 --lr 2e-3"}) {
    INFO(command);
    CHECK(plan_of(place.run(words("train --dry-run") + words(command))) == plan);
  }
  // A record repeats its run, under the name that was typed.
  const Words tiny_run = tiny("encoder", "--steps 4 --out first");
  REQUIRE(place.run(tiny_run).code == 0);
  const Json first = json_file(place / "first/record.json");
  CHECK(first["name"] == "encoder");
  REQUIRE(place.run(words("train --config first/record.json --threads 1 --out again")).code == 0);
  const Json again = json_file(place / "again/record.json");
  CHECK(again["plan_hash"] == first["plan_hash"]);
  CHECK(again["accuracy"] == first["accuracy"]);
  CHECK(again["name"] == "encoder");
  // What is beside a record would be lost; a plan is gone on from, and its name is of its own model alone.
  put(place / "beside.json", R"({"extends": "first/record.json", "training.batch": 7})");
  check_case(place, "train --config beside.json --dry-run", 2, {"beside.json", "extend its run's plan.json"});
  put(place / "nearer.json", R"({"extends": "first/plan.json", "model": "mrs-softmax"})");
  check_case(place, "train --config nearer.json --dry-run", 0, {"mrs-softmax"});
  CHECK_FALSE(contains(place.run(words("train --config nearer.json --dry-run")).out, "model      encoder"));
}

TEST_CASE("epochs are told in steps, and the record has no other number", "[cli]") {
  const Place place;
  const Words command = tiny("linear", "--set training.epochs=1 --out run");
  CHECK(said(place.run(command + "--dry-run"), "steps") == "32 (1 epoch of 32 steps)");
  REQUIRE(place.run(command).code == 0);
  const Json record = json_file(place / "run" / "record.json");
  CHECK(record["steps"]["planned"] == 32);
  CHECK_FALSE(record["plan"].contains("training.steps"));
  // A record of an experiment that counts epochs is still found by its report.
  std::filesystem::create_directory(place / "small");
  scratch::put(place / "small/epochs.json", R"({"title": "E", "tasks": ["listops"], "models": ["linear"], "seeds": [3],
    "set": {"model.dim": 16, "model.head_dim": 8, "model.ff_dim": 16, "model.classifier_dim": 16, "data.min_length": 10,
      "data.max_length": 60, "data.train_examples": 256, "data.dev_examples": 32, "data.test_examples": 32,
      "training.batch": 8, "training.eval_every": 10, "training.log_every": 3, "training.epochs": 1}})");
  const Outcome report = place.run(words("report small/epochs.json --records run"));
  INFO(report.out << report.err);
  CHECK_FALSE(contains(report.out, "without record"));
}

TEST_CASE("fp16 on a CPU is warned of where it was asked for", "[cli]") {
  const Place place;
  const Outcome asked = place.run(tiny("linear", "--device cpu --precision fp16 --dry-run"));
  CHECK((asked.code == 0 && contains(asked.err, "warning: fp16 (from --precision) is only imitated on a CPU")));
  CHECK(place.run(tiny("linear", "--device cpu --precision auto --dry-run")).err.empty());
}

TEST_CASE("a quick look takes part of the data, and no report sets it beside a whole run", "[cli]") {
  const Place place;
  const Words command = tiny("linear", "--record-to records --log-every 1");
  const Outcome fast = place.run(command + "--fast");
  INFO(fast.err);
  REQUIRE(fast.code == 0);
  CHECK(contains(fast.out, "not comparable"));
  const Outcome alone = place.run(words("report records"));
  CHECK((alone.code == 0 && contains(alone.err, "part of the data")));
  REQUIRE(place.run(command + "--steps 5").code == 0);
  const Outcome both = place.run(words("report records"));
  CHECK((both.code == 0 && contains(both.err, "1 records of part of the data (--limit, --fast) are left out")));
  check_case(place, "train --task listops --model linear --limit trian=3", 2, {"data.limit (from --limit)"});
}

TEST_CASE("--quiet shows the result alone, and OMP_NUM_THREADS is heard where --threads is not given", "[cli]") {
  const Place place;
  Words command = tiny("linear", "--steps 10 --quiet --threads-unset --out run");
  std::erase(command, "--threads-unset");
  const Outcome outcome = place.run(command, {{"OMP_NUM_THREADS", "1,4"}});
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK_FALSE(contains(outcome.err, "step"));
  CHECK(contains(outcome.out, "test accuracy"));
  CHECK(contains(scratch::get(place / "run" / "run.log"), "step 10: dev accuracy"));
  CHECK(json_file(place / "run" / "record.json")["hardware"]["threads"] == 1);
  const Outcome given =
      place.run(tiny("linear", "--threads 2 --deterministic off --steps 4 --out given"), {{"OMP_NUM_THREADS", "1"}});
  REQUIRE(given.code == 0);
  CHECK(json_file(place / "given" / "record.json")["hardware"]["threads"] == 2);
  CHECK(json_file(place / "given" / "record.json")["deterministic"] == false);
  CHECK(contains(given.out, "speed not measured"));
}

TEST_CASE("a second Ctrl-C ends at once, with a word", "[cli]") {
  const Place place;
  // A step of seconds.
  const Words command = tiny("softmax-fused", "--out run --steps 3") +
                        "--set data.min_length=400 --set data.max_length=900 --set training.batch=256";
  Process process(Words{program_path()} + command, place.path(), place.environment());
  REQUIRE(process.says("parameters"));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // into the first step
  process.send(SIGINT);
  REQUIRE(process.says("Ctrl-C again"));
  process.send(SIGINT);
  CHECK(process.wait() == 6);
  CHECK(contains(process.err(), "stopped at once"));
}

}  // namespace
}  // namespace xformer::program_test
