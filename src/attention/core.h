// The three roles an attention can have, and what they are built from.
//
//   AttentionCore   q, k, v -> o, between projections it does not own (most papers)
//   SequenceMixer   x -> x, owns its projections or routing
//   LayerBlock      x -> x, owns norms, residuals and feed-forward too
//
// Axis letters: b batch, h heads, n length, d head width, m model width.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "kernels/branch/branch.h"
#include "kernels/dropout/dropout.h"
#include "tensor/init.h"
#include "tensor/sequence_mask.h"

namespace xformer::attention {

// Forward pass, matrix products and convolutions only, 1 multiply-add = 2 FLOPs.
struct Cost {
  double flops_executed = 0;  // what the code does
  double flops_pattern = 0;   // the least the attention pattern asks for
  double peak_elements = 0;   // dominant term saved for the backward pass (by the CPU's kernels, where there are some)

  Cost& operator+=(const Cost& other);
};

struct Shape {
  int64_t batch = 1, heads = 1, query_len = 0, key_len = 0, head_dim = 0;
};

// Tensors that travel from layer to layer within a forward pass. Keys are the mixer's own ("luna/packed").
using Carry = std::map<std::string, at::Tensor>;
// Tensors [batch, ..] that last from one batch to the next (a memory of earlier segments). Layers find them in their
// Carry under the names that they gave them in init_state ("layer3/memory"), and leave the next values there.
using State = Carry;

// Parameters and buffers that several layers or scales use together (Linformer's E, Performer's features).
// Owned by the model, which saves each once.
class SharedObjects : public torch::nn::Module {
 public:
  at::Tensor parameter(const std::string& key, const std::function<at::Tensor()>& make);
  at::Tensor buffer(const std::string& key, const std::function<at::Tensor()>& make);
};

// What a variant may know when it is built.
struct BuildContext {
  int64_t model_dim = 64;
  int64_t heads = 2;
  int64_t head_dim = 32;
  int64_t max_len = 0;  // longest sequence the model takes, in tokens of this core (pooled ones under mrs-)
  int64_t grid = 0;     // places in a row of the image that the tokens are, row by row; 0: they are none
  int64_t layer = 0;
  int64_t pinned_tokens = 0;  // leading tokens that are no part of the sequence (CLS, prefix)
  bool causal = false;
  double dropout = 0;                 // of attention weights
  bool bias = true;                   // of the projections
  std::string init_scheme = "mlpen";  // of linear maps (multi_head.h): mlpen, glra, mvts, ft or vit
  std::shared_ptr<kernels::DropoutStream> dropout_stream;
  std::shared_ptr<SharedObjects> shared;
  std::string scope;  // of shared keys: "" or "scale2/" under mrs-, so that scales do not collide
  InitStream init{0};

  // A shared parameter or buffer under this context's scope.
  [[nodiscard]] at::Tensor shared_parameter(const std::string& key, const std::function<at::Tensor()>& make) const;
  [[nodiscard]] at::Tensor shared_buffer(const std::string& key, const std::function<at::Tensor()>& make) const;
  [[nodiscard]] kernels::Dropout make_dropout() const { return {dropout, dropout_stream}; }
};

// What a parameter or buffer is, for those who bring their own values. The name is that under which it is registered,
// without scopes ("linformer_e", not "shared.scale2_linformer_e").
struct TensorMeaning {
  std::string name, meaning;
  // What is wrong with given values, "" for nothing; for those of which not all are possible.
  std::function<std::string(const at::Tensor& values)> fault = {};
};

// What a module inside a model may ask for beside its forward pass. It is found wherever it stands, so whoever holds it
// hands nothing on.
class Hooks {
 public:
  virtual ~Hooks() = default;
  // Which implementation runs ("explicit", or the fused operator's backend), for records; "": those inside say it.
  [[nodiscard]] virtual std::string backend() const { return ""; }
  // A loss the attention asks for (span penalties); undefined for none. Read after forward.
  virtual at::Tensor extra_loss() { return {}; }
  // Called once after every optimiser step (clamps, centroids, redraws); `step` counts from 1.
  virtual void after_step(int64_t step) { (void)step; }
  // Adds what it remembers, as it is before the first batch.
  virtual void init_state(int64_t batch, State& state) const { (void)batch, (void)state; }
};

// Of a module and all inside it: different backends, joined; the sum of losses, undefined without any.
[[nodiscard]] std::string backends(const torch::nn::Module& root);
[[nodiscard]] at::Tensor extra_loss(const torch::nn::Module& root);
void after_step(const torch::nn::Module& root, int64_t step);
[[nodiscard]] State init_state(const torch::nn::Module& root, int64_t batch);

class AttentionCore : public torch::nn::Module, public Hooks {
 public:
  // q [b,h,n,d], k and v [b,h,n,d] -> [b,h,n,d]. Rows of padded queries may hold anything; the mixer zeroes them.
  virtual at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                             Carry& carry) = 0;
  [[nodiscard]] virtual Cost cost(const Shape& shape) const = 0;
  [[nodiscard]] std::string backend() const override { return "explicit"; }
  // Whether rows of padded queries come out of forward as zero, so that the mixer need not see to it.
  [[nodiscard]] virtual bool zeroes_padding() const { return false; }
  // Whether forward also takes q, k and v in bf16, with autocast off: it hands them to operators of kernels/ alone,
  // which do in float what is no product (attention-core 0.7), or brings them to float itself for anything else.
  [[nodiscard]] virtual bool takes_bf16() const { return false; }
  // The same of bf16 and fp16 on other devices than the CPU, of heads like these queries. Several operators on the same
  // keys that run without kernels are better given floats, in which the keys' gradients are added then.
  [[nodiscard]] virtual bool takes_half_on_devices(const at::Tensor& /*q*/) const { return false; }
};

class SequenceMixer : public torch::nn::Module, public Hooks {
 public:
  // x [b,n,m] -> [b,n,m].
  virtual at::Tensor forward(const at::Tensor& x, const SequenceMask& mask, Carry& carry) = 0;
  // The same as a branch whose last map may be yet to be made, for whoever adds it to something; with takes_norm() also
  // of rows whose norm is, as kernels::linear() takes them.
  virtual kernels::Branch branch(kernels::NormedRows& x, const SequenceMask& mask, Carry& carry) {
    return {forward(x.rows, mask, carry)};
  }
  [[nodiscard]] virtual bool takes_norm() const { return false; }
  [[nodiscard]] virtual Cost cost(int64_t batch, int64_t length) const = 0;
  [[nodiscard]] std::string backend() const override { return "explicit"; }
};

// As SequenceMixer, but replaces the whole layer.
class LayerBlock : public SequenceMixer {};

}  // namespace xformer::attention
