// The passes of token_mean.h on a device, but for the launches themselves: cuda.cpp gives them, tests walk the
// programs.
#pragma once

#include "kernels/device/head_tensors.h"
#include "kernels/token_mean/pass.h"
#include "kernels/token_mean/program.h"

namespace xformer::kernels {

// Whether a device's programs take such rows.
[[nodiscard]] inline bool fits_token_mean_programs(const at::Tensor& x) {
  return x.scalar_type() == at::kFloat && numbered_by_ints({x});
}

// What both passes are told; options with readable flags.
[[nodiscard]] inline TokenMeanArguments token_mean_arguments(at::IntArrayRef sizes, const TokenMeanOptions& options) {
  TokenMeanArguments a;
  a.b = sizes[0], a.n = sizes[1], a.d = static_cast<int>(sizes[2]);
  a.pinned = options.pinned, a.padded = options.padded;
  a.valid = valid_flags(options.valid, a.b, a.n);
  return a;
}

// Launch takes TokenMeanArguments.
template <class Launch>
TokenMeans token_mean_forward_device(const at::Tensor& x_in, const TokenMeanOptions& options, const Launch& launch) {
  TORCH_CHECK(fits_token_mean_programs(x_in), "the mean over tokens on a device takes floats, at most ", kMostNumbered,
              " tokens");
  const at::Tensor x = x_in.contiguous();
  const TokenMeanOptions readable{readable_flags(options.valid), options.pinned, options.padded};
  TokenMeanArguments a = token_mean_arguments(x.sizes(), readable);
  TokenMeans result{at::empty({a.b, a.d}, x.options()), at::empty({a.b}, x.options())};
  a.x = read_floats(x), a.wide = a.d % kRun == 0 && reads_wide({x});
  a.mean = written_floats(result.mean), a.share = written_floats(result.share);
  if (a.b * a.d > 0) launch(a);
  return result;
}

// The same.
template <class Launch>
at::Tensor token_mean_backward_device(const at::Tensor& gradient_in, const at::Tensor& share, int64_t n,
                                      const TokenMeanOptions& options, const Launch& launch) {
  const at::Tensor gradient = gradient_in.contiguous();
  const TokenMeanOptions readable{readable_flags(options.valid), options.pinned, options.padded};
  at::Tensor result = at::empty({gradient.size(0), n, gradient.size(1)}, gradient.options());
  TokenMeanArguments a = token_mean_arguments(result.sizes(), readable);
  a.wide = a.d % kRun == 0 && reads_wide({gradient, result});
  a.gradient = read_floats(gradient), a.share = share.mutable_data_ptr<float>(), a.dx = written_floats(result);
  if (result.numel() > 0) launch(a);
  return result;
}

}  // namespace xformer::kernels
