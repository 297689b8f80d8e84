#include "training/training_state.h"

#include "core/error.h"

namespace xformer::training {

namespace {

constexpr int64_t kCheckpointFormat = 1;

}  // namespace

Json to_json(const TrainingState& state) {
  Json points = Json::array();
  for (const EvaluationPoint& point : state.dev) points.push_back(to_json(point));
  return {{"format", kCheckpointFormat},
          {"step", state.step},
          {"evaluated_step", state.evaluated_step},
          {"dev_points", points},
          {"best", state.best ? to_json(*state.best) : Json()},
          {"skipped_steps", state.skipped_steps},
          {"resumed_at", state.resumed_at},
          {"train_seconds", state.train_seconds},
          {"evaluation_seconds", state.evaluation_seconds},
          {"data_sha256", state.data_sha256},
          {"log_bytes", state.log_bytes},
          {"init_from", state.init_from}};
}

TrainingState parse_training_state(const Json& json, const std::string& origin) {
  XF_CHECK(json.is_object() && json.contains("step"), DataError, "{}: the state in its header is damaged", origin);
  const int64_t format = json.value("format", int64_t{0});
  XF_CHECK(format == kCheckpointFormat, DataError, "{}: written in checkpoint format {}, this program reads {}", origin,
           format, kCheckpointFormat);
  TrainingState state;
  state.step = json["step"];
  state.evaluated_step = json.value("evaluated_step", state.evaluated_step);
  for (const Json& point : json.value("dev_points", Json::array())) state.dev.push_back(parse_evaluation_point(point));
  if (const Json best = json.value("best", Json()); best.is_object()) state.best = parse_evaluation_point(best);
  state.skipped_steps = json.value("skipped_steps", int64_t{0});
  state.resumed_at = json.value("resumed_at", state.resumed_at);
  state.train_seconds = json.value("train_seconds", 0.0);
  state.evaluation_seconds = json.value("evaluation_seconds", 0.0);
  state.data_sha256 = json.value("data_sha256", "");
  state.log_bytes = json.value("log_bytes", uint64_t{0});
  state.init_from = json.value("init_from", Json());
  return state;
}

}  // namespace xformer::training
