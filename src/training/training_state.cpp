#include "training/training_state.h"

#include "core/error.h"

namespace xformer::training {

namespace {

constexpr int64_t kCheckpointFormat = 1;

}  // namespace

template <class Fields>
void visit(TrainingState& it, const Fields& fields) {
  fields("format", it.format, "step", it.step, "evaluated_step", it.evaluated_step, "train", it.train, "dev_points",
         it.dev, "best", it.best, "skipped_steps", it.skipped_steps, "resumed_at", it.resumed_at, "kernels", it.kernels,
         "deterministic", it.deterministic, "train_seconds", it.train_seconds, "evaluation_seconds",
         it.evaluation_seconds, "data_sha256", it.data_sha256, "log_bytes", it.log_bytes, "init_from", it.init_from);
}

Json to_json(TrainingState state) {
  state.format = kCheckpointFormat;
  return written(state);
}

TrainingState parse_training_state(const Json& json, const std::string& origin) {
  TrainingState state;
  XF_CHECK(take(json, state) && json.contains("step"), DataError, "{}: the state in its header is damaged", origin);
  XF_CHECK(state.format == kCheckpointFormat, DataError, "{}: written in checkpoint format {}, this program reads {}",
           origin, state.format, kCheckpointFormat);
  return state;
}

}  // namespace xformer::training
