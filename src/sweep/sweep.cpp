#include "sweep/sweep.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <set>
#include <thread>

#include "core/code_version.h"
#include "core/text.h"
#include "training/run_directory.h"

namespace xformer::sweep {

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kTick = std::chrono::milliseconds(50);
constexpr auto kLookElsewhere = std::chrono::milliseconds(500);
constexpr auto kShow = std::chrono::milliseconds(500);

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string score_words(const RunRecord& record) {
  const MetricResult* const test = record.headline("test");
  return test != nullptr && test->value ? fmt::format("test {} {:.4f}", test->spec.name, *test->value) : "";
}

class Sweep {
 public:
  Sweep(const Experiment& experiment, const std::vector<Cell>& cells, const SweepOptions& options,
        SweepObserver& observer)
      : experiment_(experiment),
        cells_(cells),
        options_(options),
        observer_(observer),
        journal_(options.out / "journal.jsonl"),
        states_(cells.size(), CellState::kBlocked),
        records_(cells.size()),
        chosen_(cells.size()) {}

  SweepProgress run() {
    begin();
    bool stopping = false;
    for (;;) {
      reap();
      if (!stopping && (options_.stop_requested() || !refused_.empty())) {
        stopping = true;
        observer_.on_message(fmt::format("stopping: {} running cells save and end", running_.size()));
        for (const auto& one : running_) {
          one->process.send(SIGTERM);
          one->told_to_stop = true;
        }
      }
      if (!stopping) start_what_can();
      if (Clock::now() >= next_show_) {
        observer_.on_progress(progress());
        next_show_ = Clock::now() + kShow;
      }
      if (running_.empty() && (stopping || std::all_of(states_.begin(), states_.end(), has_ended))) {
        const SweepProgress now = progress();
        observer_.on_progress(now);
        journal_.write({{"event", "sweep ended"}, {"completed", now.completed}, {"failed", now.failed}});
        XF_CHECK(refused_.empty(), ResourceError,
                 "{}; other cells would fare no better: {} of {} are completed, and the same command goes on", refused_,
                 now.completed, now.cells);
        XF_CHECK(!stopping, Interrupted, "{} of {} cells are completed; the same command goes on", now.completed,
                 now.cells);
        return now;
      }
      std::this_thread::sleep_for(kTick);
    }
  }

 private:
  struct Running {
    size_t index;
    Cell cell;  // with what a search chose
    FileLock claim;
    CellProcess process;
    Path folder, output;
    size_t slot;
    Clock::time_point start;
    int64_t memory_kills;
    bool told_to_stop = false;
  };

  void begin() {
    journal_.write({{"event", "sweep started"},
                    {"experiment", experiment_.name},
                    {"cells", cells_.size()},
                    {"commit", code_version().commit},
                    {"process", ::getpid()}});
    if (!options_.record_to.empty()) estimator_.learn_folder(options_.record_to);
    histories_ = journal_.histories();
    for (const Cell& cell : cells_)
      if (options_.retry_failed && !histories_[cell.id].gave_up.empty())
        journal_.write({{"event", "again"}, {"cell", cell.id}, {"label", cell.label}});
    histories_ = journal_.histories();
    for (size_t i = 0; i < cells_.size(); ++i) static_cast<void>(look_at(i, /*claimed=*/false));
    if (const int64_t ended = std::count_if(states_.begin(), states_.end(), has_ended); ended > 0)
      observer_.on_message(fmt::format("{} of {} cells have ended before", ended, cells_.size()));
    quiet_ = false;
  }

  static bool has_ended(CellState state) { return state == CellState::kCompleted || state == CellState::kFailed; }

  // Takes what has ended, here or elsewhere, and starts cells while there is a free slot.
  void start_what_can() {
    if (running_.size() >= static_cast<size_t>(options_.jobs)) return;
    if (Clock::now() < next_look_) return;
    histories_ = journal_.histories();
    for (size_t i = 0; i < cells_.size(); ++i) {
      if (!look_at(i, /*claimed=*/false)) continue;
      if (running_.size() >= static_cast<size_t>(options_.jobs)) return;  // look again as soon as one ends
      start(i);
    }
    next_look_ = Clock::now() + kLookElsewhere;
  }

  // Whether there is something to do for who claims the cell; settles it when it has ended.
  bool look_at(size_t i, bool claimed) {
    CellState& state = states_[i];
    if (has_ended(state) || state == CellState::kRunning) return false;
    const Cell& cell = cells_[i];
    std::vector<size_t> needs = cell.trials;
    if (cell.before) needs.push_back(*cell.before);
    for (const size_t need : needs)
      if (!has_ended(states_[need])) return false;
    const CellHistory& history = histories_[cell.id];
    if (!history.gave_up.empty()) {
      settle_failure(i, cell, history.gave_up, history.message);
      return false;
    }
    if (cell.before && states_[*cell.before] == CellState::kFailed) {
      give_up(i, cell, "failed", fmt::format("{}, whose weights it begins with, failed", cells_[*cell.before].label));
      return false;
    }
    if (!cell.trials.empty() && !chosen_[i] && !make_choice(i)) return false;
    if (auto record = completed_record(run_folder(options_.out, resolved(i), history.micro_batch))) {
      // The journal does not know the end of a process that outlived its sweep.
      if (!history.completed && !claimed) return true;
      if (!history.completed)
        journal_.write({{"event", "found"}, {"cell", cell.id}, {"label", cell.label}, {"status", "completed"}});
      settle(i, std::move(*record));
      return false;
    }
    if (state == CellState::kBlocked) state = CellState::kReady;
    return true;
  }

  bool make_choice(size_t i) {
    try {
      chosen_[i] = choose(*experiment_.search, cells_, cells_[i], records_);
    } catch (const UserError& error) {
      give_up(i, cells_[i], "failed", error.what());
      return false;
    }
    return true;
  }

  [[nodiscard]] Cell resolved(size_t i) const {
    return chosen_[i] ? with_values(cells_[i], chosen_[i]->values) : cells_[i];
  }

  void start(size_t i) {
    const Path claims = options_.out / "claims";
    make_folders(claims);
    std::optional<FileLock> claim = FileLock::try_lock(claims / cells_[i].id);
    if (!claim) {
      states_[i] = CellState::kElsewhere;
      return;
    }
    histories_ = journal_.histories();  // what another sweep wrote before it let go of the claim
    states_[i] = CellState::kReady;
    if (!look_at(i, /*claimed=*/true)) return;
    const Cell cell = resolved(i);
    const CellHistory& history = histories_[cell.id];
    const Path folder = run_folder(options_.out, cell, history.micro_batch);
    make_folders(folder);
    // Somebody may train there without a sweep.
    if (!FileLock::try_lock(folder / "lock")) {
      states_[i] = CellState::kElsewhere;
      return;
    }
    size_t slot = 0;
    while (std::any_of(running_.begin(), running_.end(), [&](const auto& one) { return one->slot == slot; })) ++slot;
    std::map<std::string, std::string> environment;
    if (!options_.gpus.empty()) environment["CUDA_VISIBLE_DEVICES"] = options_.gpus[slot % options_.gpus.size()];
    const Path output = folder / "output.log";
    journal_.write({{"event", "started"},
                    {"cell", cell.id},
                    {"label", cell.label},
                    {"attempt", history.attempts + 1},
                    {"micro_batch", history.micro_batch}});
    const int descriptor = claim->descriptor();
    running_.push_back(std::make_unique<Running>(
        Running{i, cell, std::move(*claim),
                CellProcess(cell_command(options_, cells_, cell, histories_), environment, output, descriptor), folder,
                output, slot, Clock::now(), out_of_memory_kills()}));
    ++histories_[cell.id].attempts;
    states_[i] = CellState::kRunning;
  }

  void reap() {
    for (size_t r = 0; r < running_.size();) {
      const std::optional<Ending> ending = running_[r]->process.ended();
      if (!ending) {
        ++r;
        continue;
      }
      const std::unique_ptr<Running> one = std::move(running_[r]);  // lets go of the claim at the end of this scope
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(r));
      end(*one, *ending);
      next_look_ = {};
    }
  }

  void end(const Running& one, const Ending& ending) {
    const CellHistory history = journal_.histories()[one.cell.id];
    // A process that had not begun to listen dies of it; it had nothing to save.
    const bool stopped = one.told_to_stop && ending.signal == SIGTERM;
    const Ending meant = stopped ? Ending{static_cast<int>(ExitCode::kInterrupted), 0} : ending;
    const Verdict verdict = judge(one.cell, meant, out_of_memory_kills() > one.memory_kills, one.folder, one.output,
                                  history, experiment_.retries);
    Json entry{{"event", "ended"},
               {"cell", one.cell.id},
               {"label", one.cell.label},
               {"attempt", history.attempts},
               {"status", verdict.status},
               {ending.signal != 0 ? "signal" : "exit", ending.signal != 0 ? ending.signal : ending.exit_code},
               {"seconds", seconds_since(one.start)}};
    if (!verdict.message.empty()) entry["message"] = verdict.message;
    if (verdict.next_micro_batch > 0) entry["next_micro_batch"] = verdict.next_micro_batch;
    journal_.write(entry);
    states_[one.index] = CellState::kReady;
    if (verdict.status == "completed") {
      settle(one.index, *completed_record(one.folder));
      return;
    }
    if (verdict.stop_sweep) {
      refused_ = fmt::format("{}: {}", one.cell.label, verdict.message);
      return;
    }
    if (verdict.give_up) {
      give_up(one.index, one.cell, verdict.status, verdict.message);
      return;
    }
    const std::string next = verdict.next_micro_batch > 0
                                 ? fmt::format("; again with a micro-batch of {}", verdict.next_micro_batch)
                             : verdict.status == "interrupted" ? ""
                                                               : "; again";
    say_once(one.cell,
             fmt::format("{}{}{}{}", verdict.status, verdict.message.empty() ? "" : ": ", verdict.message, next));
  }

  void settle(size_t i, RunRecord record) {
    states_[i] = CellState::kCompleted;
    estimator_.learn(record);
    const Cell cell = resolved(i);
    const double seconds = record.train_seconds.value_or(0) + record.evaluation_seconds.value_or(0);
    put(i, cell, record);
    if (!quiet_)
      observer_.on_message(fmt::format("{}: {}, {}", cell.label, score_words(record), format_duration(seconds)));
    records_[i] = std::move(record);
  }

  void give_up(size_t i, const Cell& cell, const std::string& status, const std::string& message) {
    journal_.write(
        {{"event", "gave up"}, {"cell", cell.id}, {"label", cell.label}, {"status", status}, {"message", message}});
    settle_failure(i, cell, status, message);
  }

  void settle_failure(size_t i, const Cell& cell, const std::string& status, const std::string& message) {
    states_[i] = CellState::kFailed;
    const CellHistory history = journal_.histories()[cell.id];
    put(i, cell, record_of_failure(cell, run_folder(options_.out, cell, history.micro_batch), status, message));
    const std::string cause = fmt::format("{}: {}", status, message);
    ++causes_[cause];
    if (!quiet_) say_once(cell, cause);
  }

  // A cause that many cells have is told of the first; all are counted in the end.
  void say_once(const Cell& cell, const std::string& what) {
    if (said_.insert(what).second) observer_.on_message(fmt::format("{}: {}", cell.label, what));
  }

  // A run's record where the experiment's records are; after a search with its course, among the trials as well.
  void put(size_t i, const Cell& cell, RunRecord record) {
    if (chosen_[i]) record.search = chosen_[i]->search;
    if (chosen_[i] && !record.path.empty()) keep_search(record.path, record.search);
    if (options_.record_to.empty() || cell.kind != CellKind::kRun) return;
    record.experiment = experiment_.name;
    const Path place = options_.record_to / cell.place / "record.json";
    if (!record.completed() && completed_record(place.parent_path())) return;  // a failure takes nobody's result away
    make_folders(place.parent_path());
    write_file_atomically(place, to_json(record).dump(2) + "\n");
  }

  [[nodiscard]] SweepProgress progress() const {
    SweepProgress result;
    result.causes = causes_;
    result.cells = static_cast<int64_t>(cells_.size());
    // What nobody has run yet takes as long as what has been run here.
    const double typical = estimator_.typical_seconds();
    double left = 0;
    const auto seconds_of = [&](const Cell& cell) {
      const auto estimate = estimator_.of(cell.plan);
      return estimate ? estimate->seconds : typical;
    };
    for (size_t i = 0; i < cells_.size(); ++i) {
      if (states_[i] == CellState::kCompleted) {
        ++result.completed;
        continue;
      }
      if (states_[i] == CellState::kFailed) {
        ++result.failed;
        continue;
      }
      if (states_[i] == CellState::kElsewhere) ++result.elsewhere;
      left += seconds_of(cells_[i]);
    }
    for (const auto& one : running_) {
      const auto& values = one->cell.plan.options.values;
      const int64_t steps = values["training.epochs"] == 0 ? values["training.steps"].get<int64_t>() : 0;
      result.running.push_back({one->cell.label, training::logged_step(one->folder), steps, seconds_since(one->start)});
      left -= std::min(result.running.back().seconds, seconds_of(one->cell));
    }
    if (typical > 0) result.seconds_left = left / static_cast<double>(options_.jobs);
    return result;
  }

  const Experiment& experiment_;
  const std::vector<Cell>& cells_;
  const SweepOptions& options_;
  SweepObserver& observer_;
  Journal journal_;
  Estimator estimator_;
  std::vector<CellState> states_;
  std::vector<std::optional<RunRecord>> records_;  // of completed cells
  std::vector<std::optional<Chosen>> chosen_;      // of runs after a search
  std::map<std::string, CellHistory> histories_;
  std::vector<std::unique_ptr<Running>> running_;
  std::map<std::string, int64_t> causes_;
  std::set<std::string> said_;
  std::string refused_;  // what the machine refused a cell; empty: nothing
  Clock::time_point next_look_{}, next_show_{};
  bool quiet_ = true;  // what has ended before is told as one number
};

}  // namespace

Path run_folder(const Path& out, const Cell& cell, int64_t micro_batch) {
  return place_below(out, cell.plan, micro_batch > 0 ? fmt::format("-micro-{}", micro_batch) : "");
}

std::vector<std::string> cell_command(const SweepOptions& options, const std::vector<Cell>& cells, const Cell& cell,
                                      const std::map<std::string, CellHistory>& histories) {
  const auto micro_batch = [&](const Cell& one) {
    const auto found = histories.find(one.id);
    return found == histories.end() ? 0 : found->second.micro_batch;
  };
  std::vector<std::string> command{options.program};
  const auto add = [&](const std::vector<std::string>& words) {
    command.insert(command.end(), words.begin(), words.end());
  };
  add(cell.words());
  if (micro_batch(cell) > 0) add({"--set", fmt::format("training.micro_batch={}", micro_batch(cell))});
  add(options.data(cell.plan));
  if (cell.before) {
    const Cell& before = cells[*cell.before];
    add({"--init-from", run_folder(options.out, before, micro_batch(before)).string()});
  }
  add(options.compute);
  add({"--out", run_folder(options.out, cell, micro_batch(cell)).string()});
  return command;
}

SweepProgress run_sweep(const Experiment& experiment, const std::vector<Cell>& cells, const SweepOptions& options,
                        SweepObserver& observer) {
  make_folders(options.out);
  return Sweep(experiment, cells, options, observer).run();
}

}  // namespace xformer::sweep
