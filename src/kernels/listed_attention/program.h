// Attention over listed keys (listed_attention.h) as device programs. Rows have keys of their own, so nothing is a
// product of tiles: a warp has a row, a few of its lanes a key each at a time, kRun neighbouring channels in a lane. A
// block has some rows of one head, whose lists it brings to shared memory first. The backward pass, in
// gradient_programs.h, adds nothing by atomics either.
#pragma once

#include <cmath>

#include "kernels/device/heads.h"

namespace xformer::kernels {

inline constexpr int kListedHeadWidest = 64;  // d and e; wider heads are left to plain operations
inline constexpr int kListedThreads = kTileThreads, kListedWarps = kListedThreads / kWarp;
inline constexpr int kListedPiece = 256;   // places of a row that are in shared memory at once
inline constexpr int kListedRowsEach = 8;  // rows of a warp, at most
// Keys or readers that a lane goes after at once, and keys where it reads two rows of each.
inline constexpr int kListedBatch = 4, kListedPair = 2;
inline constexpr int64_t kListedMost = 1 << 28;  // heads, rows, keys and places of a list, which do not leave an int
inline constexpr int64_t kListedMostPlaces = 1 << 30;  // of all lists of a head, likewise

// Which entries of a list of numbers are 0, which are 1, and so on, for each of several such lists.
struct Reversal {
  const int64_t* numbers = nullptr;  // [slices,entries], those below 0 are none
  int64_t slices = 0;
  int entries = 0, values = 0;  // numbers are below the second
  int* starts = nullptr;        // [slices,values + 1]: where the entries of a value begin among all that are any
  int* found = nullptr;         // [slices,entries]: these entries, value by value
};

struct ListedArguments {
  ElementType type = ElementType::kFloat;  // of heads and what is made of them, not double
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  HeadPlaces q_places, k_places, v_places;
  const float* bias = nullptr;                                      // [b,h,n,L]; null: none
  void* out = nullptr;                                              // [b,n,h,e]
  float* log_sum = nullptr;                                         // [b,h,n]
  int b = 0, h = 0, n = 0, m = 0, c = 0, length = 0, d = 0, e = 0;  // the sixth: L
  float scale = 1;
  const int64_t* places = nullptr;                        // [slices,c,L]
  int64_t slice_sample = 0, slice_head = 0;               // slices from one sample, and one head, to the next
  const int64_t* lists = nullptr;                         // [b,h,n]; null: row i reads list i
  const bool *key_valid = nullptr, *row_valid = nullptr;  // [b,m], [b,n]; null: all are
  DeviceDrop drop;

  // Of the backward pass alone. The gradients dq, dk, dv are [b,n,h,d], [b,m,h,d], [b,m,h,e].
  const void* gradient = nullptr;
  HeadPlaces gradient_places;
  void *dq = nullptr, *dk = nullptr, *dv = nullptr;
  float *weights = nullptr, *slopes = nullptr;  // [b,h,n,L]: after dropout, and the gradient of the bias
  Reversal readers;                             // which of a slice's places are a key
  Reversal members;                             // which rows of a head read a list; no slices without `lists`
};

// How rows are brought to shared memory: `rows` of a head in a block, `stride` places of each at once, in so many
// pieces. Several rows for a warp only where their lists are in one piece.
struct ListedPlan {
  int rows, stride, pieces;
};
[[nodiscard]] constexpr ListedPlan listed_plan(int length) {
  const int whole = (length + kRun - 1) / kRun * kRun, stride = whole < kListedPiece ? whole : kListedPiece;
  const int fit = kListedPiece / stride, each = fit < kListedRowsEach ? fit : kListedRowsEach;
  return {kListedWarps * each, stride, (length + kListedPiece - 1) / kListedPiece};
}
[[nodiscard]] constexpr int64_t listed_row_tiles(const ListedArguments& a) {
  const int rows = listed_plan(a.length).rows;
  return (a.n + rows - 1) / rows;
}
[[nodiscard]] constexpr LaunchGrid listed_rows_grid(const ListedArguments& a) {
  const ListedPlan plan = listed_plan(a.length);
  return {int64_t{a.b} * a.h * listed_row_tiles(a), plan.rows * plan.stride * 4};
}

// Where a lane stands among those of its warp that have a row: kLanes of them have all channels of a key.
template <int kWidth>
struct ListedLane {
  static constexpr int kLanes = kWidth / kRun, kSlots = kWarp / kLanes;
  int slot, column;

  template <class Thread>
  XFORMER_DEVICE explicit ListedLane(const Thread& thread)
      : slot(thread.index() % kWarp / kLanes), column(thread.index() % kLanes * kRun) {}

  // Its channels of a row of so many, zeros where there are none or the row is none.
  template <class Thread, class Value>
  XFORMER_DEVICE void load(const Thread& thread, const Value* rows, int64_t row, const RowPlaces& places, int width,
                           bool there, float* into) const {
    load_run(thread, rows + (there ? row * places.row + column : 0), there ? count(width) : 0, places.wide, into);
  }
  // To a row of a result without gaps, from the first slot; `values` are the same in all.
  template <class Thread, class Value>
  XFORMER_DEVICE void store(const Thread& thread, const float* values, int width, Value* to) const {
    if (slot == 0) store_run(thread, values, count(width), width % kRun == 0, to + column);
  }
  // Over all channels, and over all slots.
  template <class Thread>
  [[nodiscard]] XFORMER_DEVICE static float channel_sum(const Thread& thread, float value) {
    return lane_sum(thread, value, 1, kLanes);
  }
  template <class Thread>
  [[nodiscard]] XFORMER_DEVICE static float slot_sum(const Thread& thread, float value) {
    return lane_sum(thread, value, kLanes, kWarp);
  }

 private:
  [[nodiscard]] XFORMER_DEVICE int count(int width) const {
    const int left = width - column;
    return left <= 0 ? 0 : left < kRun ? left : kRun;
  }
};

// What a block does with its rows.
struct ListedRows {
  const ListedArguments& a;
  int head, sample, of_sample, first;  // of all b h; the sample, and which of its heads that is; the first row

  // Block `block` of those that have rows.
  XFORMER_DEVICE ListedRows(const ListedArguments& a, int64_t block)
      : a(a),
        head(static_cast<int>(block / listed_row_tiles(a))),
        sample(head / a.h),
        of_sample(head % a.h),
        first(static_cast<int>(block % listed_row_tiles(a)) * listed_plan(a.length).rows) {}

  // Where a head begins, and the place of a row in [b,h,n] and in [b,n,h].
  template <class Value>
  [[nodiscard]] XFORMER_DEVICE const Value* head_of(const void* x, const HeadPlaces& places) const {
    return at_head<Value>(x, places, {sample, of_sample, 0});
  }
  [[nodiscard]] XFORMER_DEVICE int64_t statistic(int row) const { return int64_t{head} * a.n + row; }
  [[nodiscard]] XFORMER_DEVICE int64_t result(int row) const { return (int64_t{sample} * a.n + row) * a.h + of_sample; }
  [[nodiscard]] XFORMER_DEVICE bool counts(int row) const {
    return row < a.n && (a.row_valid == nullptr || a.row_valid[int64_t{sample} * a.n + row]);
  }

  // visit(row, from, list, count, last) for each row that there is of this thread's warp, and each piece of its list,
  // count places from the place `from` on. As these are kept in shared memory: twice the key, plus 1 where dropout
  // takes its weight away; -1 for a place that does not count.
  template <class Thread, class Visit>
  XFORMER_DEVICE void for_pieces(const Thread& thread, const Visit& visit) const {
    const ListedPlan plan = listed_plan(a.length);
    auto* const memory = static_cast<int*>(thread.shared());
    const int warp = thread.index() / kWarp;
    for (int own = warp; own < plan.rows; own += kListedWarps) {
      for (int piece = 0; piece < plan.pieces; ++piece) {
        const int from = piece * kListedPiece, left = a.length - from;
        if (own == warp) {
          thread.sync();
          bring(thread, plan, from, memory);
          thread.sync();
        }
        if (first + own < a.n)
          visit(first + own, from, memory + own * plan.stride, left < kListedPiece ? left : kListedPiece,
                piece + 1 == plan.pieces);
      }
    }
  }

 private:
  // The places of all rows from `from` on.
  template <class Thread>
  XFORMER_DEVICE void bring(const Thread& thread, const ListedPlan& plan, int from, int* memory) const {
    const DeviceDraws draws(a.drop);
    const int64_t* const lists = a.places + (sample * a.slice_sample + of_sample * a.slice_head) * a.c * a.length;
    const bool* const valid = a.key_valid == nullptr ? nullptr : a.key_valid + int64_t{sample} * a.m;
    const int runs = plan.stride / kRun;
    for (int i = thread.index(); i < plan.rows * runs; i += kListedThreads) {
      const int row = first + i / runs, column = from + i % runs * kRun, left = a.length - column;
      const bool there = counts(row) && left > 0;
      const int64_t list = !there ? 0 : a.lists == nullptr ? row : a.lists[statistic(row)];
      uint32_t drawn[4] = {};
      if (there && draws.threshold > 0) draws.words(statistic(row) * a.length + column, drawn);
      XFORMER_UNROLL
      for (int j = 0; j < kRun; ++j) {
        const int64_t key = there && j < left ? lists[list * a.length + column + j] : -1;
        const uint32_t draw = j % 2 == 1 ? drawn[j / 2] >> 16 : drawn[j / 2] & 0xFFFF;
        memory[i * kRun + j] = key < 0 || (valid != nullptr && !valid[key])
                                   ? -1
                                   : static_cast<int>(key) * 2 + (draw < draws.threshold ? 1 : 0);
      }
    }
  }
};

// The survivors' factor.
[[nodiscard]] XFORMER_DEVICE float listed_keep(const ListedArguments& a) {
  return a.drop.threshold == 0 ? 1.0f : static_cast<float>(dropout_scale(a.drop.threshold));
}

template <int kWidth, class Value>
struct ListedAttentionForwardProgram {
  static constexpr int kThreads = kListedThreads, kResident = 4;
  using Lane = ListedLane<kWidth>;
  ListedArguments a;

  // A slot's keys so far: sums of exp(score - largest), with values and without.
  struct Found {
    float out[kRun], largest, sum;
  };

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const ListedRows rows(a, thread.block());
    const Lane lane(thread);
    float query[kRun];
    Found found;
    rows.for_pieces(thread, [&](int row, int from, const int* list, int count, bool last) {
      if (from == 0) {
        lane.load(thread, rows.template head_of<Value>(a.q, a.q_places), row, a.q_places, a.d, rows.counts(row), query);
        found = {{}, -INFINITY, 0};
      }
      const int64_t element = rows.statistic(row) * a.length + from;
      for (int step = 0; step < count; step += Lane::kSlots * kListedBatch)
        weigh(thread, rows, lane, query, element, list, count, step + lane.slot, found);
      if (last) finish(thread, rows, lane, row, found);
    });
  }

 private:
  // The slot's next keys, from place `first` of the list on.
  template <class Thread>
  XFORMER_DEVICE void weigh(const Thread& thread, const ListedRows& rows, const Lane& lane, const float* query,
                            int64_t element, const int* list, int count, int first, Found& found) const {
    const Value* const keys = rows.template head_of<Value>(a.k, a.k_places);
    const Value* const values = rows.template head_of<Value>(a.v, a.v_places);
    int place[kListedBatch];
    float score[kListedBatch], now = found.largest;
    XFORMER_UNROLL
    for (int t = 0; t < kListedBatch; ++t) {
      const int l = first + t * Lane::kSlots;
      place[t] = l < count ? list[l] : -1;
      float key[kRun], dot = 0;
      lane.load(thread, keys, place[t] / 2, a.k_places, a.d, place[t] >= 0, key);
      XFORMER_UNROLL
      for (int i = 0; i < kRun; ++i) dot += query[i] * key[i];
      dot = Lane::channel_sum(thread, dot) * a.scale;
      if (a.bias != nullptr && l < count) dot += a.bias[element + l];
      score[t] = place[t] < 0 ? -INFINITY : dot;
      now = score[t] > now ? score[t] : now;
    }
    const float shift = now == -INFINITY ? 0.0f : now, factor = thread.exp(found.largest - shift);
    found.largest = now;
    found.sum *= factor;
    XFORMER_UNROLL
    for (int i = 0; i < kRun; ++i) found.out[i] *= factor;
    XFORMER_UNROLL
    for (int t = 0; t < kListedBatch; ++t) {
      const float weight = thread.exp(score[t] - shift);
      const bool kept = place[t] >= 0 && place[t] % 2 == 0;
      float value[kRun];
      lane.load(thread, values, place[t] / 2, a.v_places, a.e, kept, value);
      found.sum += weight;
      XFORMER_UNROLL
      for (int i = 0; i < kRun; ++i) found.out[i] += weight * value[i];
    }
  }

  // The row, from what all slots have found.
  template <class Thread>
  XFORMER_DEVICE void finish(const Thread& thread, const ListedRows& rows, const Lane& lane, int row,
                             const Found& found) const {
    float largest = found.largest;
    XFORMER_UNROLL
    for (int mask = Lane::kLanes; mask < kWarp; mask *= 2) {
      const float other = thread.shuffle_xor(largest, mask);
      largest = other > largest ? other : largest;
    }
    const float factor = largest == -INFINITY ? 0.0f : thread.exp(found.largest - largest);
    const float sum = Lane::slot_sum(thread, found.sum * factor), scale = sum > 0 ? listed_keep(a) / sum : 0.0f;
    float out[kRun];
    XFORMER_UNROLL
    for (int i = 0; i < kRun; ++i) out[i] = Lane::slot_sum(thread, found.out[i] * factor) * scale;
    lane.store(thread, out, a.e, static_cast<Value*>(a.out) + rows.result(row) * a.e);
    if (thread.index() % kWarp == 0)
      a.log_sum[rows.statistic(row)] = sum > 0 ? largest + std::log(sum) : static_cast<float>(INFINITY);
  }
};

}  // namespace xformer::kernels
