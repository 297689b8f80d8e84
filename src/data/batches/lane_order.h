// Lanes of one long stream, for models that remember: the examples of a split are its windows side by side, every row
// of a batch reads a part of its own of them, and the next batch goes on where the one before it ended.
#pragma once

#include <memory>

#include "data/batches/batch_order.h"

namespace xformer::data {

// Whether the split is read in lanes, as its target says: train with the parameter "lanes", dev and test under the
// scoring "memory".
[[nodiscard]] bool read_in_lanes(const DataShape& shape, Split split);

enum class LaneUse { kTraining, kEvaluation };

// In training a batch has as many rows as asked. Row r begins epoch e with part r + e, so that it goes on from epoch to
// epoch; behind the split's last window comes its first. Up to a batch less one of the windows miss an epoch, others in
// each. In an evaluation every window comes once: the last lanes may be shorter, and their rows empty in the end.
class LaneOrder : public BatchOrder {
 public:
  // UserError for a batch of more rows than there are windows to train on, and for options of batching that break up
  // lanes.
  LaneOrder(const DataSource& source, Split split, LaneUse use, const OrderOptions& options);
  [[nodiscard]] int64_t batches_per_epoch() const override { return lane_; }
  [[nodiscard]] const std::vector<int64_t>& bucket_lengths() const override { return lengths_; }
  void fill(int64_t epoch, int64_t index, BatchRows& into) const override;

 private:
  const bool training_;
  const int64_t windows_, rows_;
  int64_t lane_;  // windows of each
  std::vector<int64_t> lengths_;
};

// Lanes where training reads the data in them, else ExampleOrder.
[[nodiscard]] std::unique_ptr<BatchOrder> make_training_order(const DataSource& source, const OrderOptions& options);

}  // namespace xformer::data
