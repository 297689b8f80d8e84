// A depthwise convolution along the sequence, one kernel for all columns of a head, added to what is there
// (Nystromformer's skip of the values): y[b,h,i] = base[b,h,i] + sum_t w[h,t] x[b,h,i + t - T/2] over valid tokens;
// rows of tokens that are not valid are zero.
#pragma once

#include <torch/types.h>

#include "tensor/sequence_mask.h"

namespace xformer::kernels {

// base and x [b,h,n,d], w [h,T] with T odd -> [b,h,n,d] over memory [b,n,h,d]. Outside the sequence x is zero, and
// where the mask says so.
[[nodiscard]] at::Tensor convolve_tokens(const at::Tensor& base, const at::Tensor& x, const at::Tensor& w,
                                         const SequenceMask& mask);
// By products of blocks of rows with a band of the kernel: LibTorch's own convolution ends the process for some strides
// on a CPU (pytorch issue 195394), and this one has the precision of all products here.
[[nodiscard]] at::Tensor convolve_tokens_reference(const at::Tensor& base, const at::Tensor& x, const at::Tensor& w,
                                                   const SequenceMask& mask);

}  // namespace xformer::kernels
