// The loss of rows that have one class each, and how many of them the highest score finds. Rows without an example
// (row_valid 0) count in neither, whatever their scores are.
//   loss  = sum over rows of log sum_j exp x_j - (1 - s) x_label - s / c sum_j x_j      (s smooths labels: Szegedy et
//           al., "Rethinking the Inception Architecture for Computer Vision", 2016, section 7)
//   right = rows whose label is the class of the highest score, of equal ones the lowest class
#pragma once

#include <torch/types.h>

namespace xformer::kernels {

// x [b,c] float or double, labels [b] int64 in [0, c), row_valid [b] float.
struct ClassRows {
  at::Tensor scores, labels, row_valid;
};

// -> [], differentiable by the scores.
[[nodiscard]] at::Tensor cross_entropy(const ClassRows& rows, double smoothing);
// -> [], a count.
[[nodiscard]] at::Tensor rows_found(const ClassRows& rows);

// The same from plain tensor operations: the meaning, and what a CPU runs.
[[nodiscard]] at::Tensor cross_entropy_reference(const ClassRows& rows, double smoothing);
[[nodiscard]] at::Tensor rows_found_reference(const ClassRows& rows);

}  // namespace xformer::kernels
