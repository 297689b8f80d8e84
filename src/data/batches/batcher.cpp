#include "data/batches/batcher.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>

#include "core/error.h"
#include "core/parallel.h"
#include "core/random.h"

namespace xformer::data {
namespace {

constexpr int64_t kLengthStep = 64;
constexpr int64_t kRepeatedUnit = 256;

int64_t length_of(const DataSource& source, Split split, int64_t index) {
  return example_length(source.read(split, index), source.info().shape);
}

// The order itself; BatchOrder and Prefetcher both use it, the latter without allocating.
class Order {
 public:
  Order(const DataSource& source, Split split, const OrderOptions& options) : options_(options) {
    XF_ASSERT(options.batch >= 1 && options.padded_len >= 1 && options.buckets >= 1,
              "batch {}, padded length {} and {} buckets are all at least 1", options.batch, options.padded_len,
              options.buckets);
    XF_ASSERT(options.repeats == 1 || options.buckets == 1, "examples are repeated in one bucket");
    const int64_t count = source.size(split);
    rows_.resize(static_cast<size_t>(count));
    std::iota(rows_.begin(), rows_.end(), int64_t{0});
    const int64_t buckets = std::max<int64_t>(1, std::min(options.buckets, count));
    if (buckets > 1) sort_by_length(source, split);
    for (int64_t bucket = 0; bucket < buckets; ++bucket) {
      const int64_t first = count * bucket / buckets, last = count * (bucket + 1) / buckets;
      const bool longest = bucket + 1 == buckets;
      const int64_t length = longest ? options.padded_len : bucket_length(source, split, last);
      lengths_.push_back(length);
      bounds_.push_back(first);
      const int64_t end = options.repeats > 1 && count >= kRepeatedUnit ? count / kRepeatedUnit * kRepeatedUnit : last;
      for (int64_t begin = first; begin < end; begin += options.batch)
        batches_.push_back({begin, std::min(begin + options.batch, end), length});
    }
    bounds_.push_back(count);
    unshuffled_ = rows_;
    if (!options.shuffle) repeat();
  }

  [[nodiscard]] int64_t batches() const { return static_cast<int64_t>(batches_.size()); }
  [[nodiscard]] const std::vector<int64_t>& lengths() const { return lengths_; }

  void fill(int64_t epoch, int64_t index, BatchRows& into) {
    XF_ASSERT(epoch >= 0 && index >= 0 && index < batches(), "no batch {} in epoch {} of {} batches", index, epoch,
              batches());
    if (options_.shuffle && epoch != epoch_) shuffle(epoch);
    const Slice& slice = batches_[order_.empty() ? static_cast<size_t>(index) : order_[static_cast<size_t>(index)]];
    into.padded_len = slice.padded_len;
    into.rows.assign(rows_.begin() + slice.begin, rows_.begin() + slice.end);
    into.shifts.clear();
    if (options_.cyclic_shift > 0)
      for (const int64_t row : into.rows) into.shifts.push_back(shift_of(epoch, row));
    into.row_numbers.clear();
    into.batch_numbers.reset();
    if (!options_.augment) return;
    const uint64_t key = derive_seed(options_.seed, "augment"), high = static_cast<uint64_t>(epoch) << 40;
    for (int64_t place = slice.begin; place < slice.end; ++place) {
      const int64_t row = rows_[static_cast<size_t>(place)];
      into.row_numbers.emplace_back(key,
                                    high | static_cast<uint64_t>(row * options_.repeats + place % options_.repeats));
    }
    into.batch_numbers.emplace(derive_seed(options_.seed, "mix"), high | static_cast<uint64_t>(index));
  }

 private:
  struct Slice {
    int64_t begin, end, padded_len;  // places in rows_
  };

  // A pure function of (seed, epoch, example), whatever batch it is in.
  [[nodiscard]] int64_t shift_of(int64_t epoch, int64_t row) const {
    Stream stream(derive_seed(options_.seed, "cyclic_shift"),
                  static_cast<uint64_t>(epoch) << 40 | static_cast<uint64_t>(row));
    return static_cast<int64_t>(stream.next_below(static_cast<uint64_t>(options_.cyclic_shift)));
  }

  void sort_by_length(const DataSource& source, Split split) {
    std::vector<int64_t> lengths(rows_.size());
    for (size_t i = 0; i < rows_.size(); ++i) lengths[i] = length_of(source, split, static_cast<int64_t>(i));
    std::stable_sort(rows_.begin(), rows_.end(), [&lengths](int64_t left, int64_t right) {
      return lengths[static_cast<size_t>(left)] < lengths[static_cast<size_t>(right)];
    });
  }

  // Of the bucket that ends in front of `last`: its longest sequence, rounded up.
  [[nodiscard]] int64_t bucket_length(const DataSource& source, Split split, int64_t last) const {
    const int64_t longest = length_of(source, split, rows_[static_cast<size_t>(last - 1)]);
    const int64_t rounded = (std::max<int64_t>(longest, 1) + kLengthStep - 1) / kLengthStep * kLengthStep;
    return std::min(rounded, options_.padded_len);
  }

  template <class T>
  static void permute(T* begin, int64_t count, Stream& stream) {
    for (int64_t i = count - 1; i > 0; --i) std::swap(begin[i], begin[stream.next_below(static_cast<uint64_t>(i) + 1)]);
  }

  // Each row so often in a row, cut to as many as there were.
  void repeat() {
    if (options_.repeats == 1) return;
    const std::vector<int64_t> once = rows_;
    for (size_t i = 0; i < rows_.size(); ++i) rows_[i] = once[i / static_cast<size_t>(options_.repeats)];
  }

  // A pure function of (seed, epoch): it starts from the unshuffled order every time.
  void shuffle(int64_t epoch) {
    Stream stream(derive_seed(options_.seed, "order"), static_cast<uint64_t>(epoch));
    rows_ = unshuffled_;
    for (size_t bucket = 0; bucket + 1 < bounds_.size(); ++bucket)
      permute(rows_.data() + bounds_[bucket], bounds_[bucket + 1] - bounds_[bucket], stream);
    repeat();
    if (lengths_.size() > 1) {  // one bucket keeps its partial batch last
      order_.resize(batches_.size());
      std::iota(order_.begin(), order_.end(), size_t{0});
      permute(order_.data(), batches(), stream);
    }
    epoch_ = epoch;
  }

  OrderOptions options_;
  std::vector<int64_t> rows_, unshuffled_;
  std::vector<int64_t> lengths_, bounds_;  // by bucket; a bucket is rows bounds_[b] .. bounds_[b + 1] - 1
  std::vector<Slice> batches_;
  std::vector<size_t> order_;
  int64_t epoch_ = -1;
};

}  // namespace

struct BatchOrder::State {
  Order order;
};

BatchOrder::BatchOrder(const DataSource& source, Split split, const OrderOptions& options)
    : state_(std::make_shared<State>(State{Order(source, split, options)})) {}

int64_t BatchOrder::batches_per_epoch() const { return state_->order.batches(); }

BatchRows BatchOrder::batch(int64_t epoch, int64_t index) const {
  BatchRows result;
  state_->order.fill(epoch, index, result);
  return result;
}

const std::vector<int64_t>& BatchOrder::bucket_lengths() const { return state_->order.lengths(); }

const Schema<BatchingOptions>& batching_schema() {
  static const Schema<BatchingOptions> kSchema =
      Schema<BatchingOptions>()
          .add(&BatchingOptions::shuffle, "shuffle", "a fresh order of the training examples in every epoch")
          .add(&BatchingOptions::cyclic_shift, "cyclic_shift",
               "roll every training sequence by a number of places drawn from 0 to this less one; 0: never "
               "(conv-linformer's stride)",
               at_least(0))
          .add(&BatchingOptions::repeats, "repeats",
               "times that a training example comes in a row, each augmented anew; an epoch keeps its size and sees "
               "fewer examples",
               between(1, 16));
  return kSchema;
}

Json without_batching(const Json& data_options) {
  Json result = data_options;
  for (const OptionInfo& option : batching_schema().options()) result.erase(option.name);
  return result;
}

namespace {

// Both fill one sequence: cut to the padded length and to the shape's longest, and rolled so that it begins `shift`
// places later.
void place_ids(std::span<const uint8_t> ids, const DataShape& shape, int64_t padded, int64_t shift, int64_t* tokens,
               uint8_t* valid) {
  const int64_t length = std::min({static_cast<int64_t>(ids.size()), padded, shape.max_len});
  int64_t place = length == 0 ? 0 : shift % length;
  for (int64_t i = 0; i < length; ++i) {
    tokens[place] = ids[static_cast<size_t>(i)] + shape.id_offset;
    valid[place] = tokens[place] > 0 || !shape.zero_is_padding ? 1 : 0;
    if (++place == length) place = 0;
  }
}

void place_values(std::span<const float> values, int64_t width, int64_t padded, int64_t shift, float* into,
                  uint8_t* valid) {
  const auto length = std::min(static_cast<int64_t>(values.size()) / width, padded);
  int64_t place = length == 0 ? 0 : shift % length;
  for (int64_t i = 0; i < length; ++i) {
    std::copy_n(values.begin() + i * width, width, into + place * width);
    valid[place] = 1;
    if (++place == length) place = 0;
  }
}

}  // namespace

void fill_batch(const DataSource& source, Split split, const BatchRows& rows, int64_t batch, HostBatch& into) {
  const auto filled = static_cast<int64_t>(rows.rows.size());
  XF_ASSERT(filled <= batch && rows.padded_len >= 1, "{} rows of length {} do not fit a batch of {}", filled,
            rows.padded_len, batch);
  into.batch = batch;
  into.padded_len = rows.padded_len;
  into.filled = filled;
  const DataShape& shape = source.info().shape;
  const int64_t padded = rows.padded_len, sequences = shape.sequences;
  into.tokens.assign(static_cast<size_t>(shape.vocabulary > 0 ? batch * sequences * padded : 0), 0);
  into.values.assign(static_cast<size_t>(shape.vocabulary > 0 ? 0 : batch * padded * shape.width), 0);
  into.key_valid.assign(static_cast<size_t>(batch * sequences * padded), 0);
  into.row_valid.assign(static_cast<size_t>(batch), 0);
  into.labels.assign(static_cast<size_t>(batch), 0);
  into.targets.assign(static_cast<size_t>(batch), 0);
  into.indices.assign(static_cast<size_t>(batch), -1);
  into.second_labels.assign(static_cast<size_t>(shape.target.has("share") ? batch : 0), 0);
  into.shares.assign(static_cast<size_t>(shape.target.has("share") ? batch : 0), 1.0F);
  const auto fill_row = [&](size_t at) {
    const auto row = static_cast<int64_t>(at);
    const int64_t shift = rows.shifts.empty() ? 0 : rows.shifts[at];
    Stream numbers = rows.row_numbers.empty() ? Stream(0) : rows.row_numbers[at];
    const Example example =
        rows.row_numbers.empty() ? source.read(split, rows.rows[at]) : source.augmented(split, rows.rows[at], numbers);
    for (int64_t i = 0; i < sequences; ++i) {
      uint8_t* const valid = into.key_valid.data() + (row * sequences + i) * padded;
      if (shape.vocabulary > 0)
        place_ids(example.ids[static_cast<size_t>(i)], shape, padded, shift,
                  into.tokens.data() + (row * sequences + i) * padded, valid);
      else
        place_values(example.values, shape.width, padded, shift, into.values.data() + row * padded * shape.width,
                     valid);
    }
    into.row_valid[at] = 1;
    into.labels[at] = example.label;
    into.targets[at] = example.target;
    into.indices[at] = rows.rows[at];
  };
  for_each_piece(rows.rows.size(), source.slow() ? 0 : 1, fill_row);
  if (rows.batch_numbers) {
    Stream numbers = *rows.batch_numbers;
    source.mix(into, numbers);
  }
}

struct Prefetcher::State {
  static constexpr int64_t kBuffers = 2;

  State(const DataSource& data, Split which, const OrderOptions& options, int64_t from, int64_t to)
      : source(data), split(which), batch(options.batch), order(data, which, options), first(from), last(to) {
    XF_ASSERT(first >= 0 && (first >= last || order.batches() > 0), "batches {} to {} of an empty split", first, last);
  }

  void work() noexcept {
    BatchRows rows;
    for (int64_t number = first; number < last; ++number) {
      {
        std::unique_lock lock(mutex);
        // The consumer holds at most the batch that it was given last: taken - 1.
        changed.wait(lock, [&] { return stop || number - first < std::max<int64_t>(taken - 1, 0) + kBuffers; });
        if (stop) return;
      }
      try {
        order.fill(number / order.batches(), number % order.batches(), rows);
        fill_batch(source, split, rows, batch, buffers[(number - first) % kBuffers]);
      } catch (...) {
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
        changed.notify_all();
        return;
      }
      const std::lock_guard lock(mutex);
      ++made;
      changed.notify_all();
    }
  }

  const DataSource& source;
  Split split;
  int64_t batch;
  Order order;
  int64_t first, last;
  HostBatch buffers[kBuffers];
  std::mutex mutex;
  std::condition_variable changed;
  int64_t made = 0, taken = 0;  // batches since `first`
  bool stop = false;
  std::exception_ptr failure;
  std::thread thread;
};

Prefetcher::Prefetcher(const DataSource& source, Split split, const OrderOptions& options, int64_t first, int64_t last)
    : state_(std::make_unique<State>(source, split, options, first, last)) {
  state_->thread = std::thread([state = state_.get()] { state->work(); });
}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

const HostBatch& Prefetcher::next() {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  XF_ASSERT(state.first + state.taken < state.last, "batch {} was asked for, the last is {}", state.first + state.taken,
            state.last - 1);
  ++state.taken;  // gives the batch before back to the thread
  state.changed.notify_all();
  state.changed.wait(lock, [&] { return state.made >= state.taken || state.failure; });
  if (state.made < state.taken) std::rethrow_exception(state.failure);
  return state.buffers[(state.taken - 1) % State::kBuffers];
}

}  // namespace xformer::data
