#include "kernels/linear/linear.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/cpu/needed_rows.h"
#include "kernels/linear/autocast.h"
#include "kernels/linear/cpu.h"
#include "kernels/linear/program.h"
#include "tensor/op_counter.h"

namespace xformer::kernels {

namespace {

struct LinearCall {
  at::Tensor x;
  std::vector<at::Tensor> weights, biases;
  at::Tensor needed;

  static constexpr const char* kName = "linear";
  static inline const Operator<linear_forward_cpu> kForward{"linear_forward"};
  static inline const Operator<linear_backward_cpu> kBackward{"linear_backward"};
  static constexpr bool kPartialGradients = true, kTakesBf16 = true;

  static bool is_parameter(size_t input) { return input > 0; }
  static bool takes_half(size_t input) { return input == 0; }
  // x, then weights, then biases.
  [[nodiscard]] variable_list inputs() const {
    variable_list all{x};
    all.insert(all.end(), weights.begin(), weights.end());
    all.insert(all.end(), biases.begin(), biases.end());
    return all;
  }
  variable_list forward() {
    for (const at::Tensor& weight : weights) count_products(weight, 1);
    return kForward(x, weights, biases, needed);
  }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool x_wanted) const {
    for (size_t i = 0; i < weights.size(); ++i)
      if (gradients[i].defined()) count_products(weights[i], x_wanted ? 2 : 1);
    return tensors_of(kBackward(gradients, x, weights, biases, needed, x_wanted));
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    const size_t count = weights.size();
    variable_list results;
    for (size_t i = 1; i <= count; ++i)
      results.push_back(needed_alone(at::linear(in[0], in[i], biases.empty() ? at::Tensor() : in[count + i]), needed));
    return results;
  }
  // The CPU's products count themselves.
  void count_products(const at::Tensor& weight, int64_t times) const {
    if (!x.is_cpu()) add_executed_flops(times * 2 * x.numel() * weight.size(0));
  }
};

// The maps of the norm of x, which is made again backwards from two numbers a row; x itself comes out beside them, so
// that both its gradients are added in one pass.
struct NormedLinearCall {
  LinearCall maps;
  NormWeights norm;
  at::Tensor mean, rstd;

  static constexpr const char* kName = "normed_linear";
  static inline const Operator<normed_linear_forward_cpu> kForward{"normed_linear_forward"};
  static inline const Operator<normed_linear_backward_cpu> kBackward{"normed_linear_backward"};
  static constexpr bool kPartialGradients = true, kTakesBf16 = true;

  static bool is_parameter(size_t input) { return input > 0; }
  // Those of the maps, then the norm's.
  [[nodiscard]] variable_list inputs() const {
    variable_list all = maps.inputs();
    all.insert(all.end(), {norm.weight, norm.bias});
    return all;
  }
  [[nodiscard]] variable_list forward() {
    for (const at::Tensor& weight : maps.weights) maps.count_products(weight, 1);
    NormedLinearForward made = kForward(maps.x, maps.weights, maps.biases, norm, maps.needed);
    mean = made.mean, rstd = made.rstd;
    made.results.push_back(maps.x);
    return made.results;
  }
  [[nodiscard]] variable_list backward(variable_list gradients, bool) const {
    const at::Tensor past = gradients.back();
    gradients.pop_back();
    if (std::none_of(gradients.begin(), gradients.end(), [](const at::Tensor& one) { return one.defined(); })) {
      variable_list alone(inputs().size());
      alone[0] = past;
      return alone;
    }
    for (size_t i = 0; i < gradients.size(); ++i)
      if (gradients[i].defined()) maps.count_products(maps.weights[i], 2);
    return tensors_of(kBackward(gradients, past, maps.x, maps.weights, maps.biases, norm, mean, rstd, maps.needed));
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    variable_list of_maps(in.begin(), in.end() - 2);
    of_maps[0] = residual_norm_reference(in[0], {}, {}, {in[in.size() - 2], in.back(), norm.epsilon}).normed;
    variable_list results = maps.reference(of_maps);
    results.push_back(in[0]);
    return results;
  }
};

// Sets the call's weights and biases; whether kernels take them.
bool take_maps(LinearCall& call, const std::vector<LinearMap>& maps) {
  bool possible = call.x.dim() > 0 && call.x.numel() > 0 && !autocast_takes_products(call.x);
  for (const LinearMap& map : maps) {
    call.weights.push_back(map.weight);
    if (map.bias.defined()) call.biases.push_back(map.bias);
    possible = possible && map.weight.numel() > 0 && map.weight.numel() <= most_weights(call.x);
  }
  XF_ASSERT(call.biases.empty() || call.biases.size() == maps.size(), "of maps taken together all have a bias or none");
  return possible;
}

// Other devices than the CPU take few maps, and no doubles; the rest is LibTorch's.
bool maps_fit_device(const at::Tensor& x, size_t maps) {
  return x.is_cpu() || (x.scalar_type() != at::kDouble && maps <= kMostMaps);
}
// Of a norm that maps make themselves they take floats, in rows that fit into registers.
bool norm_fits_device(const at::Tensor& x) {
  return x.is_cpu() || (x.scalar_type() == at::kFloat && x.size(-1) <= kWidestNormTile);
}

}  // namespace

std::vector<at::Tensor> linear(const at::Tensor& x, const std::vector<LinearMap>& maps, const at::Tensor& needed) {
  LinearCall call{x, {}, {}, {}};
  const bool possible = take_maps(call, maps) && maps_fit_device(x, maps.size());
  if (possible) call.needed = needed_of(call, needed);
  return run_fused(call, possible);
}

MapGradients linear_gradients(const at::Tensor& gradient, const at::Tensor& x, const LinearMap& map) {
  LinearCall call{x, {}, {}, {}};
  if (x.is_cpu() && take_maps(call, {map}) && fused_type<LinearCall>(call.inputs()) == x.scalar_type()) {
    const variable_list found = call.backward({gradient}, /*x_wanted=*/true);
    return {found[0], found[1], map.bias.defined() ? found[2] : at::Tensor()};
  }
  const at::Tensor slopes = gradient.flatten(0, -2);
  return {at::matmul(gradient, map.weight), slopes.t().mm(x.flatten(0, -2)),
          map.bias.defined() ? slopes.sum(0) : at::Tensor()};
}

std::vector<at::Tensor> linear(NormedRows& x, const std::vector<LinearMap>& maps, const at::Tensor& needed) {
  if (!x.norm.weight.defined()) return linear(x.rows, maps, needed);
  NormedLinearCall call{{x.rows, {}, {}, needed}, x.norm, {}, {}};
  if (!take_maps(call.maps, maps) || !maps_fit_device(x.rows, maps.size()) || !norm_fits_device(x.rows) ||
      !fused_type<NormedLinearCall>(call.inputs())) {
    const ResidualNorm entry = residual_norm(x.rows, {}, {}, x.norm, needed);
    x.sum = entry.sum;
    return linear(entry.normed, maps, needed);
  }
  variable_list results = run_fused(call);
  x.sum = results.back();
  results.pop_back();
  return results;
}

at::Tensor linear(const at::Tensor& x, const LinearMap& map, const at::Tensor& needed) {
  return linear(x, std::vector<LinearMap>{map}, needed).front();
}

}  // namespace xformer::kernels
