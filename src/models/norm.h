// What normalises the tokens of a block: layer norm, or the batch norm of encoders for series.
#pragma once

#include <torch/nn/module.h>

#include "kernels/branch/branch.h"

namespace xformer::models {

class Norm : public torch::nn::Module {
 public:
  // x + drop(branch), or x itself for an undefined branch, and its norm. x [b,n,m]; valid [b,n] bool, or undefined
  // where all are.
  [[nodiscard]] virtual kernels::ResidualNorm behind(const at::Tensor& x, const kernels::Branch& branch,
                                                     const kernels::DropoutPlace& drop, const at::Tensor& valid) = 0;
  // The same for who can make the norm itself (kernels::Branch::norm, kernels::linear), where that is the better way.
  [[nodiscard]] virtual kernels::NormedRows before(const at::Tensor& x, const kernels::Branch& branch,
                                                   const kernels::DropoutPlace& drop, const at::Tensor& valid) {
    const kernels::ResidualNorm made = behind(x, branch, drop, valid);
    return {made.sum, made.normed};
  }
};

// Of every token by itself.
class LayerNorm : public Norm {
 public:
  LayerNorm(int64_t dim, double epsilon);
  // `needed` [b,n] bool: the places that somebody reads; undefined: all.
  [[nodiscard]] at::Tensor forward(const at::Tensor& x, const at::Tensor& needed = {}) const {
    return kernels::residual_norm(x, {}, {}, weights_, needed).normed;
  }
  [[nodiscard]] kernels::ResidualNorm behind(const at::Tensor& x, const kernels::Branch& branch,
                                             const kernels::DropoutPlace& drop, const at::Tensor& valid) override;
  [[nodiscard]] kernels::NormedRows before(const at::Tensor& x, const kernels::Branch& branch,
                                           const kernels::DropoutPlace& drop, const at::Tensor& valid) override;

 private:
  kernels::NormWeights weights_;
};

// Of every channel (Ioffe and Szegedy 2015, algorithm 1), with mean and variance over the batch's tokens in training
// and their running means (0.9 of the old, 0.1 of the new, the variance's unbiased) otherwise. A batch has to come
// whole: parts of it have statistics of their own.
class BatchNorm : public Norm {
 public:
  // all_places: padded places of an example count like its own, as torch's BatchNorm1d has it (Zerveas et al. 2021);
  // otherwise valid ones alone. Examples without any valid place never do.
  BatchNorm(int64_t dim, double epsilon, bool all_places);
  [[nodiscard]] kernels::ResidualNorm behind(const at::Tensor& x, const kernels::Branch& branch,
                                             const kernels::DropoutPlace& drop, const at::Tensor& valid) override;

 private:
  // The channels' [m] mean and variance over the places that count, which the running ones take up.
  [[nodiscard]] std::pair<at::Tensor, at::Tensor> batch_statistics(const at::Tensor& x, const at::Tensor& valid);

  const double epsilon_;
  const bool all_places_;
  at::Tensor weight_, bias_, running_mean_, running_variance_;
};

}  // namespace xformer::models
