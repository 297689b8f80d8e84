// A sweep that is killed at random moments (itself, one of its cells, or both) ends as one that never was: it loses
// nothing and repeats nothing.
#include <iostream>
#include <regex>

#include "core/random.h"
#include "program.h"

namespace xformer::program_test {
namespace {

using scratch::put;

constexpr uint64_t kSeed = 20261121;  // of kinds and moments; what they fall on is the machine's

const char* const kExperiment = R"({
  "title": "Small", "tasks": ["listops"], "models": ["none", "linear"], "seeds": "0-1", "steps": 24,
  "set": {"model.dim": 16, "model.head_dim": 8, "model.ff_dim": 16, "model.classifier_dim": 16, "data.min_length": 10,
          "data.max_length": 60, "data.train_examples": 256, "data.dev_examples": 32, "data.test_examples": 32,
          "training.batch": 8, "training.eval_every": 2, "training.log_every": 2, "model.dropout": 0.1}})";

int64_t kills_wanted() {
  const char* text = std::getenv("XFORMER_SWEEP_KILLS");
  return text == nullptr ? 20 : std::stoll(text);
}

std::vector<Json> journal_of(const Path& out) {
  std::vector<Json> result;
  std::istringstream text(scratch::get(out / "journal.jsonl"));
  for (std::string line; std::getline(text, line);)
    if (Json entry = Json::parse(line, nullptr, /*allow_exceptions=*/false); entry.is_object()) result.push_back(entry);
  return result;
}

struct Counts {
  int64_t sweep = 0, cell = 0, both = 0, starts = 0, outlived = 0;
  [[nodiscard]] int64_t kills() const { return sweep + cell + both; }
};

void check_sweep(const Path& out, const Path& records, const Path& reference, Counts& counts) {
  const std::vector<Path> runs = runs_in(out), whole = runs_in(reference);
  REQUIRE(runs.size() == 4);
  for (size_t i = 0; i < runs.size(); ++i) {
    const Path place = std::filesystem::relative(runs[i], out);
    INFO(place);
    CHECK(place == std::filesystem::relative(whole[i], reference));
    check_same_end(runs[i], whole[i]);
    CHECK(json_file(records / place / "record.json")["status"] == "completed");
  }
  // Each cell has one end, and nobody began it afterwards.
  std::map<std::string, int> ends;
  for (const Json& entry : journal_of(out)) {
    const std::string cell = entry.value("cell", "");
    if (cell.empty()) continue;
    INFO(entry.dump());
    CHECK(ends[cell] == 0);
    if (entry.value("status", "") == "completed") ++ends[cell];
    counts.starts += entry["event"] == "started" ? 1 : 0;
    counts.outlived += entry["event"] == "found" ? 1 : 0;
  }
  CHECK(ends.size() == 4);
  for (const auto& [cell, count] : ends) CHECK(count == 1);
}

}  // namespace

TEST_CASE("a killed sweep loses nothing and repeats nothing", "[sweep]") {
  const Place place;
  std::filesystem::create_directory(place / "small");
  scratch::put(place / "small/sweep.json", kExperiment);
  const auto command = [&](const std::string& name) {
    return Words{program_path()} +
           words("sweep small/sweep.json --threads 1 --jobs 2 --out " + name + " --record-to " + name + "-records");
  };
  REQUIRE(place.command(command("reference")).code == 0);
  Stream draws(kSeed);
  Counts counts;
  int64_t sweeps = 0;
  while (counts.kills() < kills_wanted()) {
    const std::string name = "sweep" + std::to_string(sweeps++);
    for (bool over = false; !over;) {
      Process sweep(command(name), place.path(), place.environment());
      while (!sweep.ended() && counts.kills() < kills_wanted()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(draws.next_below(700)));
        const std::vector<pid_t> cells = children_of(sweep.id());
        // Each kind as often as the others.
        const int kind = counts.sweep <= std::min(counts.cell, counts.both) ? 0 : counts.cell <= counts.both ? 1 : 2;
        if (sweep.ended()) break;
        if (kind != 0 && cells.empty()) continue;
        if (kind != 1) sweep.send(SIGKILL);
        if (kind != 0) ::kill(cells[draws.next_below(cells.size())], SIGKILL);
        (kind == 0 ? counts.sweep : kind == 1 ? counts.cell : counts.both) += 1;
      }
      const int code = sweep.wait();
      INFO(sweep.err());
      REQUIRE((code == 0 || code == -SIGKILL));
      over = code == 0;
    }
    check_sweep(place / name, place / (name + "-records"), place / "reference", counts);
  }
  std::cout << "kills: " << counts.sweep << " of the sweep, " << counts.cell << " of a cell, " << counts.both
            << " of both, in " << sweeps << " sweeps of 4 cells; " << counts.starts << " starts of cells, "
            << counts.outlived << " cells ended after their sweep, seed " << kSeed << std::endl;
}

TEST_CASE("SIGTERM stops a sweep after its cells have saved, and the same command goes on", "[sweep]") {
  const Place place;
  std::filesystem::create_directory(place / "small");
  scratch::put(place / "small/sweep.json", kExperiment);
  const Words command = Words{program_path()} + words("sweep small/sweep.json --threads 1 --out runs");
  {
    Process sweep(command, place.path(), place.environment());
    while (!sweep.ended() && runs_in(place / "runs").empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    sweep.send(SIGTERM);
    CHECK(sweep.wait() == 6);
    CHECK(contains(sweep.err(), "the same command goes on"));
  }
  const Outcome rest = place.command(command);
  CHECK(rest.code == 0);
  CHECK(contains(rest.out, "4 of 4 cells completed"));
}

TEST_CASE("a sweep in another folder runs what --record-to lacks, and says so", "[sweep]") {
  const Place place;
  std::filesystem::create_directory(place / "small");
  scratch::put(place / "small/sweep.json", kExperiment);
  const auto command = [](const std::string& out, const std::string& more = "") {
    return words("sweep small/sweep.json --threads 1 --record-to kept --out " + out + more);
  };
  CHECK(place.run(command("first", " --seeds 0")).code == 0);
  const Outcome plan = place.run(command("second", " --dry-run"));
  CHECK(contains(plan.err, "2 of 4 runs have their records in kept: not run again"));
  CHECK(contains(plan.out, "2 cells, 2 to run"));
  const Outcome rest = place.run(command("second"));
  CHECK(rest.code == 0);
  CHECK(contains(rest.out, "2 of 2 cells completed"));
  CHECK(runs_in(place / "second").size() == 2);
  const Outcome none = place.run(command("third"));
  CHECK(none.code == 0);
  CHECK(contains(none.err, "4 of 4 runs have their records in kept: not run again"));
  CHECK(contains(none.out, "`xformer report small/sweep.json --records kept` makes the table"));
  CHECK(!std::filesystem::exists(place / "third"));
}

TEST_CASE("every experiment of the project asks for what there is, or says what it waits for", "[sweep]") {
  const Place place;
  Words command{"validate"};
  for (const auto& entry : std::filesystem::recursive_directory_iterator(Path(XFORMER_SOURCE) / "experiments")) {
    const Path& path = entry.path();
    // Bases that others extend are no experiments of their own.
    if (path.extension() == ".json" && path.filename() != "published.json" && path.parent_path().filename() != "common")
      command.push_back(path.string());
  }
  CHECK(command.size() > 30);
  const Outcome outcome = place.run(command);
  INFO(outcome.err);
  CHECK(outcome.code == 0);
  for (size_t i = 1; i < command.size(); ++i) CHECK(contains(outcome.out, command[i]));
}

TEST_CASE("committed records are runs of the experiment that they lie under", "[sweep]") {
  const Place place;
  const Path source = XFORMER_SOURCE;
  int experiments = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(source / "results/runs")) {
    const Path file = source / "experiments" / (entry.path().lexically_relative(source / "results/runs") += ".json");
    if (!entry.is_directory() || !std::filesystem::exists(file)) continue;
    const Outcome outcome = place.run({"report", file.string(), "--records", entry.path().string()});
    INFO(file.string() << ": " << outcome.err);
    CHECK(outcome.code == 0);
    CHECK_FALSE(contains(outcome.err, "are of no run"));
    ++experiments;
  }
  CHECK(experiments >= 4);
}

TEST_CASE("an experiment that measures leaves reports and tables, and measures nothing twice", "[sweep]") {
  const Place place;
  std::filesystem::create_directory(place / "small");
  const std::string words_of_bench =
      R"("--models", "linear", "--batch", "1", "--steps", "1", "--set", "model.dim=16", "--set", "model.head_dim=8")";
  scratch::put(place / "small/bench.json", R"({"title": "Small", "bench": [["--lengths", "16", )" + words_of_bench +
                                               R"(], ["--lengths", "32", )" + words_of_bench + "]]}");
  const Words command = words("sweep small/bench.json --out runs --record-to kept --threads 1");
  const Outcome outcome = place.run(command);
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK(json_file(place / "kept/bench-2.json")["rows"][0]["length"] == 32);
  CHECK(contains(scratch::get(place / "kept/bench-1.md"), "| `softmax-fused` | 16 | 1 |"));
  const std::string first = scratch::get(place / "runs/bench-1.json");
  std::filesystem::remove(place / "runs/bench-2.json");
  CHECK(place.run(command).code == 0);
  CHECK(scratch::get(place / "runs/bench-1.json") == first);
  CHECK(std::filesystem::exists(place / "runs/bench-2.json"));
  scratch::put(place / "small/published.json", R"([{"experiment": "bench", "task": "listops", "model": "linear",
    "metric": "train_time_per_step", "value": 3, "source": "S", "length": 16}])");
  const Outcome alone = place.run(words("report small/bench.json --records kept"));  // beside nothing published
  CHECK(alone.code == 0);
  CHECK(contains(alone.out, "| linear | 32 | 1 |"));
  CHECK_FALSE(contains(alone.out, "published"));
  scratch::put(place / "small/bench.json", R"({"title": "Small", "published": "published.json",
    "bench": [["--lengths", "16", )" + words_of_bench +
                                               "]]}");
  const Outcome report = place.run(words("report small/bench.json --records kept"));
  CHECK(report.code == 0);
  CHECK(contains(report.out, "| softmax-fused | 16 | 1 |"));
  // What is not measured yet is said, beside what is published.
  const Outcome none = place.run(words("report small/bench.json --records nowhere"));
  CHECK(none.code == 0);
  for (const char* part :
       {"Measurement 1 of 1 is not made yet", "| model | listops, length=16, ms |", "| linear | 3 |"})
    CHECK(contains(none.out, part));
  scratch::put(place / "small/wrong.json", R"({"bench": [["--lengths", "16", "--models", "linera"]]})");
  const Outcome wrong = place.run(words("validate small/wrong.json"));
  CHECK(wrong.code == 2);
  CHECK(contains(wrong.err, "bench[0]: unknown attention 'linera'; did you mean 'linear'?"));
}

TEST_CASE("a sweep says what it would do, and what it is made of", "[sweep]") {
  const Place place;
  std::filesystem::create_directory(place / "small");
  scratch::put(place / "small/sweep.json", kExperiment);
  scratch::put(place / "small/wrong.json", R"({"tasks": ["listops"], "models": ["linfomer"]})");
  const Outcome valid = place.run(words("validate small/sweep.json"));
  CHECK(valid.code == 0);
  CHECK(contains(valid.out, "Small: 4 runs"));
  const Outcome wrong = place.run(words("validate small/wrong.json"));
  CHECK(wrong.code == 2);
  CHECK(contains(wrong.err, "did you mean 'linformer'?"));
  const Outcome plan = place.run(words("sweep small/sweep.json --dry-run --seeds 0-2"));
  CHECK(plan.code == 0);
  CHECK(plan.out.starts_with("Small: 6 cells, 6 to run, 1 at a time\ntime left ?"));
  CHECK(contains(plan.out, "nothing is known"));
  const Outcome probed = place.run(words("sweep small/sweep.json --dry-run --probe --threads 1"));
  INFO(probed.err);
  CHECK((probed.code == 0 && contains(probed.out, "five steps") && !contains(probed.out, "?")));
  CHECK_FALSE(std::filesystem::exists(place / "runs"));
  // What is printed can be run, and the sweep then finds it done.
  const Outcome commands = place.run(words("sweep small/sweep.json --executor print --only none/seed*0 --threads 1"));
  REQUIRE(commands.code == 0);
  REQUIRE(std::count(commands.out.begin(), commands.out.end(), '\n') == 1);
  CHECK(place.command({"/bin/sh", "-c", commands.out}).code == 0);
  const Outcome sweep = place.run(words("sweep small/sweep.json --only none/seed*0 --threads 1"));
  CHECK(contains(sweep.out, "1 of 1 cells completed"));
  CHECK(contains(sweep.out, "`xformer report small/sweep.json --records runs/small/sweep` makes the table"));
  CHECK(journal_of(place / "runs/small/sweep")[1]["event"] == "found");
  // Its report counts what is not there yet, in the file's order.
  const Outcome report = place.run(words("report small/sweep.json"));
  INFO(report.err);
  CHECK(report.code == 0);
  CHECK(report.out.find("| none |") < report.out.find("| linear | - <sup>"));
  for (const char* part : {"0 of 1 above chance\n", " 1 without record\n", " 2 without record\n"})
    CHECK(contains(report.out, part));
  // Files that no cell would find are missed before the first.
  scratch::put(place / "small/files.json",
               R"({"title": "Files", "tasks": ["listops", "text", "uea/Handwriting"], "models": ["linear", "none"]})");
  const Outcome files = place.run(words("sweep small/files.json --data text=."));
  CHECK(files.code == 3);
  CHECK(contains(files.err, "4 of 6 cells, and nothing was started"));
  CHECK(contains(files.err, "\n  2 cells: uea/Handwriting needs its files"));
  CHECK(contains(files.err, "--skip-missing runs the other 2"));
  CHECK_FALSE(std::filesystem::exists(place / "runs/small/files"));
  const Outcome foreseen = place.run(words("sweep small/files.json --data text=. --dry-run"));
  CHECK(foreseen.code == 3);
  CHECK(contains(foreseen.out, "no data"));
  CHECK(contains(foreseen.err, "uea/Handwriting needs its files"));
  const Outcome devices = place.run(words("sweep small/sweep.json --executor slurm --gpus 0,1"));
  CHECK(devices.code == 2);
  CHECK(contains(devices.err, "--slurm=--gpus=1"));
  // A dry run prints the script, with what the plan and the records say of processors, memory and time.
  scratch::put(place / "env", "module load cuda\n");
  const Outcome script =
      place.run(words("sweep small/sweep.json --executor slurm --dry-run --threads 3 --only linear "
                      "--slurm=--time=1:00 --setup env --cells-per-job 2"));
  INFO(script.out << script.err);
  CHECK(script.code == 0);
  CHECK(script.out.starts_with("#!/bin/bash\n#SBATCH --job-name=xformer-sweep\n#SBATCH --array=0-0%1\n"));
  for (const char* part : {"--cpus-per-task=3\n", "#SBATCH --time=1:00\nmodule load cuda\ncells=("})
    CHECK(contains(script.out, part));
  // Nobody ran this model yet: small steps tell what its process will take, with a quarter to spare.
  const auto asked_megabytes = [](const std::string& text) -> int64_t {
    const std::string key = "#SBATCH --mem=";
    const size_t at = text.find(key);
    return at == std::string::npos ? 0 : std::stoll(text.substr(at + key.size()));
  };
  const int64_t asked = asked_megabytes(script.out) << 20;
  REQUIRE(asked > 0);
  CHECK(place.run(words("sweep small/sweep.json --only linear/seed*0 --threads 1 --out ran")).code == 0);
  const int64_t taken = json_file(runs_in(place / "ran").at(0) / "record.json")["peak_process_bytes"];
  CHECK((taken <= asked && asked <= 4 * taken));
  const Outcome on_gpu =
      place.run(words("sweep small/sweep.json --executor slurm --dry-run --only linear "
                      "--slurm=--gpus=1"));
  CHECK((asked_megabytes(on_gpu.out) == 0 && contains(on_gpu.err, "no --mem: neither earlier records nor")));
  const Outcome known = place.run(words("sweep small/sweep.json --executor slurm --dry-run --only none/seed*1"));
  CHECK(contains(known.out, "#SBATCH --mem="));  // a cell of this model was run above
  CHECK(contains(known.err, "no --cpus-per-task"));
  const Outcome here = place.run(words("sweep small/sweep.json --setup env"));
  CHECK(here.code == 2);
  CHECK(contains(here.err, "--setup belongs to --executor slurm"));
  CHECK(contains(place.run(words("sweep --help")).out, "default: runs/FOLDER/FILE"));
  const Outcome nothing = place.run(words("sweep small/sweep.json --only softmax"));
  CHECK(nothing.code == 2);
  CHECK(contains(nothing.err, "fits no cell"));
}

TEST_CASE("a grid in words is a sweep like one of a file", "[sweep]") {
  const Place place;
  const std::string grid =
      "sweep --model none,linear --task listops --seeds 0-1 --steps 4 --set training.batch=2,4 "
      "data.max_length=40 data.min_length=10";
  const Outcome dry = place.run(words(grid + " --dry-run"));
  INFO(dry.err);
  CHECK(dry.code == 0);
  CHECK(contains(dry.out, "8 cells, 8 to run"));
  CHECK_FALSE(std::filesystem::exists(place / "runs"));
  const Outcome wrong = place.run(words("sweep --model none,lineer --task listops"));
  CHECK((wrong.code == 2 && contains(wrong.err, "'linear'?")));
  CHECK_FALSE(std::filesystem::exists(place / "runs"));
  const std::string small =
      "sweep --model none --task listops --seeds 0-1 --steps 4 --set model.dim=16 model.head_dim=8 "
      "training.batch=2 data.max_length=40 data.min_length=10 data.train_examples=16 data.dev_examples=8 "
      "data.test_examples=8 "
      "model.ff_dim=16 model.classifier_dim=16 ";
  const Outcome done = place.run(words(small + "--threads 1"));
  INFO(done.out << done.err);
  CHECK(done.code == 0);
  CHECK(contains(done.out, "2 of 2 cells completed"));
  CHECK(std::filesystem::exists(place / "runs/listops_none/experiment.json"));
  // The same words find it done, and so does the file that they left.
  CHECK(contains(place.run(words(small + "--dry-run")).out, "0 to run"));
  CHECK(contains(place.run(words("sweep runs/listops_none/experiment.json --dry-run")).out, "0 to run"));
  CHECK(contains(place.run(words("report runs/listops_none/experiment.json")).out, "none"));
  // A grid may grow in its folder; one without what is there would leave runs that no table has.
  const std::string wider = std::regex_replace(small, std::regex("0-1"), "0-2");
  CHECK(contains(place.run(words(wider + "--threads 1")).out, "3 of 3 cells completed"));
  const Outcome narrower = place.run(words(small + "--threads 1"));
  CHECK((narrower.code == 2 && contains(narrower.err, "listops/none/seed 2 among them")));
  // A sweep that is refused leaves nothing.
  CHECK(place.run(words("sweep --model none --task retrieval --out refused")).code == 3);
  CHECK_FALSE(std::filesystem::exists(place / "refused"));
}

TEST_CASE("an experiment in YAML is one in JSON, and all files that are given are looked at", "[sweep]") {
  const Place place;
  put(place / "a.json", R"({"tasks": ["listops"], "models": ["linear"], "set": {"training.batch": 2}, "steps": 4})");
  put(place / "a.yaml", "tasks: [listops]  # one\nmodels: [linear]\nseeds: [0]\nset: {bs: 2}\nsteps: 4\n");
  put(place / "wrong.toml", "tasks = ['listops']\nmodels = ['lineer']\n");
  put(place / "published.json", R"([{"task": "listops", "model": "linear", "value": 1, "source": "a paper"}])");
  const auto printed = [&](const std::string& file) { return place.run(words("sweep --executor print " + file)).out; };
  CHECK(printed("a.yaml") == printed("a.json"));
  CHECK(contains(printed("a.json"), "--set training.batch=2"));
  const Outcome all = place.run(words("validate wrong.toml published.json a.yaml a.json"));
  CHECK(all.code == 2);
  CHECK(contains(all.err, "'linear'?"));
  CHECK(contains(all.out, "published.json: published values, no experiment"));
  CHECK(contains(all.out, "a.json: a: 1 run\n"));
  CHECK(place.run(words("validate published.json a.yaml")).code == 0);
  put(place / "printed.json", R"([{"task": "listops"}])");
  const Outcome bad = place.run(words("validate printed.json a.json"));
  CHECK((bad.code != 0 && contains(bad.err, "printed.json")));
  CHECK(contains(bad.out, "a.json: a: 1 run\n"));
  // The file that a sweep keeps of itself, from the folder it lies in.
  put(place / "experiment.json", scratch::get(place / "a.json"));
  CHECK(place.run(words("sweep experiment.json --executor slurm --dry-run --threads 1")).code == 0);
}

}  // namespace xformer::program_test
