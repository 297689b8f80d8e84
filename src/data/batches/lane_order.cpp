#include "data/batches/lane_order.h"

#include <algorithm>

#include "core/error.h"

namespace xformer::data {

bool read_in_lanes(const DataShape& shape, Split split) {
  const Json& facts = shape.target.parameters;
  return split == Split::kTrain ? facts.value("lanes", false) : facts.value("scoring", "") == "memory";
}

LaneOrder::LaneOrder(const DataSource& source, Split split, LaneUse use, const OrderOptions& options)
    : training_(use == LaneUse::kTraining),
      windows_(source.size(split)),
      rows_(training_ ? options.batch : std::max<int64_t>(1, std::min(options.batch, windows_))),
      lane_(training_ ? windows_ / rows_ : (windows_ + rows_ - 1) / rows_),
      lengths_{options.padded_len} {
  const BatchingOptions& batching = options.batching;
  XF_CHECK(batching.cyclic_shift == 0, UserError,
           "data.cyclic_shift: lanes of a stream are read as they are; expected 0, got {}", batching.cyclic_shift);
  XF_CHECK(batching.repeats == 1, UserError,
           "data.repeats: lanes of a stream go on from batch to batch; expected 1, got {}", batching.repeats);
  XF_CHECK(options.buckets == 1, UserError, "training.buckets: windows of a stream have one length; expected 1, got {}",
           options.buckets);
  XF_CHECK(!training_ || windows_ >= rows_, UserError,
           "training.batch: every lane needs a window of its own, and {} has {} of them; expected at most as many, got "
           "{}",
           split_name(split), windows_, rows_);
}

void LaneOrder::fill(int64_t epoch, int64_t index, BatchRows& into) const {
  XF_ASSERT(epoch >= 0 && index >= 0 && index < lane_, "no batch {} in epoch {} of {} batches", index, epoch, lane_);
  into.padded_len = lengths_.front();
  into.width = rows_;
  into.rows.clear();
  into.begins.clear();
  into.shifts.clear();
  into.row_numbers.clear();
  into.batch_numbers.reset();
  for (int64_t row = 0; row < rows_; ++row) {
    const int64_t window = (row + (training_ ? epoch : 0)) * lane_ + index;
    if (training_) into.rows.push_back(window % windows_);
    else if (window < windows_) into.rows.push_back(window);
  }
}

std::unique_ptr<BatchOrder> make_training_order(const DataSource& source, const OrderOptions& options) {
  if (read_in_lanes(source.info().shape, Split::kTrain))
    return std::make_unique<LaneOrder>(source, Split::kTrain, LaneUse::kTraining, options);
  return std::make_unique<ExampleOrder>(source, Split::kTrain, options);
}

}  // namespace xformer::data
