// Which examples make up batch number i: pure functions of (seed, epoch, index), so that a resumed run
// continues with the very next batch and nothing but two numbers is stored.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/schema.h"
#include "data/source.h"

namespace xformer::data {

// Options of the group "data." that every dataset has: what happens to examples on their way into batches. The
// registry adds them to each dataset's own, and takes them away before its adapter reads those.
struct BatchingOptions {
  bool shuffle = true;
  int64_t cyclic_shift =
      0;                // sequences are rolled by a number from 0 to this less one, drawn for each epoch and example
  int64_t repeats = 1;  // an example comes so often in a row, the epoch has as many examples as before
  std::string objective = "task";  // what is to be predicted, where it is not the task's answer
  double masked_share = 0.15;      // (data/objective_source.h)
  std::string limit = {};          // "train=0.1,dev=200": how much of each split there is (data/limited_source.h)
};
[[nodiscard]] const Schema<BatchingOptions>& batching_schema();
// Of all options of the group.
[[nodiscard]] BatchingOptions batching_of(const Json& data_options);
// The dataset's own of them.
[[nodiscard]] Json without_batching(const Json& data_options);

struct BatchRows {
  std::vector<int64_t> rows;         // indices into the split
  int64_t padded_len = 0;            // every sequence is cut or padded to this, constant per length bucket
  std::vector<int64_t> shifts = {};  // by row: its tokens begin this many places later, cyclically; none: no shifts
  std::vector<int64_t> begins = {};  // by row: the place of the example that comes first; none: its first
  // Augmented batches: what each row and the batch draw from.
  std::vector<Stream> row_numbers = {};
  std::optional<Stream> batch_numbers = {};
  // Rows of the batch in memory; those beyond `rows` are empty. Few widths come often, for every one is captured anew.
  int64_t width = 0;
};

// An endless sequence of epochs of batches. Not thread-safe: an order may remember its last epoch.
class BatchOrder {
 public:
  virtual ~BatchOrder() = default;
  [[nodiscard]] virtual int64_t batches_per_epoch() const = 0;
  // Every batch has one of these padded lengths.
  [[nodiscard]] virtual const std::vector<int64_t>& bucket_lengths() const = 0;
  // In vectors that keep their memory from batch to batch.
  virtual void fill(int64_t epoch, int64_t index, BatchRows& into) const = 0;

  [[nodiscard]] BatchRows batch(int64_t epoch, int64_t index) const {
    BatchRows result;
    fill(epoch, index, result);
    return result;
  }
};

struct OrderOptions {
  int64_t batch = 32;
  int64_t padded_len = 0;  // of the longest bucket
  int64_t buckets = 1;     // length buckets of equal example counts; their padded lengths are multiples of 64
  uint64_t seed = 0;
  BatchingOptions batching = {};
  bool augment = false;       // as the source does it
  bool drop_partial = false;  // an epoch ends in front of a bucket's partial batch, unless that is its only one
};

// The examples of one split, in batches as wide as asked, or as the bucket where it holds fewer. With shuffle: a
// fresh permutation per epoch, within each bucket, and then the order of batches of all buckets mixed. Every example
// appears exactly once per epoch; but with repeats (Hoffer et al., "Augment your batch", 2020) an epoch is the first so
// many multiples of 256 of the repeated order (DeiT's sampler).
class ExampleOrder : public BatchOrder {
 public:
  ExampleOrder(const DataSource& source, Split split, const OrderOptions& options);
  [[nodiscard]] int64_t batches_per_epoch() const override { return static_cast<int64_t>(batches_.size()); }
  [[nodiscard]] const std::vector<int64_t>& bucket_lengths() const override { return lengths_; }
  void fill(int64_t epoch, int64_t index, BatchRows& into) const override;

 private:
  struct Slice {
    int64_t begin, end, padded_len, width;  // places in rows_
  };
  [[nodiscard]] int64_t shift_of(int64_t epoch, int64_t row) const;
  void sort_by_length(const DataSource& source, Split split);
  [[nodiscard]] int64_t bucket_length(const DataSource& source, Split split, int64_t last) const;
  void repeat() const;
  void shuffle(int64_t epoch) const;

  OrderOptions options_;
  std::vector<int64_t> lengths_, bounds_;  // by bucket; a bucket is rows bounds_[b] .. bounds_[b + 1] - 1
  std::vector<Slice> batches_;
  std::vector<int64_t> unshuffled_;
  // Of the last epoch: the rows, and which batch comes when (none: as they are).
  mutable std::vector<int64_t> rows_;
  mutable std::vector<size_t> order_;
  mutable int64_t epoch_ = -1;
};

}  // namespace xformer::data
