// The feature maps of kernel attention, for host and device code. No LibTorch here.
#pragma once

namespace xformer::kernels {

enum class FeatureMap {
  kElu,      // elu(y) + 1 + floor
  kRelu,     // relu(y) + floor
  kSoftmax,  // exp(y - |x'|^2 / 2 - c) + floor, with c the largest y: of a row for queries, of all valid keys for keys
};           // (causal: of the valid keys up to the row)

}  // namespace xformer::kernels
