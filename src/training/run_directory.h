// The folder of one run: who may use it, what it holds, what survives a crash.
//
//   plan.json  log.jsonl  events.out.tfevents.*  checkpoints/step-*.safetensors  model.safetensors
//   predictions.csv  record.json  run.log  lock
#pragma once

#include <functional>
#include <optional>

#include "core/files.h"
#include "core/json_file.h"
#include "core/run_plan.h"
#include "tensor/tensor_file.h"
#include "training/training_state.h"

namespace xformer::training {

enum class Resume { kAuto, kNever, kMust, kOverwrite };
[[nodiscard]] Resume parse_resume(const std::string& name);

// What a folder has for a plan. kReplaced: a run that took no step yet, unless Resume::kMust wants
// it, or any run under Resume::kOverwrite.
enum class Standing { kNew, kReplaced, kGoesOn, kFinished };
struct RunStanding {
  Standing kind = Standing::kNew;
  int64_t step = 0;  // of the newest checkpoint
};
// Touches nothing. UserErrors for a run of another plan, with the differences, and where `resume` forbids what is
// there; ResourceError where no folder could be made.
[[nodiscard]] RunStanding standing_of(const Path& folder, const RunPlan& plan, Resume resume);
// The last step that a run's log.jsonl speaks of; 0 without one.
[[nodiscard]] int64_t logged_step(const Path& run_folder);

// A moment of a run that can be gone on from.
struct Checkpoint {
  TrainingState state;
  std::map<std::string, at::Tensor> tensors;  // "model.*", "best.*", "optimizer.*", "meter"
};

// Whether a tensor file says that it is one; and what it holds, DataError when it is damaged.
[[nodiscard]] bool is_checkpoint(const TensorFile& file);
[[nodiscard]] Checkpoint as_checkpoint(TensorFile file, const Path& path);

// The newest whole checkpoint of a run that this process need not own.
[[nodiscard]] std::optional<Checkpoint> newest_checkpoint(const Path& run_folder,
                                                          const std::function<void(const std::string&)>& warn);

class RunDirectory {
 public:
  // Makes the folder, or takes the existing one: locks it (UserError when another process has it), refuses what
  // standing_of refuses, removes the files of a run that is replaced, writes plan.json. `warn` hears of damaged
  // checkpoints.
  RunDirectory(Path folder, const RunPlan& plan, Resume resume, const std::function<void(const std::string&)>& warn);

  [[nodiscard]] const Path& folder() const { return folder_; }
  [[nodiscard]] Path record_path() const { return folder_ / "record.json"; }
  // The record of a finished run, if there is one.
  [[nodiscard]] const std::optional<RunRecord>& finished_record() const { return finished_; }
  // The newest checkpoint that is whole; damaged ones are passed over with a warning. UserError where there must be
  // one.
  [[nodiscard]] std::optional<Checkpoint> latest_checkpoint() const;
  // Written, with the length of the log now, read back and compared before older ones but the previous are removed.
  void save_checkpoint(const NamedTensors& tensors, TrainingState& state);

  // One line of log.jsonl, with the time of day added.
  void log(Json entry);
  [[nodiscard]] uint64_t log_bytes() const { return log_->size(); }
  void sync_log() { log_->sync(); }
  void truncate_log(uint64_t size) { log_->truncate(size); }

 private:
  void remove_run() const;
  void remove_unfinished_files() const;

  Path folder_;
  bool must_go_on_;
  std::function<void(const std::string&)> warn_;
  std::optional<FileLock> lock_;
  std::optional<AppendFile> log_;
  std::optional<RunRecord> finished_;
};

// plan.json of an existing run; UserError when the folder holds none.
[[nodiscard]] Json read_plan(const Path& run_folder);

}  // namespace xformer::training
