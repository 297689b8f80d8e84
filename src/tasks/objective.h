// What a task asks of a model's outputs: their loss, and what counts as right.
#pragma once

#include "core/metric.h"
#include "tasks/batch.h"

namespace xformer::tasks {

// Columns of the outputs that a target needs: a score for each class, one logit, or one number.
[[nodiscard]] int64_t output_columns(const data::DataShape& shape);

// Sums over the valid rows; scalars on the device.
struct Sums {
  at::Tensor loss;  // differentiable; kClass: cross entropies, kBinary: the same of one logit, kNumber: squared errors
  at::Tensor correct;  // rows that are right
  at::Tensor top5;     // where the shape asks for it: rows whose label has one of the five highest scores
};

// outputs [b, output_columns]. Right is: the highest score is the label's (ties: the lowest class); the logit is above
// zero where the label is 1; the number is nearer to the target than the shape's tolerance. Cross entropies of classes
// are against (1 - smoothing) of the labels, each with its share, and smoothing / classes of every class (Szegedy et
// al. 2016, section 7).
[[nodiscard]] Sums judge(const at::Tensor& outputs, const BatchView& batch, const data::DataShape& shape,
                         double smoothing = 0);

// From means over examples of the loss and of what is right. RMSE of numbers whose shape has no tolerance, else
// accuracy.
[[nodiscard]] Metric metric_of(const data::DataShape& shape, double loss, double right);

}  // namespace xformer::tasks
