#include "data/batches/batcher.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>

#include "core/error.h"
#include "core/parallel.h"

namespace xformer::data {
namespace {

// What a row takes of a sequence: `length` places from `begin` on, rolled so that the first comes to place `shift`.
struct Window {
  int64_t begin, length, shift;
};

// Both of `k` values at each place.
template <class From, class To>
void copy_window(std::span<const From> from, int64_t k, const Window& window, To* into) {
  const From* const first = from.data() + window.begin * k;
  const int64_t turn = (window.length - window.shift) * k;
  std::copy_n(first, turn, into + window.shift * k);
  std::copy_n(first + turn, window.shift * k, into);
}

template <class Columns, class T>
auto& column(Columns& columns, std::string_view name, std::vector<T> HostColumn::*values) {
  for (auto& one : columns)
    if (one.field.name == name) return one.*values;
  throw InternalError(fmt::format("a batch without the field {}", name));
}

}  // namespace

std::vector<int64_t>& HostBatch::whole(std::string_view name) { return column(columns, name, &HostColumn::whole); }
std::vector<float>& HostBatch::numbers(std::string_view name) { return column(columns, name, &HostColumn::numbers); }
const std::vector<int64_t>& HostBatch::whole(std::string_view name) const {
  return column(columns, name, &HostColumn::whole);
}
const std::vector<float>& HostBatch::numbers(std::string_view name) const {
  return column(columns, name, &HostColumn::numbers);
}

void HostBatch::reset(const DataShape& shape, int64_t rows, int64_t length) {
  if (columns.empty() || !(shape == shape_)) {
    shape_ = shape;
    parts_ = parts_of(shape);
    columns.clear();
    for (const Field& field : fields_of(shape)) columns.push_back({field, {}, {}});
  }
  batch = rows;
  padded_len = length;
  filled = 0;
  const int64_t places = batch * shape.sequences * padded_len;
  for (HostColumn& one : columns) {
    const auto size = static_cast<size_t>(one.field.of_tokens() ? places * one.field.k : batch);
    if (one.field.element == Element::kF32) one.numbers.assign(size, static_cast<float>(one.field.fill));
    else one.whole.assign(size, static_cast<int64_t>(one.field.fill));
  }
  key_valid.assign(static_cast<size_t>(places), 0);
  row_valid.assign(static_cast<size_t>(batch), 0);
  indices.assign(static_cast<size_t>(batch), -1);
}

void HostBatch::put(int64_t row, const Example& example, int64_t begin, int64_t shift) {
  for (const Part& part : parts_) {
    const Field& field = part.field;
    HostColumn& into = columns[part.place];
    if (!field.of_tokens()) {
      const double fact = part.fact(example);
      if (field.element == Element::kF32) into.numbers[static_cast<size_t>(row)] = static_cast<float>(fact);
      else into.whole[static_cast<size_t>(row)] = static_cast<int64_t>(fact);
      continue;
    }
    const Elements elements = part.elements(example);
    const int64_t there = static_cast<int64_t>(elements.size()) / field.k;
    Window window{std::min(begin, there), 0, 0};
    window.length = std::min({there - window.begin, padded_len, shape_.max_len});
    window.shift = window.length == 0 ? 0 : shift % window.length;
    const int64_t at = (row * shape_.sequences + part.sequence) * padded_len;
    if (field.element == Element::kF32)
      copy_window(elements.as<float>(), field.k, window, into.numbers.data() + at * field.k);
    else
      elements.visit([&]<class T>(std::span<const T> from) {
        XF_ASSERT((!std::same_as<T, float>), "{} holds numbers", field.name);
        copy_window(from, field.k, window, into.whole.data() + at * field.k);
      });
    if (part.place != 0) continue;  // the first field says which places there are
    std::fill_n(key_valid.begin() + at, window.length, uint8_t{1});
    if (shape_.vocabulary == 0) {
      // An event has codes above 0; a place without is padding, wherever it stands.
      const auto codes = shape_.width > 1 ? static_cast<int64_t>(shape_.categories.size()) : 0;
      for (int64_t i = at; codes > 0 && i < at + window.length; ++i)
        if (into.numbers[static_cast<size_t>((i + 1) * field.k - codes)] == 0) key_valid[static_cast<size_t>(i)] = 0;
      continue;
    }
    for (int64_t i = at; i < at + window.length; ++i) {
      int64_t& token = into.whole[static_cast<size_t>(i)];
      token += shape_.id_offset;
      if (token <= 0 && shape_.zero_is_padding) key_valid[static_cast<size_t>(i)] = 0;
    }
  }
}

void fill_batch(const DataSource& source, Split split, const BatchRows& rows, int64_t batch, HostBatch& into) {
  const auto filled = static_cast<int64_t>(rows.rows.size());
  XF_ASSERT(filled <= batch && rows.padded_len >= 1, "{} rows of length {} do not fit a batch of {}", filled,
            rows.padded_len, batch);
  into.reset(source.info().shape, batch, rows.padded_len);
  into.filled = filled;
  const auto fill_row = [&](size_t at) {
    Stream numbers = rows.row_numbers.empty() ? Stream(0) : rows.row_numbers[at];
    const Example example =
        rows.row_numbers.empty() ? source.read(split, rows.rows[at]) : source.augmented(split, rows.rows[at], numbers);
    into.put(static_cast<int64_t>(at), example, rows.begins.empty() ? 0 : rows.begins[at],
             rows.shifts.empty() ? 0 : rows.shifts[at]);
    into.row_valid[at] = 1;
    into.indices[at] = rows.rows[at];
  };
  for_each_piece(rows.rows.size(), source.slow() ? 0 : 1, fill_row);
  if (rows.batch_numbers) {
    Stream numbers = *rows.batch_numbers;
    source.mix(into, numbers);
  }
}

HostBatch random_batch(const DataShape& shape, int64_t rows, int64_t length, Stream& numbers) {
  HostBatch batch;
  batch.reset(shape, rows, length);
  batch.filled = rows;
  const auto below = [&](int64_t bound) {
    return bound > 0 ? static_cast<int64_t>(numbers.next_below(static_cast<uint64_t>(bound))) : 0;
  };
  for (HostColumn& one : batch.columns) {
    if (!one.field.of_tokens()) continue;
    const int64_t least = one.field.name == "tokens" ? 1 : 0;  // 0 is padding
    for (int64_t& value : one.whole) value = least + below(one.field.range - least);
    for (float& value : one.numbers) value = static_cast<float>(below(1000)) / 1000;
  }
  for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
    for (HostColumn& one : batch.columns) {
      if (one.field.of_tokens()) continue;
      if (one.field.element == Element::kF32) one.numbers[row] = 0.5F;
      else one.whole[row] = below(one.field.range);
    }
  }
  std::fill(batch.key_valid.begin(), batch.key_valid.end(), uint8_t{1});
  std::fill(batch.row_valid.begin(), batch.row_valid.end(), uint8_t{1});
  std::iota(batch.indices.begin(), batch.indices.end(), int64_t{0});
  return batch;
}

struct Prefetcher::State {
  static constexpr int64_t kBuffers = 2;

  State(const DataSource& data, Split which, std::unique_ptr<BatchOrder> batches, int64_t from, int64_t to)
      : source(data), split(which), order(std::move(batches)), first(from), last(to) {
    XF_ASSERT(first >= 0 && (first >= last || order->batches_per_epoch() > 0), "batches {} to {} of an empty split",
              first, last);
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
        const auto start = std::chrono::steady_clock::now();
        const int64_t in_epoch = order->batches_per_epoch();
        HostBatch& batch = buffers[(number - first) % kBuffers];
        order->fill(number / in_epoch, number % in_epoch, rows);
        fill_batch(source, split, rows, rows.width, batch);
        batch.made_in = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
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
  std::unique_ptr<BatchOrder> order;
  int64_t first, last;
  HostBatch buffers[kBuffers];
  std::mutex mutex;
  std::condition_variable changed;
  int64_t made = 0, taken = 0;  // batches since `first`
  bool stop = false;
  std::exception_ptr failure;
  std::thread thread;
};

Prefetcher::Prefetcher(const DataSource& source, Split split, std::unique_ptr<BatchOrder> order, int64_t first,
                       int64_t last)
    : state_(std::make_unique<State>(source, split, std::move(order), first, last)) {
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
