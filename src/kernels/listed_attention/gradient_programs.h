// The backward pass of attention over listed keys on a device: a launch over rows, for dq and what every listed key has
// of them, and one over keys, a warp for each, which gathers from the rows that read it. Which these are is found in
// the first launch, by blocks of their own.
#pragma once

#include <algorithm>

#include "kernels/device/counting.h"
#include "kernels/listed_attention/program.h"

namespace xformer::kernels {

// Counters, and what each warp has seen of smaller values.
inline constexpr int kReversalInts = kCounterInts + kListedWarps;

[[nodiscard]] constexpr int64_t reversal_tiles(const Reversal& r) {
  return (r.values + kCountedValues - 1) / kCountedValues;
}
[[nodiscard]] constexpr int64_t reversal_blocks(const Reversal& r) { return r.slices * reversal_tiles(r); }

// Block `block` of a reversal: the entries that are one of 32 values, in the order of device/counting.h.
template <class Thread>
XFORMER_DEVICE void reverse_numbers(const Thread& thread, const Reversal& r, int64_t block) {
  constexpr int kAtOnce = 8;
  const int64_t slice = block / reversal_tiles(r);
  const int first = static_cast<int>(block % reversal_tiles(r)) * kCountedValues;
  const int64_t* const numbers = r.numbers + slice * r.entries;
  auto* const counters = static_cast<int*>(thread.shared());
  int* const smaller = counters + kCounterInts;
  const int index = thread.index(), lane = index % kWarp, warp = index / kWarp;
  // visit(entry, number - first) of the thread's own entries that are a number.
  const auto for_entries = [&](const auto& visit) {
    for (int begin = index; begin < r.entries; begin += kAtOnce * kListedThreads) {
      int64_t number[kAtOnce];
      XFORMER_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        const int i = begin + j * kListedThreads;
        number[j] = i < r.entries ? numbers[i] : -1;
      }
      XFORMER_UNROLL
      for (int j = 0; j < kAtOnce; ++j)
        if (number[j] >= 0) visit(begin + j * kListedThreads, static_cast<int>(number[j]) - first);
    }
  };

  int* const own = counters + index;
  for (int value = 0; value < kCountedValues; ++value) own[value * kCounterStride] = 0;
  int below = 0;
  for_entries([&](int, int value) {
    if (value < 0) ++below;
    else if (value < kCountedValues) ++own[value * kCounterStride];
  });
  below = lane_sum(thread, below, 1, kWarp);
  if (lane == 0) smaller[warp] = below;
  thread.sync();
  int start = 0;
  for (int i = 0; i < kListedWarps; ++i) start += smaller[i];
  const CountedValue found = place_counted(thread, start, counters);
  if (warp == 0 && first + lane <= r.values) r.starts[slice * (r.values + 1) + first + lane] = found.start;
  if (index == kWarp - 1 && first + kCountedValues == r.values)
    r.starts[slice * (r.values + 1) + r.values] = found.start + found.count;
  for_entries([&](int entry, int value) {
    if (value >= 0 && value < kCountedValues) r.found[slice * r.entries + own[value * kCounterStride]++] = entry;
  });
}

[[nodiscard]] constexpr LaunchGrid listed_queries_grid(const ListedArguments& a) {
  const LaunchGrid rows = listed_rows_grid(a);
  return {rows.blocks + reversal_blocks(a.readers) + reversal_blocks(a.members),
          std::max<int64_t>(rows.shared_bytes, kReversalInts * 4)};
}

// dq of a block's rows, and for each place of their lists its weight after dropout and the gradient of its score; or a
// part of a reversal.
template <int kWidth, class Value>
struct ListedAttentionQueryProgram {
  static constexpr int kThreads = kListedThreads, kResident = 5;
  using Lane = ListedLane<kWidth>;
  ListedArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const int64_t readers = reversal_blocks(a.readers), members = reversal_blocks(a.members);
    if (thread.block() < readers) return reverse_numbers(thread, a.readers, thread.block());
    if (thread.block() < readers + members) return reverse_numbers(thread, a.members, thread.block() - readers);
    const ListedRows rows(a, thread.block() - readers - members);
    const Lane lane(thread);
    Row mine;
    rows.for_pieces(thread, [&](int row, int from, const int* list, int count, bool last) {
      if (from == 0) begin(thread, rows, lane, row, mine);
      const int64_t element = rows.statistic(row) * a.length + from;
      for (int step = 0; step < count; step += Lane::kSlots * kListedPair)
        slope(thread, rows, lane, element, list, count, step + lane.slot, mine);
      if (!last) return;
      XFORMER_UNROLL
      for (int i = 0; i < kRun; ++i) mine.sum[i] = Lane::slot_sum(thread, mine.sum[i]) * a.scale;
      // Found anew, or the place would take registers of the loop.
      lane.store(thread, mine.sum, a.d, static_cast<Value*>(a.dq) + rows.result(thread.anew(row)) * a.d);
    });
  }

 private:
  struct Row {
    float query[kRun], gradient[kRun], sum[kRun], log_sum, delta;  // delta: the row's sum of out * gradient
  };

  template <class Thread>
  XFORMER_DEVICE void begin(const Thread& thread, const ListedRows& rows, const Lane& lane, int row, Row& mine) const {
    mine.log_sum = a.log_sum[rows.statistic(row)];
    const bool counts = mine.log_sum != static_cast<float>(INFINITY);
    lane.load(thread, rows.template head_of<Value>(a.q, a.q_places), row, a.q_places, a.d, counts, mine.query);
    lane.load(thread, rows.template head_of<Value>(a.gradient, a.gradient_places), row, a.gradient_places, a.e, counts,
              mine.gradient);
    float out[kRun];
    lane.load(thread, static_cast<const Value*>(a.out), rows.result(row), {a.e, a.e % kRun == 0}, a.e, counts, out);
    mine.delta = 0;
    XFORMER_UNROLL
    for (int i = 0; i < kRun; ++i) mine.sum[i] = 0, mine.delta += out[i] * mine.gradient[i];
    mine.delta = Lane::channel_sum(thread, mine.delta);
  }

  // The slot's next keys, from place `first` of the list on.
  template <class Thread>
  XFORMER_DEVICE void slope(const Thread& thread, const ListedRows& rows, const Lane& lane, int64_t element,
                            const int* list, int count, int first, Row& mine) const {
    const Value* const keys = rows.template head_of<Value>(a.k, a.k_places);
    const Value* const values = rows.template head_of<Value>(a.v, a.v_places);
    XFORMER_UNROLL
    for (int t = 0; t < kListedPair; ++t) {
      const int l = first + t * Lane::kSlots, place = l < count ? list[l] : -1;
      const bool there = place >= 0, kept = there && place % 2 == 0;
      float key[kRun], value[kRun], score = 0, product = 0;
      lane.load(thread, keys, place / 2, a.k_places, a.d, there, key);
      lane.load(thread, values, place / 2, a.v_places, a.e, kept, value);
      XFORMER_UNROLL
      for (int i = 0; i < kRun; ++i) score += mine.query[i] * key[i], product += mine.gradient[i] * value[i];
      score = Lane::channel_sum(thread, score) * a.scale;
      product = Lane::channel_sum(thread, product) * listed_keep(a);
      if (a.bias != nullptr && l < count) score += a.bias[element + l];
      const float p = there ? thread.exp(score - mine.log_sum) : 0.0f;
      const float by_score = there ? p * (product - mine.delta) : 0.0f;
      if (lane.column == 0 && l < count) {
        a.weights[element + l] = kept ? p * listed_keep(a) : 0.0f;
        a.slopes[element + l] = by_score;
      }
      XFORMER_UNROLL
      for (int i = 0; i < kRun; ++i) mine.sum[i] += by_score * key[i];
    }
  }
};

[[nodiscard]] constexpr LaunchGrid listed_keys_grid(const ListedArguments& a) {
  return {(int64_t{a.b} * a.h * a.m + kListedWarps - 1) / kListedWarps, 0};
}

// dk and dv, from the rows that read a key.
template <int kWidth, class Value>
struct ListedAttentionKeyProgram {
  static constexpr int kThreads = kListedThreads, kResident = 4;
  using Lane = ListedLane<kWidth>;
  ListedArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const int64_t number = thread.block() * kListedWarps + thread.index() / kWarp;
    if (number >= int64_t{a.b} * a.h * a.m) return;
    const int head = static_cast<int>(number / a.m), key = static_cast<int>(number % a.m), b = head / a.h,
              h = head % a.h;
    const int64_t slice = b * a.slice_sample + h * a.slice_head;
    const Lane lane(thread);
    Sums sums{};
    const int* const starts = a.readers.starts + slice * (a.m + 1) + key;
    const int* const places = a.readers.found + slice * a.readers.entries;
    const bool counts = a.key_valid == nullptr || a.key_valid[int64_t{b} * a.m + key];
    const int end = counts ? starts[1] : starts[0];
    if (a.lists == nullptr) {
      for (int i = starts[0] + lane.slot; i < end; i += Lane::kSlots * kListedBatch)
        gather(thread, head, lane, sums, [&](int t) {
          const int at = i + t * Lane::kSlots;
          return at < end ? places[at] : int64_t{-1};
        });
    } else {
      const int* const lists = a.members.starts + int64_t{head} * (a.c + 1);
      const int* const members = a.members.found + int64_t{head} * a.n;
      for (int i = starts[0]; i < end; ++i) {
        const int list = places[i] / a.length, place = places[i] % a.length, last = lists[list + 1];
        for (int j = lists[list] + lane.slot; j < last; j += Lane::kSlots * kListedBatch)
          gather(thread, head, lane, sums, [&](int t) {
            const int at = j + t * Lane::kSlots;
            return at < last ? int64_t{members[at]} * a.length + place : int64_t{-1};
          });
      }
    }
    XFORMER_UNROLL
    for (int i = 0; i < kRun; ++i) {
      sums.k[i] = Lane::slot_sum(thread, sums.k[i]) * a.scale;
      sums.v[i] = Lane::slot_sum(thread, sums.v[i]);
    }
    const int64_t row = (int64_t{b} * a.m + key) * a.h + h;
    lane.store(thread, sums.k, a.d, static_cast<Value*>(a.dk) + row * a.d);
    lane.store(thread, sums.v, a.e, static_cast<Value*>(a.dv) + row * a.e);
  }

 private:
  struct Sums {
    float k[kRun], v[kRun];
  };

  // Adds the slot's next readers: element_of(t), where among the head's [n,L] the t-th reads the key; -1: there is
  // none.
  template <class Thread, class ElementOf>
  XFORMER_DEVICE void gather(const Thread& thread, int head, const Lane& lane, Sums& sums,
                             const ElementOf& element_of) const {
    const int b = head / a.h, h = head % a.h;
    const Value* const queries = at_head<Value>(a.q, a.q_places, {b, h, 0});
    const Value* const gradients = at_head<Value>(a.gradient, a.gradient_places, {b, h, 0});
    int64_t row[kListedBatch];
    float weight[kListedBatch], slope[kListedBatch];
    XFORMER_UNROLL
    for (int t = 0; t < kListedBatch; ++t) {
      const int64_t element = element_of(t), from = int64_t{head} * a.n * a.length + element;
      row[t] = element / a.length;
      weight[t] = element < 0 ? 0.0f : a.weights[from];
      slope[t] = element < 0 ? 0.0f : a.slopes[from];
    }
    XFORMER_UNROLL
    for (int t = 0; t < kListedBatch; ++t) {
      // What rows that do not count hold is not read: their numbers are 0.
      float query[kRun], gradient[kRun];
      lane.load(thread, queries, row[t], a.q_places, a.d, slope[t] != 0, query);
      lane.load(thread, gradients, row[t], a.gradient_places, a.e, weight[t] != 0, gradient);
      XFORMER_UNROLL
      for (int i = 0; i < kRun; ++i) {
        sums.k[i] += slope[t] * query[i];
        sums.v[i] += weight[t] * gradient[i];
      }
    }
  }
};

// launch(grid, program) for the forward pass, then likewise for both parts of the backward pass.
template <int kWidth, class Value, class Launch>
void run_listed_pass(const ListedArguments& a, bool backward, const Launch& launch) {
  if (!backward) return launch(listed_rows_grid(a), ListedAttentionForwardProgram<kWidth, Value>{a});
  launch(listed_queries_grid(a), ListedAttentionQueryProgram<kWidth, Value>{a});
  launch(listed_keys_grid(a), ListedAttentionKeyProgram<kWidth, Value>{a});
}

// `Types` has what a device calls Half and BFloat16.
template <class Types, class Launch>
void run_listed_attention(const ListedArguments& a, bool backward, const Launch& launch) {
  with_element<Types>(a.type, [&]<class Value>(Value) {
    a.d <= 32 && a.e <= 32 ? run_listed_pass<32, Value>(a, backward, launch)
                           : run_listed_pass<64, Value>(a, backward, launch);
  });
}

}  // namespace xformer::kernels
