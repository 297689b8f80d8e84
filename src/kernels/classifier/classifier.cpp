#include "kernels/classifier/classifier.h"

#include <ATen/Functions.h>

#include "kernels/classifier/device.h"
#include "kernels/fused.h"
#include "tensor/op_counter.h"

namespace xformer::kernels {

namespace {

struct ClassifierCall {
  at::Tensor x;
  std::vector<at::Tensor> weights, biases, hidden;

  static constexpr const char* kName = "classifier";
  static inline const Operator<kNoCpuKernel<ClassifierForwardPass>> kForward{"classifier_forward"};
  static inline const Operator<kNoCpuKernel<ClassifierBackwardPass>> kBackward{"classifier_backward"};
  static constexpr bool kRoundsProducts = true;  // of the definition, under autocast

  // x, then weights, then biases.
  [[nodiscard]] variable_list inputs() const {
    variable_list all{x};
    all.insert(all.end(), weights.begin(), weights.end());
    all.insert(all.end(), biases.begin(), biases.end());
    return all;
  }
  variable_list forward() {
    count_products(1);
    ClassifierForward made = kForward(x, weights, biases);
    hidden = made.hidden;
    return {made.scores};
  }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool x_wanted) const {
    count_products(2);
    return tensors_of(kBackward(gradients[0], x, weights, biases, hidden, x_wanted));
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    std::vector<LinearMap> maps;
    for (size_t i = 0; i < weights.size(); ++i) maps.push_back({in[1 + i], in[1 + weights.size() + i]});
    return {classifier_reference(in[0], maps)};
  }
  void count_products(int64_t times) const {
    for (const at::Tensor& weight : weights) add_executed_flops(times * 2 * (x.numel() / x.size(-1)) * weight.numel());
  }
};

}  // namespace

at::Tensor classifier(const at::Tensor& x, const std::vector<LinearMap>& maps) {
  ClassifierCall call{x, {}, {}, {}};
  for (const LinearMap& map : maps) call.weights.push_back(map.weight), call.biases.push_back(map.bias);
  if (!x.is_cpu() && fits_classifier_programs(x, maps) && fused_type<ClassifierCall>(call.inputs()))
    return run_fused(call)[0];
  at::Tensor made = x;
  for (size_t i = 0; i < maps.size(); ++i) made = linear(i > 0 ? at::relu(made) : made, maps[i]);
  return made;
}

at::Tensor classifier_reference(const at::Tensor& x, const std::vector<LinearMap>& maps) {
  at::Tensor made = x;
  for (size_t i = 0; i < maps.size(); ++i)
    made = at::linear(i > 0 ? at::relu(made) : made, maps[i].weight, maps[i].bias);
  return made;
}

}  // namespace xformer::kernels
