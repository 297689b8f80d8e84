// Multi-head attention around any core: q, k, v and output projections (Vaswani et al. 2017, section 3.2.2).
#pragma once

#include "attention/decoding.h"
#include "kernels/linear/linear.h"

namespace xformer::attention {

// A linear map initialised by attention-core 0.9: "mlpen" (and "mvts") LibTorch's default U(+-1/sqrt(fan_in)) for
// weight and bias, "ft" the same with zero bias, "glra" Xavier uniform weight and zero bias, "vit" N(0, 0.02)
// (timm, whose cut at 2 is a hundred deviations off) and zero bias.
class Linear : public torch::nn::Module {
 public:
  Linear(int64_t in, int64_t out, bool bias, const std::string& scheme, const InitStream& init);
  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const { return kernels::linear(x, map()); }
  [[nodiscard]] kernels::LinearMap map() const { return {weight, bias}; }
  at::Tensor weight;  // [out, in]
  at::Tensor bias;    // [out] or undefined
};

// Meanings of the tensors that the mixer puts around a core.
[[nodiscard]] const std::vector<TensorMeaning>& projection_meanings();

enum class Values { kProjected, kKeys };  // kKeys: the values are the keys, and there is no map of them

class MultiHeadMixer : public SequenceMixer, public DecodingMixer {
 public:
  MultiHeadMixer(const BuildContext& context, std::shared_ptr<AttentionCore> core, Values values = Values::kProjected);
  at::Tensor forward(const at::Tensor& x, const SequenceMask& mask, Carry& carry) override {
    kernels::NormedRows rows{x, x};
    return branch(rows, mask, carry).made();
  }
  kernels::Branch branch(kernels::NormedRows& x, const SequenceMask& mask, Carry& carry) override;
  [[nodiscard]] bool takes_norm() const override { return true; }
  at::Tensor decode(const at::Tensor& x, const DecodingStep& step, Carry& carry, State& kept) override;
  [[nodiscard]] Cost cost(int64_t batch, int64_t length) const override { return cross_cost(batch, length, length); }
  // Queries of x [b,n,m], keys and values of `other` [b,k,m], each with its own mask; every query sees all of `other`.
  // Only of what build_cross made.
  kernels::Branch cross(const at::Tensor& x, const SequenceMask& mask, const at::Tensor& other,
                        const SequenceMask& other_mask, Carry& carry);
  // The same with keys and values that cross_rows made of `other`, once for any number of queries.
  kernels::Branch cross(const at::Tensor& x, const SequenceMask& mask, const std::vector<at::Tensor>& rows,
                        const SequenceMask& other_mask, Carry& carry);
  [[nodiscard]] std::vector<at::Tensor> cross_rows(const at::Tensor& other) const;  // keys, values [b,k,h d]
  [[nodiscard]] Cost cross_cost(int64_t batch, int64_t length, int64_t other_length) const;
  [[nodiscard]] std::string backend() const override { return ""; }
  [[nodiscard]] AttentionCore& core() { return *core_; }

 private:
  // Of x [b,n,m]: rows of queries, keys and values [b,n,h d]; of needed ones (kernels::linear).
  [[nodiscard]] std::vector<at::Tensor> project(kernels::NormedRows& x, const at::Tensor& needed) const;
  // [b,h,n,d] of queries, keys and values -> [b,h,n,d], rows of padded queries zero.
  using Core = std::function<at::Tensor(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v)>;
  // The core behind the projected rows; the output map is yet to be made.
  kernels::Branch mix(const std::vector<at::Tensor>& projected, const Core& core, const at::Tensor& needed);

  int64_t model_dim_, heads_, head_dim_;
  std::shared_ptr<AttentionCore> core_;
  std::shared_ptr<Linear> query_, key_, value_, out_;  // value_ undefined where the values are the keys
};

// Multi-head attention to another sequence, whose longest length is the context's max_len; what it shares with other
// layers has the scope "cross/". UserError for a name whose core needs both to be one sequence.
[[nodiscard]] std::shared_ptr<MultiHeadMixer> build_cross(const Resolved& attention, const Json& options,
                                                          const BuildContext& context);

}  // namespace xformer::attention
