// Batches in host memory, filled ahead of whoever uses them.
#pragma once

#include <memory>

#include "data/batches/batch_order.h"

namespace xformer::data {

// A field of a batch: [batch, sequences, padded_len, k] where it has places, else [batch].
struct HostColumn {
  Field field;
  std::vector<int64_t> whole;  // of whole numbers and bools
  std::vector<float> numbers;  // of the others
};

// A batch in host memory. Its shape never depends on what is in it; rows beyond `filled` are empty: token 0, not valid,
// label 0, and they count in no loss, gradient, metric or rate.
class HostBatch {
 public:
  int64_t batch = 0, padded_len = 0, filled = 0;
  std::vector<HostColumn> columns;  // as fields_of has them
  std::vector<uint8_t> key_valid;   // [batch, sequences, padded_len], 1 for a real place
  std::vector<uint8_t> row_valid;   // [batch]
  std::vector<int64_t> indices;     // [batch], -1 in empty rows
  double made_in = 0;               // seconds that the thread took which made it ahead (Prefetcher)

  // The values of a field that there must be.
  [[nodiscard]] std::vector<int64_t>& whole(std::string_view name);
  [[nodiscard]] const std::vector<int64_t>& whole(std::string_view name) const;
  [[nodiscard]] std::vector<float>& numbers(std::string_view name);
  [[nodiscard]] const std::vector<float>& numbers(std::string_view name) const;

  // Empty rows. Memory is kept, and what is known of the shape while it stays the same.
  void reset(const DataShape& shape, int64_t rows, int64_t length);
  // The example's places from `begin` on, as many as there is room for, rolled by `shift`.
  void put(int64_t row, const Example& example, int64_t begin, int64_t shift);

 private:
  DataShape shape_;
  std::vector<Part> parts_;
};

void fill_batch(const DataSource& source, Split split, const BatchRows& rows, int64_t batch, HostBatch& into);

// Full rows of random values; every place is valid.
[[nodiscard]] HostBatch random_batch(const DataShape& shape, int64_t rows, int64_t length, Stream& numbers);

// Fills batches ahead of the consumer in a background thread: batch numbers first, first+1, ... counted over
// all epochs, `last` excluded. Two buffers; no allocation once both have their size. An exception of the
// thread is thrown by next().
class Prefetcher {
 public:
  Prefetcher(const DataSource& source, Split split, std::unique_ptr<BatchOrder> order, int64_t first, int64_t last);
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
