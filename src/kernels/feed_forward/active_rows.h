// What lies between the two products of a feed-forward part in bf16, in one pass over rows that are in the cache, by
// AVX-512, where pairs_possible(). Rounded numbers below 2^-126 are 0.
#pragma once

#include "kernels/cpu/gemm.h"

namespace xformer::kernels::by_512 {

// Rows [rows, f] without gaps: `sums` are the first product, in float.
struct ActiveRows {
  int64_t rows, f;
  bool tanh;
  const uint16_t* draws;  // 16 bits an element, or nullptr without dropout
  uint32_t threshold;
  float keep;
};

// z = sums + bias, active = drop(gelu(z)), both rounded.
void active_rows(const ActiveRows& run, const float* sums, const float* bias, c10::BFloat16* z, c10::BFloat16* active);

// From z and `slopes`, the gradient of `active` [rows, f] in float: active and the gradient of z as second factors,
// that gradient as a first one too, in `rows`, and its sums over rows, which bias_gradient [f] gains.
void active_gradient_rows(const ActiveRows& run, const c10::BFloat16* z, const float* slopes, PairedFactor& active,
                          PairedFactor& gradient, c10::BFloat16* rows, float* bias_gradient);

}  // namespace xformer::kernels::by_512
