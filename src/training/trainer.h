// A run from plan to record: data, model, steps, evaluations, checkpoints, final test.
#pragma once

#include "training/evaluator.h"
#include "training/run_directory.h"

namespace xformer::training {

// Where and how a plan is run; nothing here changes what is computed but device, threads and determinism.
struct RunOptions {
  Path out;        // the run's directory
  Path init_from;  // the weights whose hash the plan names; may be empty when it names none or there is a checkpoint
  data::DataLocation data;
  at::Device device = at::kCPU;
  bool deterministic = true;
  std::string kernels = "auto";
  std::string cuda_graph = "auto";   // auto, on, off: whether steps are captured in CUDA graphs
  std::optional<Recorder> recorder;  // none: the device's under `cuda_graph`; a test gives one that fails
  int64_t stop_after = 0;            // end early at this step under the unchanged plan; 0: never
  int64_t checkpoint_every = 0;      // 0: at every dev evaluation
  Resume resume = Resume::kAuto;
  std::string command;                                          // as recorded: paths replaced by <data> and <out>
  std::function<bool()> stop_requested = [] { return false; };  // a signal came
};

struct TrainPoint {
  int64_t step = 0, steps = 0;
  double loss = 0;
  std::optional<Metric> metric;  // where training sums one
  double learning_rate = 0, gradient_norm = 0, examples_per_s = 0;
  int64_t live_bytes = 0, peak_bytes = 0;
  double page_faults_per_step = 0;
};

// Hears of everything a run does; the run does not know who shows it.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_message(const std::string& line) { (void)line; }  // worth keeping on the screen
  virtual void on_start(const RunPlan& plan, int64_t parameters, double flops, int64_t first_step, int64_t steps) {
    (void)plan, (void)parameters, (void)flops, (void)first_step, (void)steps;
  }
  virtual void on_step(int64_t step, int64_t steps) { (void)step, (void)steps; }
  virtual void on_train(const TrainPoint& point) { (void)point; }
  virtual void on_evaluating(const std::string& what, int64_t done, int64_t total) {
    (void)what, (void)done, (void)total;
  }
  virtual void on_dev(int64_t step, const Evaluation& dev, bool best) { (void)step, (void)dev, (void)best; }
  // `step`: whose weights were tested.
  virtual void on_test(int64_t step, const Evaluation& test) { (void)step, (void)test; }
  // How a run ended that did not finish: what is thrown says it, too, and the caller shows that.
  virtual void on_ended(const std::string& why) { (void)why; }
  virtual ProgressCallback data_progress() {
    return [](std::string_view, uint64_t, uint64_t) {};
  }
};

// UserError where the device cannot do what the plan or the options ask for.
void check_device(const RunPlan& plan, const RunOptions& options);

// Runs until the plan is done, `stop_after` is reached or a stop is requested (Interrupted is thrown after saving).
// Returns the record, which also lies in <out>/record.json, as it does after every failure that comes when the data is
// there. A finished run is not run again.
RunRecord train(const RunPlan& plan, const RunOptions& options, Observer& observer);

}  // namespace xformer::training
