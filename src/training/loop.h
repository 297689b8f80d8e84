// The steps of a run, with their evaluations and checkpoints: all between an open run directory and its record.
#pragma once

#include "training/course.h"
#include "training/evaluator.h"
#include "training/run_directory.h"
#include "training/selector.h"
#include "training/step_clock.h"
#include "training/trainer.h"

namespace xformer::training {

class Loop {
 public:
  // How a run came to its end: "completed"; or "stopped" or "interrupted" with what to do next.
  struct Ending {
    std::string status, message;
  };
  Loop(const RunPlan& plan, const RunOptions& options, Observer& observer, RunDirectory& directory,
       std::unique_ptr<data::DataSource> source);
  Ending run();
  // What is known at any ending, whatever was thrown.
  [[nodiscard]] RunRecord record(const Ending& ending) const;
  // For the message of a run that failed: its newest checkpoint, and how it goes on. Empty before that was looked for.
  [[nodiscard]] std::string what_is_kept() const;

 private:
  [[nodiscard]] int64_t checkpoint_every() const;
  // False when a stop was requested on the way.
  bool test_shifted();
  void look_at_data();
  void build();
  // Takes up the newest whole checkpoint, or starts at step 0.
  void go_on();
  void restore(const Checkpoint& checkpoint);
  // What of this process the run's record has to say.
  void note_process();
  void save();
  void train_one();
  void report();
  // False when a stop was requested on the way.
  bool evaluate_dev();
  // What is left after a divergence, and what may help.
  [[nodiscard]] std::string after_divergence() const;
  void check_loss(const char* split, double loss, int64_t step) const;  // Diverged where it is not finite
  EvaluationRequest evaluation_request(data::Split split);
  // False when a stop was requested on the way.
  bool test();
  Ending interrupted();
  Ending end_early();
  void put_away();

  // An evaluation of the test split, of the weights of a step.
  struct Tested {
    int64_t step = 0;
    Evaluation result;
    std::unique_ptr<tasks::Answers> answers;
  };

  const RunPlan& plan_;
  const RunOptions& options_;
  Observer& observer_;
  RunDirectory& directory_;
  plan::TrainingOptions training_;
  plan::EvalOptions evaluation_;
  TrainingState state_;
  Selector selector_;
  std::unique_ptr<data::DataSource> source_;
  data::OrderOptions order_;
  std::shared_ptr<models::Model> model_;
  std::unique_ptr<TrainStep> step_runner_;
  std::unique_ptr<Evaluator> evaluator_;
  plan::ScheduleOptions schedule_;
  std::unique_ptr<data::Prefetcher> batches_;
  int64_t steps_per_epoch_ = 1, last_step_ = 0;
  std::optional<int64_t> saved_step_;  // of the newest checkpoint; -1: there is none; nothing: not looked for yet
  StepClock clock_;
  std::optional<double> energy_before_;
  std::optional<Tested> tested_;          // of the weights that would be tested now, where dev has told
  std::optional<int64_t> selected_step_;  // from the test on, as the two below
  std::optional<EvaluationPoint> test_;
  std::vector<Metric> chance_;  // of the best constant answer
  // The data under the plan's shifts, by their names, and what these change of the test.
  std::vector<std::pair<std::string, std::unique_ptr<data::DataSource>>> shifted_;
  std::vector<MetricResult> changes_;
};

}  // namespace xformer::training
