// The pass of cross_entropy.h on a device, but for the launch itself: cuda.cpp gives it, tests walk the program.
#pragma once

#include "kernels/cross_entropy/pass.h"
#include "kernels/cross_entropy/program.h"
#include "kernels/device/tensors.h"

namespace xformer::kernels {

// Whether the program takes these.
[[nodiscard]] inline bool fits_cross_entropy_program(const ClassRows& rows) {
  return rows.scores.scalar_type() == at::kFloat && rows.scores.numel() > 0 &&
         rows.scores.numel() <= kMostClassScores && rows.labels.scalar_type() == at::kLong &&
         rows.row_valid.scalar_type() == at::kFloat;
}

// Launch takes CrossEntropyArguments.
template <class Launch>
CrossEntropyForward cross_entropy_device(const ClassRows& rows, double smoothing, const Launch& launch) {
  TORCH_CHECK(fits_cross_entropy_program(rows) && rows.scores.dim() == 2 &&
                  rows.labels.sizes() == rows.scores.sizes().slice(0, 1) &&
                  rows.row_valid.sizes() == rows.labels.sizes(),
              "cross entropy on a device takes few scores [b,c], labels [b] and flags [b]");
  const at::Tensor scores = rows.scores.contiguous(), labels = rows.labels.contiguous(),
                   row_valid = rows.row_valid.contiguous();
  const CrossEntropyForward result{at::empty({}, scores.options()), at::empty({}, scores.options().dtype(at::kDouble)),
                                   at::empty_like(scores)};
  CrossEntropyArguments a;
  a.scores = read_floats(scores), a.row_valid = read_floats(row_valid);
  a.labels = labels.const_data_ptr<int64_t>();
  a.b = scores.size(0), a.c = scores.size(1), a.smoothing = static_cast<float>(smoothing);
  a.loss = written_floats(result.loss), a.gradient = written_floats(result.gradient);
  a.right = device_number(result.right, scores);
  launch(a);
  return result;
}

}  // namespace xformer::kernels
