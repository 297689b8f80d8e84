// The passes of token_convolution.h on a device, but for the launches themselves: cuda.cpp gives them, tests walk the
// programs. The signatures are those of the operator's kernels for the CPU.
#pragma once

#include "kernels/device/head_tensors.h"
#include "kernels/token_convolution/program.h"

namespace xformer::kernels {

struct ConvolutionGradients {
  at::Tensor base, x, w;
};

// Whether a device's programs take such tokens and kernels.
[[nodiscard]] inline bool fits_convolution_programs(const at::Tensor& x, const at::Tensor& w) {
  return x.scalar_type() == at::kFloat && w.scalar_type() == at::kFloat && x.numel() > 0 && w.size(1) <= kMostTaps &&
         numbered_by_ints({x});
}

// Operands as programs read them, which must outlive the launches, and what these are told.
struct ConvolutionOperands {
  at::Tensor x, w, valid;
  ConvolutionArguments a;

  ConvolutionOperands(const at::Tensor& x_in, const at::Tensor& w_in, const at::Tensor& key_valid)
      : x(readable_heads(x_in)), w(w_in.contiguous()), valid(readable_flags(key_valid)) {
    TORCH_CHECK(fits_convolution_programs(x, w), "convolve_tokens on a device takes floats and at most ", kMostTaps,
                " taps");
    a.x = read_floats(x), a.x_places = head_places(x);
    a.w = read_floats(w);
    a.b = x.size(0), a.h = x.size(1), a.n = x.size(2);
    a.d = static_cast<int>(x.size(3)), a.taps = static_cast<int>(w.size(1));
    a.valid = valid_flags(valid, a.b, a.n);
  }
  // A result of the tokens' shape.
  [[nodiscard]] at::Tensor like_x() const { return rows_of_heads(x, a.n, a.d); }
};

// Launch takes ConvolutionArguments.
template <class Launch>
at::Tensor convolve_forward_device(const at::Tensor& base_in, const at::Tensor& x, const at::Tensor& w,
                                   const at::Tensor& key_valid, const Launch& launch) {
  ConvolutionOperands operands(x, w, key_valid);
  const at::Tensor base = readable_heads(base_in);
  at::Tensor result = operands.like_x();
  ConvolutionArguments& a = operands.a;
  a.base = read_floats(base), a.base_places = head_places(base);
  a.result = written_floats(result), a.result_places = head_places(result);
  launch(a);
  return result;
}

// The same, twice: for the gradients of base and x, and for that of w.
template <class Launch>
ConvolutionGradients convolve_backward_device(const at::Tensor& gradient_in, const at::Tensor& x, const at::Tensor& w,
                                              const at::Tensor& key_valid, const Launch& launch) {
  const at::Tensor gradient = readable_heads(gradient_in);
  ConvolutionOperands of_x(gradient, w, key_valid), of_w(x, w, key_valid);
  // Without a mask the gradient of base is the one that came.
  ConvolutionGradients result{key_valid.defined() ? of_x.like_x() : gradient_in, of_x.like_x(), {}};
  of_x.a.turned = true;
  of_x.a.result = written_floats(result.x), of_x.a.result_places = head_places(result.x);
  if (key_valid.defined()) of_x.a.kept = written_floats(result.base);
  launch(of_x.a);
  ConvolutionArguments& a = of_w.a;
  const int64_t parts = kernel_division(a.b * a.h, a.n).parts;
  const at::Tensor shares = at::empty({a.b * parts, a.h, a.taps}, x.options());
  a.gradient = of_x.a.x, a.gradient_places = of_x.a.x_places;
  a.shares = written_floats(shares);
  launch(a);
  result.w = shares.sum(0);
  return result;
}

}  // namespace xformer::kernels
