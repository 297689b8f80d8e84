// The passes of linear.h on a device, but for the launches themselves: cuda.cpp gives them, tests walk the programs.
// The signatures are the CPU's (cpu.h).
#pragma once

#include <ATen/Functions.h>

#include "kernels/device/tensors.h"
#include "kernels/linear/cpu.h"
#include "kernels/linear/program.h"
#include "kernels/linear/weight_gradients.h"

namespace xformer::kernels {

// Rows [.., width] of float whose gaps are closed.
[[nodiscard]] inline at::Tensor dense_floats(const at::Tensor& x) {
  TORCH_CHECK(!x.defined() || x.scalar_type() == at::kFloat, "linear maps on a device take floats");
  return x.defined() ? x.contiguous() : x;
}

// Rows of float, bf16 or fp16 whose gaps are closed.
[[nodiscard]] inline at::Tensor dense_rows(const at::Tensor& x) {
  TORCH_CHECK(x.scalar_type() != at::kDouble, "linear maps on a device take no doubles");
  return x.contiguous();
}

[[nodiscard]] inline std::vector<int64_t> with_width(const at::Tensor& x, int64_t width) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = width;
  return shape;
}

// Whether tensors begin at sixteen bytes and their last axes are multiples of kRun.
[[nodiscard]] inline bool wide_rows(at::TensorList tensors) {
  for (const at::Tensor& one : tensors)
    if (one.defined() && one.size(-1) % kRun != 0) return false;
  return reads_wide(tensors);
}

// The norm of x before maps, of weights in one piece.
[[nodiscard]] inline TileNorm tile_norm(const NormWeights& norm, const at::Tensor& mean, const at::Tensor& rstd) {
  return {read_floats(norm.weight), read_floats(norm.bias), written_floats(mean), written_floats(rstd),
          static_cast<float>(norm.epsilon)};
}
[[nodiscard]] inline bool reads_wide(const TileNorm& norm) {
  const auto aligned = [](const float* place) { return reinterpret_cast<uintptr_t>(place) % 16 == 0; };
  return aligned(norm.weight) && aligned(norm.bias);
}

// The gradients of weights and biases of some maps over the same rows, in one launch.
class WeightGradientSum {
 public:
  // `needed`: of the rows, null where all are. `norm`: that the inputs had.
  explicit WeightGradientSum(const bool* needed, const TileNorm& norm = {}) : wide_(reads_wide(norm)) {
    a_.needed = needed, a_.norm = norm;
  }

  // gradient [.., out], input [.., in], dense.
  void add(const at::Tensor& gradient, const at::Tensor& input, bool bias) {
    TORCH_CHECK(a_.count < kMostMaps, "at most ", kMostMaps, " maps at once");
    WeightGradientArguments::Map& map = a_.maps[a_.count++];
    map = {read_stored(gradient), read_stored(input), gradient.size(-1), input.size(-1), a_.table, bias};
    held_.insert(held_.end(), {gradient, input});
    a_.table += map.out * map.in + (bias ? map.out : 0);
    a_.rows = input.numel() / map.in;
    wide_ = wide_ && wide_rows({gradient, input});
  }

  // Launch takes WeightGradientArguments. The maps' gradients, in the order in which they came.
  template <class Launch>
  [[nodiscard]] std::vector<LinearMap> run(const Launch& launch) {
    a_.product = product_kind(), a_.half = half_among(held_);
    const at::TensorOptions options = held_.front().options().dtype(at::kFloat);
    a_.parts = weight_division(a_.rows, weight_tiles(a_)).parts;
    const at::Tensor tables = at::empty({a_.parts, a_.table}, options);
    a_.tables = written_floats(tables);
    const at::Tensor sums = a_.parts == 1 ? tables.select(0, 0) : at::empty({a_.table}, options);
    a_.sums = written_floats(sums);
    a_.wide = wide_ && reads_wide({tables});
    launch(a_);
    std::vector<LinearMap> result;
    for (int i = 0; i < a_.count; ++i) {
      const WeightGradientArguments::Map& map = a_.maps[i];
      const int64_t size = map.out * map.in;
      result.push_back({sums.narrow(0, map.start, size).view({map.out, map.in}),
                        map.bias ? sums.narrow(0, map.start + size, map.out) : at::Tensor()});
    }
    return result;
  }

 private:
  WeightGradientArguments a_;
  bool wide_;
  std::vector<at::Tensor> held_;
};

// Launch takes LinearArguments. `norm`: of x before the maps.
template <class Launch>
std::vector<at::Tensor> linear_forward_device(const at::Tensor& x_in, const std::vector<at::Tensor>& weights,
                                              const std::vector<at::Tensor>& biases, const at::Tensor& needed_in,
                                              const Launch& launch, const TileNorm& norm = {}) {
  TORCH_CHECK(weights.size() <= kMostMaps, "at most ", kMostMaps, " maps at once");
  const at::Tensor x = dense_rows(x_in);
  const at::TensorOptions stored = x.options().dtype(product_type(x));
  LinearArguments a;
  a.product = product_kind();
  a.x = read_stored(x), a.norm = norm;
  a.in = x.size(-1), a.rows = x.numel() / a.in;
  const at::Tensor needed = dense_flags(needed_in, a.rows);
  a.needed = read_flags(needed);
  a.wide = wide_rows({x}) && reads_wide(norm);
  std::vector<at::Tensor> results, held;
  for (size_t i = 0; i < weights.size(); ++i) {
    const at::Tensor weight = dense_floats(weights[i]);
    const at::Tensor bias = biases.empty() ? at::Tensor() : dense_floats(biases[i]);
    TORCH_CHECK(weight.dim() == 2 && weight.size(1) == a.in, "a linear map of another width than its rows");
    results.push_back(at::empty(with_width(x, weight.size(0)), stored));
    a.wide = a.wide && wide_rows({results.back(), weight, bias});
    a.maps[a.count++] = {read_floats(weight), read_floats(bias), {}, written_stored(results.back()), weight.size(0)};
    held.insert(held.end(), {weight, bias});
  }
  a.half = half_among({x, results.front()});
  launch(a);
  return results;
}

// Launch takes LinearArguments, LaunchWeights WeightGradientArguments. `norm`: that x had; its gradient is that of the
// normed rows.
template <class Launch, class LaunchWeights>
LinearGradients linear_backward_device(const std::vector<at::Tensor>& gradients, const at::Tensor& x_in,
                                       const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& biases,
                                       const at::Tensor& needed_in, bool x_wanted, const Launch& launch,
                                       const LaunchWeights& launch_weights, const TileNorm& norm = {}) {
  const at::Tensor x = dense_rows(x_in);
  LinearArguments a;
  a.product = product_kind();
  a.in = x.size(-1), a.rows = x.numel() / a.in;
  const at::Tensor needed = dense_flags(needed_in, a.rows);
  a.needed = read_flags(needed);
  a.wide = wide_rows({x});
  WeightGradientSum sum(a.needed, norm);
  std::vector<at::Tensor> held, rows{x};
  std::vector<size_t> places;  // of the maps that have a gradient
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!gradients[i].defined()) continue;
    const at::Tensor weight = dense_floats(weights[i]), gradient = dense_rows(gradients[i]);
    sum.add(gradient, x, !biases.empty());
    a.wide = a.wide && wide_rows({weight, gradient});
    a.maps[a.count++] = {read_floats(weight), nullptr, read_stored(gradient), {}, weight.size(0)};
    held.push_back(weight), rows.push_back(gradient);
    places.push_back(i);
  }
  LinearGradients result{{}, std::vector<at::Tensor>(weights.size()), std::vector<at::Tensor>(biases.size())};
  if (x_wanted) {
    result.x = at::empty_like(x);
    a.x_gradient = written_stored(result.x);
    a.wide = a.wide && reads_wide({result.x});
    a.half = half_among(rows);
    launch(a);
  }
  const std::vector<LinearMap> found = sum.run(launch_weights);
  for (size_t i = 0; i < places.size(); ++i) {
    result.weights[places[i]] = found[i].weight;
    if (!biases.empty()) result.biases[places[i]] = found[i].bias;
  }
  return result;
}

}  // namespace xformer::kernels
