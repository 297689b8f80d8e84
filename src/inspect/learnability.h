// Whether a set of images can be learnt at all: a small network of convolutions on part of it (lra-recipe 10.7: one of
// the two copies of Path-X that are handed round cannot).
#pragma once

#include <functional>

#include "data/datasets.h"

namespace xformer::inspect {

struct LearnabilityOptions {
  int64_t images = 20'000;  // of train, the first so many
  int64_t epochs = 5;
  int64_t batch = 64;
  uint64_t seed = 0;
  std::function<void(int64_t step, int64_t steps)> progress = [](int64_t, int64_t) {};
  std::function<bool()> stop_requested = [] { return false; };
};

struct Learnability {
  double dev_accuracy = 0;
  int64_t dev_examples = 0, images = 0, epochs = 0;
};

// UserError for a task whose examples are no square grey images, DataError where train or dev is missing, Interrupted
// when a stop was requested. Trains the family cnn with AdamW at 1e-3, falling to 0 along a cosine, on the CPU.
[[nodiscard]] Learnability learnability(const data::DatasetDescriptor& dataset, const data::DataSource& source,
                                        const LearnabilityOptions& options);

}  // namespace xformer::inspect
