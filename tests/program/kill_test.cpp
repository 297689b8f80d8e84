// A run that is killed again and again ends in the same bits as one that never was: weights, optimiser, metrics.
#include <iostream>

#include "core/random.h"
#include "program.h"

namespace xformer::program_test {
namespace {

constexpr uint64_t kSeed = 20240607;  // of the kill points; the times they fall on are the machine's

enum class Kill { kDuringCheckpoint, kWhileTraining, kAnyTime, kStopSignal };

struct Plan {
  const char* name;
  Words command;
  int kills;  // SIGKILLs to reach
};

struct Counts {
  int kills = 0, in_checkpoint = 0, stops = 0, restarts = 0, runs = 0;
  Counts& operator+=(const Counts& other) {
    kills += other.kills, in_checkpoint += other.in_checkpoint, stops += other.stops;
    restarts += other.restarts, runs += other.runs;
    return *this;
  }
};

// Names of checkpoints that are being written (or were, when their writer died).
std::vector<std::string> unfinished_checkpoints(const Path& run) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(run / "checkpoints", ignored))
    if (const std::string name = entry.path().filename(); name.starts_with(".step-") && contains(name, ".tmp-"))
      names.push_back(name);
  return names;
}

class Killer {
 public:
  Killer(const Place& place, const Plan& plan) : place_(place), plan_(plan) {}

  Counts run() {
    reference_ = fresh("reference");
    const auto start = std::chrono::steady_clock::now();
    Process process = begin(reference_);
    REQUIRE(process.says("parameters"));
    const auto begun = std::chrono::steady_clock::now();
    REQUIRE(process.wait() == 0);
    const auto end = std::chrono::steady_clock::now();
    startup_ms_ = milliseconds(begun - start);
    training_ms_ = milliseconds(end - begun);
    while (counts_.kills < plan_.kills) one_victim();
    return counts_;
  }

 private:
  static int64_t milliseconds(std::chrono::steady_clock::duration time) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  }
  Path fresh(const std::string& name) { return place_ / (std::string(plan_.name) + "-" + name); }
  Process begin(const Path& run) {
    return {Words{program_path()} + plan_.command + Words{"--out", run.string()}, place_.path(), place_.environment()};
  }
  uint64_t draw(uint64_t below) { return draws_.next_below(below); }

  // One run from its start to its end, with as many deaths on the way as it takes.
  void one_victim() {
    const Path run = fresh(std::to_string(counts_.runs++));
    while (true) {
      INFO(plan_.name << ", kill point " << counts_.kills + 1 << ", run " << run);
      const bool restart =
          std::filesystem::exists(run / "log.jsonl") && std::filesystem::file_size(run / "log.jsonl") > 0;
      const bool enough = counts_.kills >= plan_.kills;
      Process process = begin(run);
      if (restart) ++counts_.restarts;
      if (!enough && !strike(process, run)) continue;
      REQUIRE(process.wait() == 0);
      if (restart) check_said_resumed(process, run);
      break;
    }
    check_same_end(run, reference_);
    CHECK(unfinished_checkpoints(run).empty());
    std::filesystem::remove_all(run);
  }

  // Kills or stops the process; true when it was at its end before that.
  bool strike(Process& process, const Path& run) {
    const bool restart =
        std::filesystem::exists(run / "log.jsonl") && std::filesystem::file_size(run / "log.jsonl") > 0;
    const uint64_t kind = draw(10);
    const Kill kill = kind < 4   ? Kill::kDuringCheckpoint
                      : kind < 8 ? Kill::kWhileTraining
                      : kind < 9 ? Kill::kAnyTime
                                 : Kill::kStopSignal;
    if (kill == Kill::kAnyTime) {
      sleep_below(startup_ms_ + training_ms_);
      return !end_with(process, SIGKILL);
    }
    if (!process.says("parameters")) {
      REQUIRE(process.wait() == 0);  // all that was left was to say so
      return true;
    }
    if (restart) check_said_resumed(process, run);
    if (kill == Kill::kStopSignal) {
      sleep_below(training_ms_ / 2);
      const int signal = draw(2) == 0 ? SIGTERM : SIGINT;
      process.send(signal);
      const int code = process.wait();
      if (code == 0) return true;  // the signal came after the last step
      CHECK(code == 6);
      ++counts_.stops;
      const Json record = json_file(run / "record.json");
      CHECK(record["status"] == "interrupted");
      CHECK(contains(record["message"].get<std::string>(), "goes on"));
      return false;
    }
    if (kill == Kill::kWhileTraining) {
      sleep_below(training_ms_ / 2);
      return !end_with(process, SIGKILL);
    }
    // The second to fifth checkpoint from now: the first would let the run stand still for ever.
    uint64_t left = 2 + draw(4);
    std::vector<std::string> before = unfinished_checkpoints(run);
    while (!process.ended()) {
      const std::vector<std::string> now = unfinished_checkpoints(run);
      const bool another = !now.empty() && now != before;
      before = now;
      if (!another || --left > 0) continue;
      if (!end_with(process, SIGKILL)) return true;
      const std::vector<std::string> stayed = unfinished_checkpoints(run);
      counts_.in_checkpoint += stayed.empty() ? 0 : 1;
      return false;
    }
    REQUIRE(process.wait() == 0);
    return true;
  }

  // False when the process had ended by itself.
  bool end_with(Process& process, int signal) {
    process.send(signal);
    const int code = process.wait();
    if (code == 0) return false;
    REQUIRE(code == -signal);
    ++counts_.kills;
    return true;
  }

  void sleep_below(int64_t limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(draw(static_cast<uint64_t>(std::max<int64_t>(limit, 1)))));
  }

  // The log says where the run went on, and the screen says the same.
  static void check_said_resumed(const Process& process, const Path& run) {
    if (contains(process.out(), "finished already")) return;  // killed after its record was written
    const std::vector<int64_t> steps = resumed_steps(run);
    REQUIRE(!steps.empty());
    const std::string shown = fmt::format("resumed at step {} of ", steps.back());
    INFO(process.err());
    CHECK(contains(process.err(), shown));
  }

  const Place& place_;
  const Plan& plan_;
  Path reference_;
  Counts counts_;
  Stream draws_{derive_seed(kSeed, plan_.name)};
  int64_t startup_ms_ = 0, training_ms_ = 0;
};

TEST_CASE("killed runs end in the bits of one that never was", "[kill]") {
  const Place place;
  const std::string dropout = " --set model.dropout=0.1 --set model.attention_dropout=0.2 ";
  const std::vector<Plan> plans{
      {"mrs-linformer",
       tiny("mrs-linformer", "--set attention.projected_len=8 --steps 60 --checkpoint-every 3" + dropout), 28},
      {"performer",
       tiny("performer",
            "--set attention.features=16 --set attention.redraw=7 --set training.buckets=3 "
            "--micro-batch 3 --steps 40 --checkpoint-every 2 --set training.patience=3" +
                dropout),
       14},
      {"softmax-fused",
       tiny("softmax-fused", "--steps 30 --checkpoint-every 1 --threads 2 --set training.selection=last" + dropout),
       12},
      {"decoder",
       words("train --task bytes/notes --model linear --data " XFORMER_SOURCE "/datasets/bytes/sample/notes --length 32"
             " --set data.windows=random --set data.scoring=half --set model.dim=16 --set model.heads=2"
             " --set model.head_dim=8 --set model.layers=2 --set model.ff_dim=16 --set training.log_every=3 --batch 4"
             " --eval-every 10 --steps 40 --checkpoint-every 2 --seed 3 --threads 1" +
             dropout),
       8},
      {"memories",
       words("train --task bytes/notes --model compressive --data " XFORMER_SOURCE
             "/datasets/bytes/sample/notes --length 16"
             " --set data.windows=lanes --set data.scoring=memory --set model.positions=none --set model.dim=16"
             " --set model.heads=2 --set model.head_dim=8 --set model.layers=2 --set model.ff_dim=16"
             " --set attention.memory=16 --set attention.compressed_memory=8 --set training.log_every=3 --batch 4"
             " --eval-every 10 --steps 40 --checkpoint-every 2 --seed 3 --threads 1" +
             dropout),
       8},
  };
  Counts all;
  for (const Plan& plan : plans) {
    const Counts counts = Killer(place, plan).run();
    std::cout << plan.name << ": " << counts.kills << " kill points in " << counts.runs << " runs, "
              << counts.in_checkpoint << " of them while a checkpoint was written; " << counts.stops
              << " stops by signal, " << counts.restarts << " restarts" << std::endl;
    all += counts;
  }
  std::cout << "kill points: " << all.kills << ", of them while a checkpoint was written: " << all.in_checkpoint
            << ", seed " << kSeed << std::endl;
  CHECK(all.kills >= 50);
  CHECK(all.in_checkpoint >= 10);
  CHECK(all.stops >= 1);
}

TEST_CASE("a run killed before its first checkpoint begins again, with a whole log", "[kill]") {
  const Place place;
  const Words command = tiny("linear", "--steps 60 --set training.eval_every=60 --set training.log_every=1");
  REQUIRE(place.command(Words{program_path()} + command + "--out reference").code == 0);
  {
    Process process(Words{program_path()} + command + "--out run", place.path(), place.environment());
    while (!process.ended() && !contains(scratch::get(place / "run" / "log.jsonl"), "\"train\"")) {
    }
    process.send(SIGKILL);
    REQUIRE(process.wait() == -SIGKILL);
  }
  REQUIRE(checkpoints_of(place / "run").empty());
  const Outcome rest = place.command(Words{program_path()} + command + "--out run");
  REQUIRE(rest.code == 0);
  CHECK(resumed_steps(place / "run") == std::vector<int64_t>{0});
  check_same_end(place / "run", place / "reference");
}

TEST_CASE("Ctrl-C in a run's first moments ends it quietly, and leaves nothing that is in the way", "[kill]") {
  const Place place;
  const Words command = tiny("linear", "--steps 4 --out run");
  for (const int milliseconds : {0, 3, 10, 20, 40, 60, 80, 100, 130, 160, 200, 250, 300, 400}) {
    CAPTURE(milliseconds);
    {
      Process process(Words{program_path()} + tiny("linear", "--steps 1000000 --out run"), place.path(),
                      place.environment());
      std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
      process.send(SIGINT);
      const int code = process.wait();
      if (code == -SIGINT) {
        CHECK(process.out().empty());
        CHECK(process.err().empty());
        CHECK_FALSE(std::filesystem::exists(place / "run"));
      } else {
        CHECK(code == 6);
        CHECK(contains(process.err(), "the same command goes on"));
        CHECK_FALSE(contains(process.err(), "bug"));
      }
    }
    std::filesystem::remove_all(place / "run");
    // Neither a lock nor half a cache: the next one runs.
    if (milliseconds % 100 == 0) CHECK(place.run(command).code == 0);
    std::filesystem::remove_all(place / "run");
  }
}

TEST_CASE("SIGTERM, SIGINT, SIGHUP and SIGUSR1 save, say so with code 6, and the same command goes on", "[kill]") {
  const Place place;
  const Words command = tiny("mrs-linformer", "--set attention.projected_len=8 --steps 40 --checkpoint-every 7");
  const auto run = [&](const std::string& name) {
    return Words{program_path()} + command + Words{"--out", (place / name).string()};
  };
  REQUIRE(place.command(run("reference")).code == 0);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) {
    const std::string name = fmt::format("signal-{}", signal);
    INFO(name);
    {
      Process process(run(name), place.path(), place.environment());
      REQUIRE(process.says("parameters"));
      process.send(signal);
      REQUIRE(process.wait() == 6);
      CHECK(contains(process.err(), "goes on"));
    }
    const Json record = json_file(place / name / "record.json");
    CHECK(record["status"] == "interrupted");
    const int64_t step = record["steps"]["done"];
    CHECK(contains(scratch::get(place / name / "run.log"), fmt::format("stopped by a signal at step {}", step)));
    CHECK(checkpoints_of(place / name).back() == fmt::format("step-{:08}.safetensors", step));
    const Outcome rest = place.command(run(name));
    REQUIRE(rest.code == 0);
    CHECK(contains(rest.err, fmt::format("resumed at step {} of 40", step)));
    CHECK(resumed_steps(place / name) == std::vector<int64_t>{step});
    check_same_end(place / name, place / "reference");
  }
}

}  // namespace
}  // namespace xformer::program_test
