// [b,h,n,d] tensors as CPU kernels walk them: rows of d neighbours, everything else by strides.
#pragma once

#include <ATen/Functions.h>
#include <torch/types.h>

namespace xformer::kernels {

template <class Value>
struct Heads {
  Value* data;
  int64_t batch_stride, head_stride, stride;

  [[nodiscard]] Value* at(int64_t b, int64_t h, int64_t row = 0) const {
    return data + b * batch_stride + h * head_stride + row * stride;
  }
};

template <class Value>
[[nodiscard]] Heads<const Value> reading(const at::Tensor& x) {
  return {x.const_data_ptr<Value>(), x.stride(0), x.stride(1), x.stride(2)};
}

template <class Value>
[[nodiscard]] Heads<Value> writing(const at::Tensor& x) {
  return {x.mutable_data_ptr<Value>(), x.stride(0), x.stride(1), x.stride(2)};
}

// Rows that BLAS can read: neighbours in memory, no row upon another. A copy where they are not.
[[nodiscard]] inline at::Tensor with_rows(const at::Tensor& x) {
  const bool fits = (x.size(3) == 1 || x.stride(3) == 1) && (x.size(2) == 1 || x.stride(2) >= x.size(3));
  return fits ? x : x.contiguous();
}

// An empty [b,h,n,d] over memory [b,n,h,d], as an output projection wants it.
[[nodiscard]] inline at::Tensor new_heads(const at::Tensor& like, int64_t length, int64_t width) {
  return at::empty({like.size(0), length, like.size(1), width}, like.options()).transpose(1, 2);
}

}  // namespace xformer::kernels
