#include "analysis/approximation.h"

#include <ATen/Functions.h>

#include "inspect/forward_attention.h"
#include "tensor/torch_errors.h"

namespace xformer::analysis {

namespace {

struct Sums {
  double error = 0, norm = 0, cosine = 0, rows = 0;
};

void add(const at::Tensor& approximate, const LayerTensors& tensors, Sums& sums) {
  // Rows of valid places behind what the model puts in front: [rows, d] of all heads.
  const int64_t n = tensors.q.size(2) - tensors.front;
  const at::Tensor rows = tensors.valid.narrow(1, tensors.front, n);
  const auto chosen = [&](const at::Tensor& all) {
    return all.narrow(2, tensors.front, n).transpose(1, 2).index({rows}).reshape({-1, all.size(-1)}).to(at::kDouble);
  };
  const at::Tensor exact = chosen(tensors.mixed), other = chosen(approximate);
  sums.error += (other - exact).square().sum().item<double>();
  sums.norm += exact.square().sum().item<double>();
  sums.cosine += at::cosine_similarity(exact, other, 1).sum().item<double>();
  sums.rows += static_cast<double>(exact.size(0));
}

// Of the exception that was caught: why a candidate could not be run. What is no fault of its own is thrown again.
std::string refusal_of_caught() {
  try {
    rethrow_translated("", "attention");
  } catch (const UserError& error) {
    return error.what();
  } catch (const OutOfMemory& error) {
    return error.what();
  }
}

}  // namespace

std::vector<ApproximationError> approximation_errors(const TrainedRun& run, const std::vector<Candidate>& candidates,
                                                     data::Split split, int64_t examples, uint64_t seed,
                                                     const std::function<void(int64_t done, int64_t total)>& progress) {
  XF_CHECK(run.plan.attention == "softmax" || run.plan.attention == "softmax-fused", UserError,
           "errors are against softmax on a model that was trained with it; this one has {}", run.plan.attention);
  std::vector<ApproximationError> result(candidates.size());
  std::vector<std::map<int64_t, Sums>> sums(candidates.size());
  for (size_t c = 0; c < candidates.size(); ++c) result[c].attention = candidates[c].attention.name;
  for_each_layer(
      run, split, examples, seed,
      [&](int64_t layer, const LayerTensors& tensors) {
        for (size_t c = 0; c < candidates.size(); ++c) {
          if (!result[c].refusal.empty()) continue;
          inspect::AttentionForward request;
          request.attention = candidates[c].attention;
          request.options = candidates[c].options;
          request.max_len = tensors.q.size(2);
          request.pinned = tensors.front;
          request.causal = tensors.causal;
          request.seed = static_cast<int64_t>(seed);
          request.device = run.device;
          try {
            const inspect::ForwardResult forward = inspect::forward_attention(
                request, {{"q", tensors.q}, {"k", tensors.k}, {"v", tensors.v}, {"mask", tensors.valid}});
            result[c].untrained = 0;
            for (const auto& [name, tensor] : forward.tensors) {
              if (name == "output") add(tensor, tensors, sums[c][layer]);
              else if (tensor.is_floating_point()) result[c].untrained += tensor.numel();
            }
          } catch (...) {
            result[c].refusal = refusal_of_caught();
          }
        }
      },
      progress);
  for (size_t c = 0; c < candidates.size(); ++c) {
    if (!result[c].refusal.empty()) continue;
    for (const auto& [layer, sum] : sums[c])
      result[c].layers.push_back({std::sqrt(sum.error / sum.norm), sum.cosine / sum.rows});
  }
  return result;
}

}  // namespace xformer::analysis
