// Settings that the tasks of the Long Range Arena share, in both lineages (lra-recipe 4).
#pragma once

#include "core/json.h"

namespace xformer::data {

// Of a task's training in one lineage.
struct LraTraining {
  int64_t batch = 32, steps = 5000, warmup = 1000, eval_every = 50;
  int64_t dev_batches = 0;  // of each dev evaluation when eval.parity is set
};

// Nystromformer, MRA, AdaMRA and MrsFormer: one small model for every task (mlpen/Nystromformer
// LRA/code/lra_config.py).
[[nodiscard]] Json mlpen_values(const LraTraining& training, int64_t vocabulary_rows);

// Sizes of the official models by task (google-research/long-range-arena lra_benchmarks/*/configs).
struct GlraModel {
  int64_t dim = 512, heads = 8, head_dim = 64, layers = 4, ff_dim = 1024;
  std::string positions = "sinusoidal", pooling = "cls_vector";
  double dropout = 0.1, attention_dropout = 0.1;
};
// The official JAX code, without its faults.
[[nodiscard]] Json glra_values(const LraTraining& training, const GlraModel& model, int64_t vocabulary_rows);

// mlpen with its corrections: the mean over valid tokens only, and what else the task adds to it.
[[nodiscard]] Json clean_values(const LraTraining& training, int64_t vocabulary_rows);

[[nodiscard]] Json with_values(Json values, const Json& more);

}  // namespace xformer::data
