#include "models/norm.h"

#include <ATen/Functions.h>

namespace xformer::models {

namespace {

constexpr double kMomentum = 0.1;

}  // namespace

LayerNorm::LayerNorm(int64_t dim, double epsilon) {
  weights_ = {register_parameter("weight", at::ones({dim})), register_parameter("bias", at::zeros({dim})), epsilon};
}

kernels::ResidualNorm LayerNorm::behind(const at::Tensor& x, const kernels::Branch& branch,
                                        const kernels::DropoutPlace& drop, const at::Tensor& /*valid*/) {
  return kernels::branch_norm(x, branch, drop, weights_);
}

// On a CPU the norm stays in the cache that way; other devices make it in the launch that makes the sum, if one does.
kernels::NormedRows LayerNorm::before(const at::Tensor& x, const kernels::Branch& branch,
                                      const kernels::DropoutPlace& drop, const at::Tensor& valid) {
  if (!x.is_cpu() && branch.defined()) return Norm::before(x, branch, drop, valid);
  const at::Tensor sum = branch.defined() ? kernels::add_branch(x, branch, drop) : x;
  return {sum, sum, weights_};
}

BatchNorm::BatchNorm(int64_t dim, double epsilon, bool all_places)
    : epsilon_(epsilon),
      all_places_(all_places),
      weight_(register_parameter("weight", at::ones({dim}))),
      bias_(register_parameter("bias", at::zeros({dim}))),
      running_mean_(register_buffer("running_mean", at::zeros({dim}))),
      running_variance_(register_buffer("running_variance", at::ones({dim}))) {}

kernels::ResidualNorm BatchNorm::behind(const at::Tensor& x, const kernels::Branch& branch,
                                        const kernels::DropoutPlace& drop, const at::Tensor& valid) {
  const at::Tensor sum = branch.defined() ? kernels::add_branch(x, branch, drop) : x;
  const auto [mean, variance] =
      is_training() ? batch_statistics(sum, valid) : std::pair(running_mean_, running_variance_);
  return {sum, (sum - mean) * (variance + epsilon_).rsqrt() * weight_ + bias_};
}

std::pair<at::Tensor, at::Tensor> BatchNorm::batch_statistics(const at::Tensor& x, const at::Tensor& valid) {
  const at::Tensor wide = x.to(at::promote_types(x.scalar_type(), at::kFloat));
  at::Tensor counts = at::ones({x.size(0), x.size(1), 1}, wide.options());
  if (valid.defined())
    counts = (all_places_ ? valid.any(1, /*keepdim=*/true).expand_as(valid) : valid).unsqueeze(-1).to(counts);
  const at::Tensor count = counts.sum().clamp_min(1);
  const at::Tensor mean = (wide * counts).sum(at::IntArrayRef{0, 1}) / count;
  const at::Tensor variance = ((wide - mean).square() * counts).sum(at::IntArrayRef{0, 1}) / count;

  const at::NoGradGuard no_grad;
  const at::Tensor unbiased = variance * (count / (count - 1).clamp_min(1));
  // A step that is skipped because its numbers are none must not spoil the steps behind it.
  const at::Tensor share = (mean + unbiased).isfinite().to(mean.scalar_type()) * kMomentum;
  running_mean_.lerp_(mean.nan_to_num(0, 0, 0), share);
  running_variance_.lerp_(unbiased.nan_to_num(0, 0, 0), share);
  return {mean, variance};
}

}  // namespace xformer::models
