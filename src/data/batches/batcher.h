// Which examples make up batch number i: pure functions of (seed, epoch, index), so that a resumed run
// continues with the very next batch and nothing but two numbers is stored.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/schema.h"
#include "data/source.h"

namespace xformer::data {

// Options of the group "data." that every dataset has: what happens to examples on their way into training batches.
struct BatchingOptions {
  bool shuffle = true;
  int64_t cyclic_shift = 0;
  int64_t repeats = 1;
};
[[nodiscard]] const Schema<BatchingOptions>& batching_schema();
// A dataset's own options, without those.
[[nodiscard]] Json without_batching(const Json& data_options);

struct BatchRows {
  std::vector<int64_t> rows;         // indices into the split; fewer than the batch size in a partial batch
  int64_t padded_len = 0;            // every sequence is cut or padded to this, constant per length bucket
  std::vector<int64_t> shifts = {};  // by row: its tokens begin this many places later, cyclically; none: no shifts
  // Augmented batches: what each row and the batch draw from.
  std::vector<Stream> row_numbers = {};
  std::optional<Stream> batch_numbers = {};
};

struct OrderOptions {
  int64_t batch = 32;
  int64_t padded_len = 0;  // of the longest bucket
  int64_t buckets = 1;     // length buckets of equal example counts; their padded lengths are multiples of 64
  uint64_t seed = 0;
  bool shuffle = true;
  int64_t cyclic_shift =
      0;                 // sequences are rolled by a number from 0 to this less one, drawn for each epoch and example
  int64_t repeats = 1;   // an example comes so often in a row, the epoch has as many examples as before
  bool augment = false;  // as the source does it
};

// The batches of one split. With shuffle: a fresh permutation per epoch, within each bucket, and then the
// order of batches of all buckets mixed. Every example appears exactly once per epoch; but with repeats (Hoffer et al.,
// "Augment your batch", 2020) an epoch is the first so many multiples of 256 of the repeated order (DeiT's sampler).
class BatchOrder {
 public:
  BatchOrder(const DataSource& source, Split split, const OrderOptions& options);
  [[nodiscard]] int64_t batches_per_epoch() const;
  [[nodiscard]] BatchRows batch(int64_t epoch,
                                int64_t index) const;  // remembers the last epoch's permutation; not thread-safe
  [[nodiscard]] const std::vector<int64_t>& bucket_lengths() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// A batch in host memory. Its shape never depends on what is in it; rows beyond `filled` are empty: token 0, not valid,
// label 0, and they count in no loss, gradient, metric or rate.
struct HostBatch {
  int64_t batch = 0, padded_len = 0, filled = 0;
  std::vector<int64_t> tokens;         // [batch, sequences, padded_len], 0 is padding; empty without a vocabulary
  std::vector<float> values;           // [batch, padded_len, width], 0 behind the end; empty with a vocabulary
  std::vector<uint8_t> key_valid;      // [batch, sequences, padded_len], 1 for a real place
  std::vector<uint8_t> row_valid;      // [batch]
  std::vector<int64_t> labels;         // [batch]
  std::vector<int64_t> second_labels;  // [batch] of mixed examples, and what the first label's share is; else empty
  std::vector<float> shares;           // [batch]
  std::vector<float> targets;          // [batch]
  std::vector<int64_t> indices;        // [batch], -1 in empty rows
};

void fill_batch(const DataSource& source, Split split, const BatchRows& rows, int64_t batch, HostBatch& into);

// Fills batches ahead of the consumer in a background thread: batch numbers first, first+1, ... counted over
// all epochs, `last` excluded. Two buffers; no allocation once both have their size. An exception of the
// thread is thrown by next().
class Prefetcher {
 public:
  Prefetcher(const DataSource& source, Split split, const OrderOptions& options, int64_t first, int64_t last);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  // The next batch, valid until the following call.
  [[nodiscard]] const HostBatch& next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace xformer::data
