// What a run knows of itself besides its tensors. A checkpoint holds it, so that a run goes on as if it had never
// stopped.
#pragma once

#include "core/run_record.h"

namespace xformer::training {

struct TrainingState {
  int64_t format = 0;           // of the checkpoint that it was read from
  int64_t step = 0;             // steps done
  int64_t evaluated_step = -1;  // of the last dev evaluation
  std::optional<RunRecord::Train> train;
  std::vector<EvaluationPoint> dev;
  std::optional<EvaluationPoint> best;  // of dev
  int64_t skipped_steps = 0;
  std::vector<int64_t> resumed_at;
  std::vector<std::string> kernels;                  // --kernels of all processes, where it changed
  std::optional<bool> deterministic;                 // of all of them
  double train_seconds = 0, evaluation_seconds = 0;  // over all processes
  std::string data_sha256;
  uint64_t log_bytes = 0;  // of the metric log
  Json init_from;          // of weights that training began with (weights.h)
};

// The form in a checkpoint's header. DataError, naming `origin`, for a state that is
// damaged or of a format that this program does not read.
[[nodiscard]] Json to_json(TrainingState state);
[[nodiscard]] TrainingState parse_training_state(const Json& json, const std::string& origin);

}  // namespace xformer::training
