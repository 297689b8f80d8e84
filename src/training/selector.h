// Which weights are tested, and when a run has waited long enough for better ones.
#pragma once

#include "models/model.h"
#include "plan/options.h"
#include "tensor/tensor_file.h"
#include "training/training_state.h"

namespace xformer::training {

class Selector {
 public:
  // Works on the state's dev evaluations.
  Selector(const plan::TrainingOptions& options, TrainingState& state)
      : best_dev_(options.selection == "best_dev"), patience_(options.patience), state_(state) {}

  // Takes a dev evaluation, and the model's weights where it is strictly better in its headline than all before, or the
  // first or the first whose headline is finite: then true.
  bool take(const EvaluationPoint& point, const MetricSpec& headline, const models::Model& model);
  [[nodiscard]] bool out_of_patience() const;

  // The step of the weights that are tested, and those weights put into the model.
  [[nodiscard]] int64_t selected_step() const { return best_dev_ ? *state_.best->step : state_.step; }
  void put_selected(models::Model& model) const;

  // Best weights as a checkpoint holds them, in the model's order.
  [[nodiscard]] const NamedTensors& best_weights() const { return best_weights_; }
  void restore(const std::map<std::string, at::Tensor>& checkpoint, const models::Model& model);

 private:
  bool best_dev_;
  int64_t patience_;  // dev evaluations without a new best; 0: any number
  TrainingState& state_;
  NamedTensors best_weights_;  // "best.*"; none where the last are tested
};

}  // namespace xformer::training
