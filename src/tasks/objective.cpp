#include "tasks/objective.h"

#include <ATen/Functions.h>

#include <cmath>

#include "core/error.h"

namespace xformer::tasks {

namespace {

struct Judged {
  at::Tensor loss, right;  // by row
};

// By row, against the labels with their shares.
at::Tensor cross_entropies(const at::Tensor& outputs, const BatchView& batch, double smoothing) {
  const auto against = [&](const at::Tensor& labels) {
    return at::cross_entropy_loss(outputs, labels, {}, at::Reduction::None, -100, smoothing);
  };
  if (!batch.has("share")) return against(batch.field("label"));
  const at::Tensor& share = batch.field("share");
  return share * against(batch.field("label")) + (1 - share) * against(batch.field("second_label"));
}

Judged judge_rows(const at::Tensor& outputs, const BatchView& batch, const data::DataShape& shape, double smoothing) {
  const at::Tensor given = outputs.detach();
  if (shape.target.kind == "classification")
    return {cross_entropies(outputs, batch, smoothing), given.argmax(-1).eq(batch.field("label"))};
  const at::Tensor number = outputs.squeeze(-1);
  if (shape.target.kind == "binary") {
    const at::Tensor label = batch.field("label").to(outputs.scalar_type());
    return {at::binary_cross_entropy_with_logits(number, label, {}, {}, at::Reduction::None),
            given.squeeze(-1).gt(0).eq(batch.field("label"))};
  }
  const at::Tensor target = batch.field("target").to(outputs.scalar_type());
  return {(number - target).square(),
          (given.squeeze(-1) - target).abs().lt(shape.target.parameters["tolerance"].get<double>())};
}

}  // namespace

int64_t output_columns(const data::DataShape& shape) {
  return shape.target.kind == "classification" ? shape.target.classes() : 1;
}

Sums judge(const at::Tensor& outputs, const BatchView& batch, const data::DataShape& shape, double smoothing) {
  XF_ASSERT(outputs.dim() == 2 && outputs.size(1) == output_columns(shape), "{} outputs where the task needs {}",
            outputs.size(1), output_columns(shape));
  const Judged rows = judge_rows(outputs, batch, shape, smoothing);
  // where, not a product: an empty row's loss must not count even if it is not finite.
  const at::Tensor valid = batch.row_valid > 0;
  const at::Tensor loss = at::where(valid, rows.loss, at::zeros({}, rows.loss.options())).sum();
  at::Tensor top5;
  if (shape.target.parameters.contains("top5")) {
    const at::Tensor own = outputs.detach().gather(1, batch.field("label").unsqueeze(1));
    top5 = outputs.detach().gt(own).sum(1).lt(5).logical_and(valid).sum();
  }
  return {loss, rows.right.logical_and(valid).sum(), top5};
}

Metric metric_of(const data::DataShape& shape, double loss, double right) {
  if (shape.target.has("target") && shape.target.parameters["tolerance"] == 0)
    return {rmse_metric(), std::sqrt(loss) * shape.target.parameters["scale"].get<double>()};
  return {accuracy_metric(), right};
}

}  // namespace xformer::tasks
