// Settings that the tasks of the Long Range Arena share, in every lineage (lra-recipe 4, tasks-more 14).
#pragma once

#include "core/json.h"
#include "data/source.h"

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

// Combiner (Ren et al. 2021) took the official settings over: a name of its own, for its table's numbers are not LRA's.
[[nodiscard]] Protocol combiner_protocol(Json glra);

// mlpen with its corrections: the mean over valid tokens only, and what else the task adds to it.
[[nodiscard]] Json clean_values(const LraTraining& training, int64_t vocabulary_rows);

// Paramixer's baselines: an encoder of width 32 with one head and a linear map of all positions, Adam at a constant
// rate (Yu et al. 2022, supplement, Table 1; dropout and epochs of wiedersehne/Paramixer).
struct ParamixerTraining {
  int64_t epochs = 150, batch = 40;
  double learning_rate = 1e-3, dropout = 0;
};
[[nodiscard]] Json paramixer_values(const ParamixerTraining& training);

[[nodiscard]] Json with_values(Json values, const Json& more);

}  // namespace xformer::data
