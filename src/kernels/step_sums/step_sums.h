// What a training step adds to the sums of its run: a step that was skipped counts in none of them but its own.
#pragma once

#include <torch/types.h>

namespace xformer::kernels {

// meter [k+2] float64: k sums, then skipped steps, then those in a row; sums [k] float64 of the step; skipped []
// float64, 1 or 0. Sums of a skipped step may be anything.
void add_step_sums(const at::Tensor& meter, const at::Tensor& sums, const at::Tensor& skipped);

// The same from plain tensor operations: the meaning, and what a CPU runs.
void add_step_sums_reference(const at::Tensor& meter, const at::Tensor& sums, const at::Tensor& skipped);

}  // namespace xformer::kernels
