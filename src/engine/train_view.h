// What a person and TensorBoard see of a training run.
#pragma once

#include <memory>

#include "cli/progress.h"
#include "training/trainer.h"

namespace xformer::engine {

class TrainView : public training::Observer {
 public:
  // Quiet: warnings alone on the screen; run.log has everything.
  TrainView(Path run_folder, bool quiet);
  ~TrainView() override;
  void on_message(const std::string& line) override;
  void on_ended(const std::string& why) override;
  void on_start(const RunPlan& plan, int64_t parameters, double flops, int64_t first_step, int64_t steps) override;
  void on_step(int64_t step, int64_t steps) override;
  void on_train(const training::TrainPoint& point) override;
  void on_evaluating(const std::string& what, int64_t done, int64_t total) override;
  void on_dev(int64_t step, const training::Evaluation& dev, bool best) override;
  void on_test(int64_t step, const training::Evaluation& test) override;
  ProgressCallback data_progress() override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace xformer::engine
