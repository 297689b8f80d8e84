// The passes of classifier.h on a device, but for the launches themselves: cuda.cpp gives them, tests walk the
// programs.
#pragma once

#include <algorithm>

#include "kernels/classifier/pass.h"
#include "kernels/classifier/program.h"
#include "kernels/linear/device.h"

namespace xformer::kernels {

// Whether the programs take these.
[[nodiscard]] inline bool fits_classifier_programs(const at::Tensor& x, const std::vector<LinearMap>& maps) {
  if (maps.size() < 2 || maps.size() > kMostClassifierMaps || x.scalar_type() != at::kFloat || x.numel() == 0)
    return false;
  if (x.size(-1) > kWidestClassifier || x.numel() / x.size(-1) > kMostClassifierRows) return false;
  return std::all_of(maps.begin(), maps.end(), [](const LinearMap& map) {
    return map.bias.defined() && map.weight.scalar_type() == at::kFloat && map.bias.scalar_type() == at::kFloat &&
           map.weight.numel() > 0 && map.weight.numel() <= kMostWeights && map.weight.size(0) <= kWidestClassifier;
  });
}

// What both passes are told; maps in one piece.
[[nodiscard]] inline ClassifierArguments classifier_arguments(const at::Tensor& x, const std::vector<LinearMap>& maps) {
  TORCH_CHECK(fits_classifier_programs(x, maps), "a classifier on a device is two or three small maps of few rows");
  ClassifierArguments a;
  a.in = a.widest = static_cast<int>(x.size(-1)), a.rows = x.numel() / a.in;
  int64_t width = a.in;
  for (const LinearMap& map : maps) {
    TORCH_CHECK(map.weight.size(1) == width && map.bias.numel() == map.weight.size(0),
                "a linear map of another width than its rows");
    width = map.weight.size(0);
    a.maps[a.count++] = {read_floats(map.weight), read_floats(map.bias), nullptr, nullptr, static_cast<int>(width)};
    a.widest = std::max(a.widest, static_cast<int>(width));
  }
  return a;
}

[[nodiscard]] inline std::vector<LinearMap> dense_maps(const std::vector<at::Tensor>& weights,
                                                       const std::vector<at::Tensor>& biases) {
  std::vector<LinearMap> maps;
  for (size_t i = 0; i < weights.size(); ++i) maps.push_back({dense_floats(weights[i]), dense_floats(biases[i])});
  return maps;
}

// Launch takes ClassifierArguments.
template <class Launch>
ClassifierForward classifier_forward_device(const at::Tensor& x_in, const std::vector<at::Tensor>& weights,
                                            const std::vector<at::Tensor>& biases, const Launch& launch) {
  const at::Tensor x = dense_floats(x_in);
  const std::vector<LinearMap> maps = dense_maps(weights, biases);
  ClassifierArguments a = classifier_arguments(x, maps);
  a.x = read_floats(x);
  ClassifierForward result;
  for (int i = 0; i < a.count; ++i) {
    const bool last = i + 1 == a.count;
    const at::Tensor made =
        last ? at::empty(with_width(x, a.maps[i].out), x.options()) : at::empty({a.rows, a.maps[i].out}, x.options());
    a.maps[i].made = written_floats(made);
    if (last) result.scores = made;
    else result.hidden.push_back(made);
  }
  launch(a);
  return result;
}

// Launch takes ClassifierArguments, LaunchWeights WeightGradientArguments.
template <class Launch, class LaunchWeights>
LinearGradients classifier_backward_device(const at::Tensor& gradient_in, const at::Tensor& x_in,
                                           const std::vector<at::Tensor>& weights,
                                           const std::vector<at::Tensor>& biases, const std::vector<at::Tensor>& hidden,
                                           bool x_wanted, const Launch& launch, const LaunchWeights& launch_weights) {
  const at::Tensor x = dense_floats(x_in), gradient = dense_floats(gradient_in);
  const std::vector<LinearMap> maps = dense_maps(weights, biases);
  ClassifierArguments a = classifier_arguments(x, maps);
  LinearGradients result;
  if (x_wanted) result.x = at::empty_like(x), a.dx = written_floats(result.x);
  WeightGradientSum sum(/*needed=*/nullptr);
  for (int i = 0; i < a.count; ++i) {
    const bool last = i + 1 == a.count;
    const at::Tensor slope =
        last ? gradient.view({a.rows, a.maps[i].out}) : at::empty_like(hidden[static_cast<size_t>(i)]);
    if (!last) a.maps[i].made = written_floats(hidden[static_cast<size_t>(i)]);
    a.maps[i].slope = written_floats(slope);
    sum.add(slope, i == 0 ? x.view({a.rows, a.in}) : hidden[static_cast<size_t>(i - 1)], /*bias=*/true);
  }
  launch(a);
  for (const LinearMap& found : sum.run(launch_weights))
    result.weights.push_back(found.weight), result.biases.push_back(found.bias);
  return result;
}

}  // namespace xformer::kernels
