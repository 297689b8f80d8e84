#include "data/batches/batch_order.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/random.h"
#include "data/limited_source.h"

namespace xformer::data {
namespace {

constexpr int64_t kLengthStep = 64;
constexpr int64_t kRepeatedUnit = 256;

int64_t length_of(const DataSource& source, Split split, int64_t index) {
  return example_length(source.read(split, index), source.info().shape);
}

template <class T>
void permute(T* begin, int64_t count, Stream& stream) {
  for (int64_t i = count - 1; i > 0; --i) std::swap(begin[i], begin[stream.next_below(static_cast<uint64_t>(i) + 1)]);
}

}  // namespace

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
               between(1, 16))
          .add(&BatchingOptions::objective, "objective",
               "task: its own answers; or, to begin the task with weights that know its inputs, masked: ids that are "
               "hidden in a sequence, causal: at each place the next id, both of its training examples alone",
               one_of({"task", "masked", "causal"}))
          .added("task")
          .add(&BatchingOptions::masked_share, "masked_share", "share of a sequence's ids that objective=masked hides",
               between(0.001, 1))
          .added(BatchingOptions().masked_share)
          .add(&BatchingOptions::limit, "limit",
               "only so many examples of a split, or such a share, evenly out of all: train=0.1,dev=200,test=200; such "
               "a run is not comparable with others",
               limit_rule())
          .added("");
  return kSchema;
}

BatchingOptions batching_of(const Json& data_options) {
  Json own = Json::object();
  for (const OptionInfo& option : batching_schema().options())
    if (data_options.contains(option.name)) own[option.name] = data_options[option.name];
  return batching_schema().read(own);
}

Json without_batching(const Json& data_options) {
  Json result = data_options;
  for (const OptionInfo& option : batching_schema().options()) result.erase(option.name);
  return result;
}

ExampleOrder::ExampleOrder(const DataSource& source, Split split, const OrderOptions& options) : options_(options) {
  XF_ASSERT(options.batch >= 1 && options.padded_len >= 1 && options.buckets >= 1,
            "batch {}, padded length {} and {} buckets are all at least 1", options.batch, options.padded_len,
            options.buckets);
  const int64_t repeats = options.batching.repeats;
  XF_ASSERT(repeats == 1 || options.buckets == 1, "examples are repeated in one bucket");
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
    int64_t end = repeats > 1 && count >= kRepeatedUnit ? count / kRepeatedUnit * kRepeatedUnit : last;
    if (options.drop_partial && end - first > options.batch) end -= (end - first) % options.batch;
    for (int64_t begin = first; begin < end; begin += options.batch)
      batches_.push_back({begin, std::min(begin + options.batch, end), length, std::min(options.batch, end - first)});
  }
  bounds_.push_back(count);
  unshuffled_ = rows_;
  if (!options.batching.shuffle) repeat();
}

void ExampleOrder::fill(int64_t epoch, int64_t index, BatchRows& into) const {
  XF_ASSERT(epoch >= 0 && index >= 0 && index < batches_per_epoch(), "no batch {} in epoch {} of {} batches", index,
            epoch, batches_per_epoch());
  if (options_.batching.shuffle && epoch != epoch_) shuffle(epoch);
  const Slice& slice = batches_[order_.empty() ? static_cast<size_t>(index) : order_[static_cast<size_t>(index)]];
  into.padded_len = slice.padded_len;
  into.rows.assign(rows_.begin() + slice.begin, rows_.begin() + slice.end);
  into.width = slice.width;
  into.begins.clear();
  into.shifts.clear();
  if (options_.batching.cyclic_shift > 0)
    for (const int64_t row : into.rows) into.shifts.push_back(shift_of(epoch, row));
  into.row_numbers.clear();
  into.batch_numbers.reset();
  if (!options_.augment) return;
  const uint64_t key = derive_seed(options_.seed, "augment"), high = static_cast<uint64_t>(epoch) << 40;
  const int64_t repeats = options_.batching.repeats;
  for (int64_t place = slice.begin; place < slice.end; ++place) {
    const int64_t row = rows_[static_cast<size_t>(place)];
    into.row_numbers.emplace_back(key, high | static_cast<uint64_t>(row * repeats + place % repeats));
  }
  into.batch_numbers.emplace(derive_seed(options_.seed, "mix"), high | static_cast<uint64_t>(index));
}

// A pure function of (seed, epoch, example), whatever batch it is in.
int64_t ExampleOrder::shift_of(int64_t epoch, int64_t row) const {
  Stream stream(derive_seed(options_.seed, "cyclic_shift"),
                static_cast<uint64_t>(epoch) << 40 | static_cast<uint64_t>(row));
  return static_cast<int64_t>(stream.next_below(static_cast<uint64_t>(options_.batching.cyclic_shift)));
}

void ExampleOrder::sort_by_length(const DataSource& source, Split split) {
  std::vector<int64_t> lengths(rows_.size());
  for (size_t i = 0; i < rows_.size(); ++i) lengths[i] = length_of(source, split, static_cast<int64_t>(i));
  std::stable_sort(rows_.begin(), rows_.end(), [&lengths](int64_t left, int64_t right) {
    return lengths[static_cast<size_t>(left)] < lengths[static_cast<size_t>(right)];
  });
}

// Of the bucket that ends in front of `last`: its longest sequence, rounded up.
int64_t ExampleOrder::bucket_length(const DataSource& source, Split split, int64_t last) const {
  const int64_t longest = length_of(source, split, rows_[static_cast<size_t>(last - 1)]);
  const int64_t rounded = (std::max<int64_t>(longest, 1) + kLengthStep - 1) / kLengthStep * kLengthStep;
  return std::min(rounded, options_.padded_len);
}

// Each row so often in a row, cut to as many as there were.
void ExampleOrder::repeat() const {
  const auto repeats = static_cast<size_t>(options_.batching.repeats);
  if (repeats == 1) return;
  const std::vector<int64_t> once = rows_;
  for (size_t i = 0; i < rows_.size(); ++i) rows_[i] = once[i / repeats];
}

// A pure function of (seed, epoch): it starts from the unshuffled order every time.
void ExampleOrder::shuffle(int64_t epoch) const {
  Stream stream(derive_seed(options_.seed, "order"), static_cast<uint64_t>(epoch));
  rows_ = unshuffled_;
  for (size_t bucket = 0; bucket + 1 < bounds_.size(); ++bucket)
    permute(rows_.data() + bounds_[bucket], bounds_[bucket + 1] - bounds_[bucket], stream);
  repeat();
  if (lengths_.size() > 1) {  // one bucket keeps its partial batch last
    order_.resize(batches_.size());
    std::iota(order_.begin(), order_.end(), size_t{0});
    permute(order_.data(), batches_per_epoch(), stream);
  }
  epoch_ = epoch;
}

}  // namespace xformer::data
