// The core of attentions whose rows each read a short list of keys, a function of the row and the length alone
// (kernels/listed_attention).
#pragma once

#include <functional>
#include <vector>

#include "attention/core.h"
#include "attention/shared/index_tables.h"

namespace xformer::attention {

class ListedCore : public AttentionCore {
 public:
  // The keys of row i of n, each once and in the row's order.
  using Keys = std::function<std::vector<int64_t>(int64_t row, int64_t length, bool causal)>;

  ListedCore(const BuildContext& context, Keys keys)
      : causal_(context.causal), keys_(std::move(keys)), dropout_(context.make_dropout()) {}

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry& carry) override;
  [[nodiscard]] Cost cost(const Shape& shape) const override;
  [[nodiscard]] bool zeroes_padding() const override { return true; }
  [[nodiscard]] bool takes_bf16() const override { return true; }
  [[nodiscard]] bool takes_half_on_devices(const at::Tensor& /*q*/) const override { return true; }

 private:
  // int64 [1,1,n,L], -1 behind shorter lists.
  [[nodiscard]] at::Tensor places(int64_t length, const at::Device& device) const;

  bool causal_;
  Keys keys_;
  kernels::Dropout dropout_;
  TablesByLength<at::Tensor> places_;
};

// i and the distances of `apart` (rising, from 0) on its far side, if not causal on both, as far as there are tokens.
[[nodiscard]] std::vector<int64_t> keys_apart(const std::vector<int64_t>& apart, int64_t row, int64_t length,
                                              bool causal);

}  // namespace xformer::attention
