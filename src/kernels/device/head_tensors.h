// What device programs are told of heads of attention.
#pragma once

#include "kernels/device/heads.h"
#include "kernels/device/tensors.h"

namespace xformer::kernels {

// With the last axis in one piece.
[[nodiscard]] inline at::Tensor readable_heads(const at::Tensor& x) { return x.stride(3) == 1 ? x : x.contiguous(); }

[[nodiscard]] inline HeadPlaces head_places(const at::Tensor& x) {
  HeadPlaces places{{x.stride(2), false}, x.stride(0), x.stride(1)};
  const int64_t sixteen = 16 / x.element_size();  // bytes
  places.wide = x.size(3) % kRun == 0 && reads_wide({x}) && places.sample % sixteen == 0 &&
                places.head % sixteen == 0 && places.row % sixteen == 0;
  return places;
}

// [b,h,rows,width] whose memory is [b,rows,h,width].
[[nodiscard]] inline at::Tensor rows_of_heads(const at::Tensor& like, int64_t rows, int64_t width) {
  return at::empty({like.size(0), rows, like.size(1), width}, like.options()).transpose(1, 2);
}

// Flags in one piece, as programs read them; undefined ones stay so. Must outlive the launch.
[[nodiscard]] inline at::Tensor readable_flags(const at::Tensor& valid) {
  return valid.defined() ? valid.contiguous() : valid;
}

// Flags [b, rows] of the rows that count; null where all do.
[[nodiscard]] inline const bool* valid_flags(const at::Tensor& valid, int64_t b, int64_t rows) {
  if (!valid.defined()) return nullptr;
  TORCH_CHECK(valid.is_contiguous() && valid.numel() == b * rows && valid.scalar_type() == at::kBool,
              "flags of valid places are [b, places] bool without gaps");
  return static_cast<const bool*>(valid.const_data_ptr());
}

}  // namespace xformer::kernels
