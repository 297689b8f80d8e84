// What tests of whole runs share: a plan small enough for a run in no time, and a folder to run it in.
#pragma once

#include <catch2/catch.hpp>

#include "scratch.h"
#include "training/trainer.h"

namespace xformer::training {

inline Json settings(const Json& more) {
  Json values{{"data.min_length", 5},     {"data.max_length", 30},    {"data.train_examples", 44},
              {"data.dev_examples", 12},  {"data.test_examples", 13}, {"model.dim", 16},
              {"model.head_dim", 8},      {"model.ff_dim", 16},       {"model.classifier_dim", 16},
              {"training.batch", 8},      {"training.steps", 12},     {"training.warmup", 2},
              {"training.eval_every", 4}, {"training.log_every", 3}};
  if (more.contains("training.epochs")) values.erase("training.steps");
  values.update(more);
  return values;
}

inline RunPlan plan_with(const Json& more = Json::object(), const std::string& model = "linear") {
  plan::PlanRequest request;
  request.task = "listops";
  request.model = model;
  request.layers.push_back({"test", settings(more)});
  return plan::resolve_plan(request);
}

// Keeps what it is told.
struct Listener : Observer {
  std::string heard;
  void on_message(const std::string& line) override { heard += line + "\n"; }
};

struct Setting {
  scratch::Folder scratch;
  Observer silent;
  RunOptions options(const std::string& name) {
    RunOptions result;
    result.out = scratch.path() / name;
    result.data.cache = scratch / "cache";
    return result;
  }
  Json run(const RunPlan& plan, const RunOptions& options) { return to_json(train(plan, options, silent)); }
  std::string content_hash(const std::string& name) {
    return read_tensor_file(scratch.path() / name / "model.safetensors").metadata.at("content_sha256");
  }
};

}  // namespace xformer::training
