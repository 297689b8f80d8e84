#include "training/optimizer.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "kernels/gradient_norm/gradient_norm.h"

namespace xformer::training {

namespace {

constexpr double kFirstScale = 65536, kGrowth = 2, kBackoff = 0.5;
constexpr int64_t kGrowthInterval = 2000;
// Elements from which a gradient is copied by itself: LibTorch's cat has few blocks for each of its pieces on a device.
constexpr int64_t kAlone = int64_t{1} << 18;
// From here on LibTorch copies by several threads.
constexpr int64_t kWorthThreads = int64_t{1} << 15;
constexpr int64_t kAlignment = 64;  // elements: every parameter begins where vector loads and matrix products like it

// Small ones on a CPU without LibTorch, which takes longer to begin than to copy.
void copy_gradient(const at::Tensor& gradient, const at::Tensor& to) {
  const bool plain = to.is_cpu() && to.numel() < kWorthThreads && gradient.defined() && gradient.is_contiguous() &&
                     gradient.scalar_type() == to.scalar_type();
  if (plain) std::memcpy(to.mutable_data_ptr(), gradient.const_data_ptr(), to.nbytes());
  else if (gradient.defined()) to.copy_(gradient);
  else to.zero_();
}

}  // namespace

Optimizer::Optimizer(NamedTensors parameters, const UpdateOptions& options,
                     const std::function<bool(const std::string& name)>& decays)
    : parameters_(std::move(parameters)), options_(options), rule_(plan::all_optimizers().get(options.optimizer)) {
  const at::NoGradGuard no_grad;
  const at::TensorOptions type = parameters_.front().second.options();
  std::stable_partition(parameters_.begin(), parameters_.end(), [&](const auto& entry) { return decays(entry.first); });
  int64_t size = 0;
  for (const auto& [name, parameter] : parameters_) {
    XF_ASSERT(parameter.scalar_type() == c10::typeMetaToScalarType(type.dtype()) && parameter.device() == type.device(),
              "parameter {} has another type or device than the first", name);
    size += (parameter.numel() + kAlignment - 1) / kAlignment * kAlignment;
    if (decays(name)) decayed_ = size;
  }
  values_ = at::zeros({size}, type);  // the gaps stay zero, in values, gradients and moments
  gradients_ = at::zeros_like(values_);
  for (size_t i = 0; i < rule_.moments.size(); ++i) moments_.push_back(at::zeros_like(values_));
  int64_t place = 0, longest = kAlignment;  // the second: of what is gathered with others
  for (const auto& [name, parameter] : parameters_) {
    if (parameter.numel() < kAlone) longest = std::max(longest, parameter.numel());
    const auto view = [&](const at::Tensor& flat) {
      return flat.narrow(0, place, parameter.numel()).view(parameter.sizes());
    };
    at::Tensor value = parameter;
    view(values_).copy_(value);
    value.set_data(view(values_));
    gradient_views_.push_back(view(gradients_));
    value.mutable_grad() = gradient_views_.back();
    for (size_t i = 0; i < moments_.size(); ++i) state_.emplace_back(rule_.moments[i] + "." + name, view(moments_[i]));
    place += (parameter.numel() + kAlignment - 1) / kAlignment * kAlignment;
  }
  // What recorded steps read stays where it is: it is made once, whatever a later step will lack.
  if (!gradients_.is_cpu()) zeros_ = at::zeros({longest}, type);
  const at::TensorOptions scalar = type.dtype(at::kDouble);
  step_ = at::zeros({}, scalar);
  norm_ = at::zeros({}, scalar);
  skipped_ = at::zeros({}, scalar);
  factor_ = at::ones({}, scalar);
  blocks_ready_ = at::zeros({}, type.dtype(at::kInt));
  if (!options_.loss_scaling) return;
  scale_ = at::full({}, kFirstScale, type.dtype(at::kFloat));
  good_steps_ = at::zeros({}, type.dtype(at::kInt));
}

void Optimizer::zero_gradients() {
  for (const auto& [name, parameter] : parameters_) at::Tensor(parameter).mutable_grad() = at::Tensor();
}

void Optimizer::gather_gradients() {
  // Not taken away since they were gathered: they are all there.
  if (parameters_.front().second.grad().is_same(gradient_views_.front())) return;
  std::vector<at::Tensor> pieces;  // that lie behind each other and are yet to be written
  int64_t end = 0, begin = 0;      // of these
  const auto write = [&] {
    if (end > begin) {
      at::Tensor into = gradients_.narrow(0, begin, end - begin);
      at::cat_out(into, pieces);
    }
    pieces.clear(), begin = end;
  };
  const bool on_cpu = gradients_.is_cpu();  // where there are no launches to save
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i].second;
    const int64_t gap = (kAlignment - parameter.numel() % kAlignment) % kAlignment;
    const at::Tensor& gradient = parameter.grad();  // undefined where nobody read the parameter
    if (on_cpu || parameter.numel() >= kAlone) {
      write();
      copy_gradient(gradient, gradient_views_[i]);
      begin = end = end + parameter.numel() + gap;
    } else {
      pieces.push_back(gradient.defined() ? gradient.reshape({-1}) : zeros_.narrow(0, 0, parameter.numel()));
      if (gap > 0) pieces.push_back(zeros_.narrow(0, 0, gap));
      end += parameter.numel() + gap;
    }
  }
  write();
  for (size_t i = 0; i < parameters_.size(); ++i) at::Tensor(parameters_[i].second).mutable_grad() = gradient_views_[i];
}

void Optimizer::step(const at::Tensor& learning_rate, const at::Tensor& beta1) {
  const at::NoGradGuard no_grad;
  gather_gradients();
  kernels::gradient_norm(gradients_, scale_, options_.clip_norm, {norm_, factor_, skipped_, step_, blocks_ready_});
  rule_.apply({values_, gradients_, decayed_, moments_, learning_rate, beta1, factor_, step_, skipped_},
              options_.constants);
  if (options_.loss_scaling)
    at::_amp_update_scale_(scale_, good_steps_, skipped_.to(at::kFloat), kGrowth, kBackoff, kGrowthInterval);
}

NamedTensors Optimizer::state() const {
  NamedTensors result{{"step", step_}};
  result.insert(result.end(), state_.begin(), state_.end());
  if (options_.loss_scaling) {
    result.emplace_back("loss_scale", scale_);
    result.emplace_back("loss_scale_good_steps", good_steps_);
  }
  return result;
}

}  // namespace xformer::training
