#include "training/selector.h"

#include <algorithm>
#include <cmath>

namespace xformer::training {

bool Selector::take(const EvaluationPoint& point, const MetricSpec& headline, const models::Model& model) {
  state_.dev.push_back(point);
  const Metric metric{headline, *point.value(headline.name)};
  // A headline that is no number (AUC of one class) is better than none.
  const auto before = state_.best ? state_.best->value(headline.name) : std::nullopt;
  const bool comparable = before && std::isfinite(*before);
  if (state_.best && !(std::isfinite(metric.value) && (!comparable || metric.better_than(*before)))) return false;
  state_.best = point;
  if (best_dev_) {
    best_weights_.clear();
    for (const auto& [name, tensor] : models::state(model))
      best_weights_.emplace_back("best." + name, tensor.detach().clone());
  }
  return true;
}

bool Selector::out_of_patience() const {
  if (patience_ == 0 || !state_.best) return false;
  return std::count_if(state_.dev.begin(), state_.dev.end(),
                       [&](const EvaluationPoint& point) { return point.step > state_.best->step; }) >= patience_;
}

void Selector::put_selected(models::Model& model) const {
  if (!best_dev_) return;
  const at::NoGradGuard no_grad;
  const std::map<std::string, at::Tensor> best(best_weights_.begin(), best_weights_.end());
  for (const auto& [name, tensor] : models::state(model)) at::Tensor(tensor).copy_(best.at("best." + name));
}

void Selector::restore(const std::map<std::string, at::Tensor>& checkpoint, const models::Model& model) {
  best_weights_.clear();
  for (const auto& [name, tensor] : models::state(model))
    if (const auto best = checkpoint.find("best." + name); best != checkpoint.end())
      best_weights_.emplace_back(best->first, best->second);
}

}  // namespace xformer::training
