#include "tasks/task.h"

#include <ATen/Functions.h>

#define XFORMER_DESCRIBE_TYPE xformer::tasks::TaskKind
#include "tasks/kinds.inc"

namespace xformer::tasks {

at::Tensor Task::weight(const BatchView& batch) const { return batch.row_valid.sum(at::kDouble); }

void RowTask::check_columns(const at::Tensor& outputs) const {
  XF_ASSERT(outputs.dim() == 2 && outputs.size(1) == columns_, "{} outputs where the task needs {}", outputs.size(-1),
            columns_);
}

at::Tensor RowTask::loss(const at::Tensor& outputs, const BatchView& batch) const {
  check_columns(outputs);
  return valid_sum(row_losses(outputs, batch), batch);
}

at::Tensor valid_sum(const at::Tensor& by_row, const BatchView& batch) {
  // where, not a product: an empty row must not count even if it is not finite.
  return at::where(batch.row_valid > 0, by_row, at::zeros({}, by_row.options())).sum();
}

std::unique_ptr<Meter> share_meter(MetricSpec spec, Count right) {
  return mean_meter(std::move(spec), [right = std::move(right)](const at::Tensor& outputs, const BatchView& batch) {
    return valid_sum(right(outputs, batch), batch);
  });
}

const Registry<TaskKind>& all_kinds() {
  static const Registry<TaskKind> kKinds("kind of task", [] {
    std::vector<TaskKind> result;
    kinds::for_each_family([&](TaskKind kind) { result.push_back(std::move(kind)); });
    return result;
  }());
  return kKinds;
}

std::vector<MetricSpec> metric_specs(const Task& task) {
  std::vector<MetricSpec> specs;
  for (const auto& meter : task.meters()) specs.push_back(meter->spec());
  return specs;
}

std::unique_ptr<Task> make_task(const data::DataShape& shape, const LossOptions& options) {
  const TaskKind& kind = all_kinds().get(shape.target.kind);
  for (const std::string& field : kind.fields)
    XF_ASSERT(shape.target.has(field), "{} needs the field {}, which the data does not declare", kind.name, field);
  return kind.make(shape, options);
}

}  // namespace xformer::tasks
