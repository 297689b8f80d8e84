// The convolution along the sequence (token_convolution.h) as device programs. A block holds 64 rows of 32 columns of a
// head and what its kernel reaches around them in shared memory; rows that do not count are zeros there. A thread has
// four rows of four columns, so that a row read from shared memory serves four sums. The gradient of x is the same
// program with the kernel from its last tap to its first; that of the kernel is summed in registers over a part of the
// rows, nine taps in a warp, and parts are added afterwards, in order.
#pragma once

#include "kernels/device/heads.h"

namespace xformer::kernels {

inline constexpr int kMostTaps = 255;  // longer kernels are left to plain operations
inline constexpr int kConvolvedColumns = 32, kQuad = 4;
inline constexpr int kWarpTaps = 9, kRoundTaps = kTileThreads / kWarp * kWarpTaps;  // of the kernel's gradient

struct ConvolutionArguments {
  const float* base = nullptr;  // null: nothing is added
  HeadPlaces base_places;
  const float* x = nullptr;
  HeadPlaces x_places;
  const float* w = nullptr;  // [h,taps]
  bool turned = false;       // from the last tap to the first
  const bool* valid = nullptr;
  int64_t b = 0, h = 0, n = 0;
  int d = 0, taps = 0;
  float* result = nullptr;  // [b,n,h,d]
  float* kept = nullptr;    // [b,n,h,d]: x where it counts, zeros elsewhere; null: not wanted
  HeadPlaces result_places;

  // The kernel's gradient.
  const float* gradient = nullptr;
  HeadPlaces gradient_places;
  float* shares = nullptr;  // [b,parts,h,taps]

  // Flags of a sample's rows.
  [[nodiscard]] XFORMER_DEVICE const bool* flags(int64_t sample) const {
    return valid == nullptr ? nullptr : valid + sample * n;
  }
};

[[nodiscard]] constexpr int64_t column_chunks(int64_t d) { return (d + kConvolvedColumns - 1) / kConvolvedColumns; }
// Rows of 32 columns, and further numbers.
[[nodiscard]] constexpr int64_t convolution_bytes(int64_t rows, int64_t numbers) {
  return (rows * shared_stride(kConvolvedColumns) + numbers) * 4;
}
// A block for each 64 rows of 32 columns of every head.
[[nodiscard]] constexpr LaunchGrid convolution_grid(int64_t heads, int64_t n, int64_t d, int64_t taps) {
  return {heads * tiles_of(n) * column_chunks(d),
          convolution_bytes(2 * kTileSide + taps - 1, taps + kTileThreads / kWarp)};
}
[[nodiscard]] constexpr RowDivision kernel_division(int64_t heads, int64_t n) { return row_division(n, heads); }
// A block for each part of every head's rows.
[[nodiscard]] constexpr LaunchGrid kernel_gradient_grid(int64_t heads, int64_t n) {
  return {heads * kernel_division(heads, n).parts,
          convolution_bytes(2 * kTileSide + kRoundTaps - 1, kTileThreads / kWarp)};
}

// `rows` rows of a head from `first` on, which may lie before it, and its columns from `column` on: zeros where there
// are none and where they do not count, whatever lies there.
template <class Thread>
XFORMER_DEVICE void load_window(const Thread& thread, const float* head, const HeadPlaces& places, int column, int d,
                                int64_t first, int rows, int64_t n, const bool* valid, const SharedRows& into) {
  constexpr int kRuns = kConvolvedColumns / kRun;
  for (int place = thread.index(); place < rows * kRuns; place += kTileThreads) {
    const int row = place / kRuns, own = place % kRuns * kRun, behind = d - column - own;
    const int64_t token = first + row;
    const bool there = token >= 0 && token < n && (valid == nullptr || valid[token]);
    const int count = there ? run_length(behind) : 0;
    float values[kRun];
    load_run(thread, head + token * places.row + column + own, count, places.wide, values);
    put_run(thread, values, into.at(row, own));
  }
}

// Four neighbours in shared memory.
template <class Thread>
XFORMER_DEVICE void load_quad(const Thread& thread, const float* from, float* into) {
  uint32_t words[kQuad];
  thread.load16(from, words);
  XFORMER_UNROLL
  for (int i = 0; i < kQuad; ++i) into[i] = float_of(words[i]);
}

struct ConvolutionProgram {
  static constexpr int kThreads = kTileThreads, kResident = 6;
  ConvolutionArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    constexpr int kStride = shared_stride(kConvolvedColumns), kQuads = kConvolvedColumns / kQuad;
    auto* const memory = static_cast<float*>(thread.shared());
    const int rows = kTileSide + a.taps - 1, half = a.taps / 2;
    const SharedRows window{memory, kStride}, sums{memory + rows * kStride, kStride};
    float* const w = memory + (rows + kTileSide) * kStride;
    const HeadBlock block = head_block(a.h, thread.block() / column_chunks(a.d), a.n);
    const int column = static_cast<int>(thread.block() % column_chunks(a.d)) * kConvolvedColumns;
    const bool* const valid = a.flags(block.b);
    const int64_t end = valid_end(thread, valid, a.n, reinterpret_cast<int*>(w + a.taps));
    if (block.first < end) {
      load_window(thread, at_head<float>(a.x, a.x_places, block), a.x_places, column, a.d, block.first - half, rows,
                  a.n, valid, window);
      for (int t = thread.index(); t < a.taps; t += kTileThreads)
        w[t] = a.w[block.h * a.taps + (a.turned ? a.taps - 1 - t : t)];
      thread.sync();
      const int own = thread.index() / kQuads * kQuad, quad = thread.index() % kQuads * kQuad;
      float sum[kQuad][kQuad] = {}, tap[kQuad] = {};
      XFORMER_UNROLL_TWICE
      for (int t = 0; t < a.taps + kQuad - 1; ++t) {
        XFORMER_UNROLL
        for (int r = kQuad - 1; r > 0; --r) tap[r] = tap[r - 1];
        tap[0] = t < a.taps ? w[t] : 0.0f;
        float x[kQuad];
        load_quad(thread, window.at(own + t, quad), x);
        XFORMER_UNROLL
        for (int r = 0; r < kQuad; ++r) {
          XFORMER_UNROLL
          for (int c = 0; c < kQuad; ++c) sum[r][c] += tap[r] * x[c];
        }
      }
      XFORMER_UNROLL
      for (int r = 0; r < kQuad; ++r) {
        XFORMER_UNROLL
        for (int c = 0; c < kQuad; ++c) *sums.at(own + r, quad + c) = sum[r][c];
      }
      thread.sync();
    }
    store_rows(thread, block, column, block.first < end, valid, window, half, sums);
  }

 private:
  template <class Thread>
  XFORMER_DEVICE void store_rows(const Thread& thread, const HeadBlock& block, int column, bool any, const bool* valid,
                                 const SharedRows& window, int half, const SharedRows& sums) const {
    constexpr int kRuns = kConvolvedColumns / kRun;
    XFORMER_UNROLL_TWICE
    for (int i = 0; i < kTileSide * kRuns / kTileThreads; ++i) {
      const int place = i * kTileThreads + thread.index(), row = place / kRuns, own = place % kRuns * kRun;
      const int64_t token = block.first + row;
      const int behind = a.d - column - own;
      const int count = token < a.n ? run_length(behind) : 0;
      const bool there = count > 0 && any && (valid == nullptr || valid[token]);
      const int64_t to = block.b * a.result_places.sample + block.h * a.result_places.head +
                         token * a.result_places.row + column + own;
      float values[kRun] = {}, more[kRun] = {};
      if (there) {
        load_run(thread, sums.at(row, own), kRun, /*wide=*/true, values);
        if (a.base != nullptr)
          load_run(thread,
                   a.base + block.b * a.base_places.sample + block.h * a.base_places.head + token * a.base_places.row +
                       column + own,
                   count, a.base_places.wide, more);
        XFORMER_UNROLL
        for (int j = 0; j < kRun; ++j) values[j] += more[j];
      }
      store_run(thread, values, count, a.result_places.wide, a.result + to);
      if (a.kept == nullptr) continue;
      XFORMER_UNROLL
      for (int j = 0; j < kRun; ++j) more[j] = 0;
      if (there) load_run(thread, window.at(half + row, own), kRun, /*wide=*/true, more);
      store_run(thread, more, count, a.result_places.wide, a.kept + to);
    }
  }
};

// share[t] = sum over a part of the rows i of gradient_i x_(i + t - taps / 2).
struct KernelGradientProgram {
  static constexpr int kThreads = kTileThreads, kResident = 6;
  ConvolutionArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    constexpr int kStride = shared_stride(kConvolvedColumns);
    auto* const memory = static_cast<float*>(thread.shared());
    const SharedRows slopes{memory, kStride}, window{memory + kTileSide * kStride, kStride};
    constexpr int kRows = kTileSide + kRoundTaps - 1;
    const RowDivision division = kernel_division(a.b * a.h, a.n);
    const int64_t part = thread.block() % division.parts, head = thread.block() / division.parts;
    const int64_t b = head / a.h, h = head % a.h;
    const bool* const valid = a.flags(b);
    const int64_t end = valid_end(thread, valid, a.n, reinterpret_cast<int*>(memory + (kTileSide + kRows) * kStride));
    const int64_t begin_tile = part * division.part_tiles;
    const int64_t end_tile = std::min(begin_tile + division.part_tiles, tiles_of(end));
    const float* const x = a.x + b * a.x_places.sample + h * a.x_places.head;
    const float* const gradient = a.gradient + b * a.gradient_places.sample + h * a.gradient_places.head;
    const int warp = thread.index() / kWarp, lane = thread.index() % kWarp;
    for (int round = 0; round < a.taps; round += kRoundTaps) {
      const int first_tap = round + warp * kWarpTaps;
      float sum[kWarpTaps] = {};
      for (int64_t tile = begin_tile; tile < end_tile; ++tile)
        for (int column = 0; column < a.d; column += kConvolvedColumns) {
          const int64_t first = tile * kTileSide;
          thread.sync();
          load_window(thread, gradient, a.gradient_places, column, a.d, first, kTileSide, a.n, valid, slopes);
          load_window(thread, x, a.x_places, column, a.d, first - a.taps / 2 + round, kRows, a.n, valid, window);
          thread.sync();
          if (first_tap < a.taps) add_products(thread, slopes, window, warp * kWarpTaps, lane, sum);
        }
      XFORMER_UNROLL
      for (int t = 0; t < kWarpTaps; ++t) {
        const float all = lane_sum(thread, sum[t], 1, kWarp);
        if (lane == 0 && first_tap + t < a.taps)
          a.shares[((b * division.parts + part) * a.h + h) * a.taps + first_tap + t] = all;
      }
    }
  }

 private:
  // sum[t] += slope row i . window row i + first + t, over the lane's rows and columns.
  template <class Thread>
  XFORMER_DEVICE static void add_products(const Thread& thread, const SharedRows& slopes, const SharedRows& window,
                                          int first, int lane, float (&sum)[kWarpTaps]) {
    constexpr int kQuads = kConvolvedColumns / kQuad, kLaneRows = kTileSide / (kWarp / kQuads);
    const int quad = lane % kQuads * kQuad, begin = lane / kQuads * kLaneRows;
    for (int i = begin; i < begin + kLaneRows; i += kQuad) {
      float slope[kQuad][kQuad];
      XFORMER_UNROLL
      for (int r = 0; r < kQuad; ++r) load_quad(thread, slopes.at(i + r, quad), slope[r]);
      XFORMER_UNROLL
      for (int k = 0; k < kWarpTaps + kQuad - 1; ++k) {
        float x[kQuad];
        load_quad(thread, window.at(i + first + k, quad), x);
        XFORMER_UNROLL
        for (int r = 0; r < kQuad; ++r) {
          const int t = k - r;
          if (t < 0 || t >= kWarpTaps) continue;
          XFORMER_UNROLL
          for (int c = 0; c < kQuad; ++c) sum[t] += slope[r][c] * x[c];
        }
      }
    }
  }
};

// launch(grid, program) of the convolution, or of the kernel's gradient.
template <class Launch>
auto run_convolution(const ConvolutionArguments& a, const Launch& launch) {
  return a.shares == nullptr ? launch(convolution_grid(a.b * a.h, a.n, a.d, a.taps), ConvolutionProgram{a})
                             : launch(kernel_gradient_grid(a.b * a.h, a.n), KernelGradientProgram{a});
}

}  // namespace xformer::kernels
