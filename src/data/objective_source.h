// A task's own inputs as what is to be predicted, without its answers: self-pretraining (Amos, Berant and Gupta, "Never
// Train from Scratch: Fair Comparison of Long-Sequence Models Requires Data-Driven Priors", ICLR 2024).
//
//   masked  a share of an example's ids is hidden, each behind one and the same id; those are to be found, from all
//           others
//   causal  at every place the next id is to be told, from those up to it
//
// The examples are of the task's train split alone. Of every 40 the last two are held out: one is dev's, one test's.
// The task's own dev and test, which are each other in some protocols, are not read.
#pragma once

#include <memory>

#include "data/batches/batch_order.h"

namespace xformer::data {

// What examples of a task are under the objective that its options name; itself under "task". UserError for a task that
// has no single sequence of ids, or that asks at every place itself.
[[nodiscard]] DataShape objective_shape(const DataShape& task, const BatchingOptions& options);

// In training other places are hidden at every look, as the batch's numbers decide; in evaluations always the same.
// DataError for fewer than three training examples.
[[nodiscard]] std::unique_ptr<DataSource> under_objective(std::unique_ptr<DataSource> task,
                                                          const BatchingOptions& options);

}  // namespace xformer::data
