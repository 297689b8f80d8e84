// What both passes of attention over windows on the CPU share: tiles of weights, rows of one block against the columns
// that it reads, and their scores.
#pragma once

#include <ATen/Dispatch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "core/error.h"
#include "kernels/attention/weight_rows.h"
#include "kernels/cpu/add_rows.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/valid_rows.h"
#include "kernels/cpu/vectorised.h"
#include "kernels/window_attention/scratch.h"
#include "kernels/window_attention/tiles.h"
#include "kernels/window_attention/window_attention.h"

namespace xformer::kernels {

struct Tile : Cut {
  int64_t b, h, residue, block;
};

// Draws of a tile's rows `stride` apart; nullptr without dropout.
struct Drawn {
  const uint16_t* data = nullptr;
  int64_t stride = 0;
  [[nodiscard]] const uint16_t* at(int64_t row, int64_t element) const {
    return data == nullptr ? nullptr : data + row * stride + element;
  }
};

class WindowPass {
 public:
  WindowPass(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const ExtraKeys& extra,
             const RelativeKeys& relative, const WindowAttentionOptions& options, DrawnBy pass = DrawnBy::kForward)
      : q(blas_rows(q)),
        k(blas_rows(k)),
        v(blas_rows(v)),
        extra_k(blas_rows(extra.k)),
        extra_v(blas_rows(extra.v)),
        vectors(relative.defined() ? relative.vectors.to(q.scalar_type()).contiguous() : at::Tensor()),
        bias(relative.defined() ? relative.bias.contiguous() : at::Tensor()),
        b(q.size(0)),
        h(q.size(1)),
        n(q.size(2)),
        d(q.size(3)),
        e(v.size(3)),
        g(extra.count()),
        width(g + options.windows.columns_per_block()),
        windows(options.windows),
        valid(options.valid, n),
        scale(1 / std::sqrt(static_cast<double>(d))),
        draws(options.dropout,
              at::empty({1}, at::kByte).expand({b, h, windows.dilation, windows.blocks, windows.block, width}), pass) {
    XF_ASSERT(k.size(3) == d && v.size(2) == n && (g == 0 || (extra.k.size(3) == d && extra.v.size(3) == e)),
              "attention over windows takes q and k [b,h,n,d], v [b,h,n,e] and extra keys of the same widths");
    find_reach();
    gains_ = for_heads(options.bias, n);
    if (g == 0) return;
    extra_gains_ = for_heads(extra.bias, extra.k.size(2));
    if (extra.allowed.defined()) {
      const at::Tensor rows = extra.allowed.contiguous();
      extra_allowed_ = rows.expand({b, h, extra.k.size(2)});
      allowed_ = {rows.const_data_ptr<bool>(), extra_allowed_.stride(0), extra_allowed_.stride(1)};
    }
    if (!extra.places.defined()) return;
    XF_ASSERT(windows.dilation == 1 && extra.places.size(1) == windows.blocks, "places are of the {} blocks of a row",
              windows.blocks);
    places_ = extra.places.expand({h, windows.blocks, g}).contiguous();
  }

  const at::Tensor q, k, v, extra_k, extra_v;
  const at::Tensor vectors, bias;  // of distances [r,d], as products take them, and [h,r]; undefined without
  const int64_t b, h, n, d, e, g, width;
  const Windows windows;
  const ValidRows valid;
  const double scale;
  const ElementDraws draws;

  // The rows of one head and residue.
  template <class Value>
  [[nodiscard]] Residue<Value> residue(const Heads<Value>& heads, const Tile& tile) const {
    return {heads.at(tile.b, tile.h, tile.residue), heads.stride * windows.dilation};
  }

  // Where in `extra` the tile's keys are, -1 for none; nullptr: all, in order.
  [[nodiscard]] const int64_t* places(const Tile& tile) const {
    return places_.defined() ? places_.const_data_ptr<int64_t>() + (tile.h * windows.blocks + tile.block) * g : nullptr;
  }
  // The first of them where they lie side by side, but for those that are none.
  [[nodiscard]] std::optional<int64_t> side_by_side(const Tile& tile) const {
    const int64_t* const rows = places(tile);
    if (rows == nullptr) return 0;
    const int64_t* const there = std::find_if(rows, rows + g, [](int64_t place) { return place >= 0; });
    const int64_t first = there == rows + g ? 0 : *there - (there - rows);
    if (first < 0 || first + g > extra_k.size(2)) return std::nullopt;
    for (int64_t j = 0; j < g; ++j)
      if (rows[j] >= 0 && rows[j] != first + j) return std::nullopt;
    return first;
  }
  // Whether key `place` of `extra` counts.
  [[nodiscard]] bool extra_counts(const Tile& tile, int64_t place) const {
    if (place < 0 || allowed_.flags == nullptr) return place >= 0;
    return allowed_.flags[tile.b * allowed_.sample + tile.h * allowed_.head + place];
  }
  // The tile's extra keys or values of `width`: as they lie, or side by side in `room`, zero where they do not count.
  template <class Value>
  [[nodiscard]] ExtraRows<const Value> extra_rows(const Tile& tile, const Heads<const Value>& from, int64_t width,
                                                  std::vector<Value>& room) const {
    if (g == 0) return {};
    if (const auto first = side_by_side(tile)) return {from.at(tile.b, tile.h, *first), from.stride};
    const int64_t* const rows = places(tile);
    room.resize(static_cast<size_t>(g * width));
    for (int64_t j = 0; j < g; ++j) {
      if (extra_counts(tile, rows[j])) std::copy_n(from.at(tile.b, tile.h, rows[j]), width, room.data() + j * width);
      else std::fill_n(room.data() + j * width, width, Value(0));
    }
    return {room.data(), width};
  }
  // to [m,width] of the tile's head += left^T right, for left [rows, g] (lines `stride` apart) and right [rows, width].
  template <class Stored, class Value = Computed<Stored>>
  void add_extra(const Tile& tile, Value factor, const Stored* left, int64_t stride, const Operand<Stored>& right,
                 int64_t width, const Heads<Value>& to, std::vector<Value>& room) const {
    if (const auto first = side_by_side(tile)) {
      gemm(g, width, tile.rows, factor, {left, stride, true}, right, Value(1), to.at(tile.b, tile.h, *first),
           to.stride);
      return;
    }
    const int64_t* const rows = places(tile);
    room.resize(static_cast<size_t>(g * width));
    gemm(g, width, tile.rows, factor, {left, stride, true}, right, Value(0), room.data(), width);
    for (int64_t j = 0; j < g; ++j) {
      if (!extra_counts(tile, rows[j])) continue;
      add_rows(room.data() + j * width, width, 1, width, to.at(tile.b, tile.h, rows[j]));
    }
  }

  // The rows that a block reads of x, without those that the block before it read too if `around`.
  template <class Value>
  [[nodiscard]] NextRows<Value> next_rows(const Heads<const Value>& x, int64_t b, int64_t h, int64_t residue,
                                          int64_t block, int64_t width, bool around) const {
    const int64_t more = around ? windows.after : 0, begin = block * windows.block + (block > 0 ? more : 0);
    const int64_t end = std::min(windows.tokens(residue, valid.end(b)), (block + 1) * windows.block + more);
    return {x.at(b, h, residue + begin * windows.dilation), x.stride * windows.dilation, end - begin, width};
  }

  // work(tile) for the rows of one block, without the padding behind the last valid token.
  template <class Work>
  void for_tiles(int64_t sample, int64_t head, int64_t residue, int64_t block, const Work& work) const {
    for_cuts(windows, windows.tokens(residue, valid.end(sample)), block, g, vectors.defined() ? &reach(head) : nullptr,
             [&](const Cut& cut) {
               work(Tile{cut, sample, head, residue, block});
             });
  }

  // How far a head looks.
  [[nodiscard]] const Reach& reach(int64_t head) const { return reach_[static_cast<size_t>(head)]; }
  // The numbers of a head's bias from `offset` on, and so of what is laid out alike [r] or [r,d].
  [[nodiscard]] int64_t offset_place(int64_t offset) const { return offset + windows.back; }
  template <class Value>
  [[nodiscard]] const Value* bias_from(int64_t head, int64_t offset) const {
    return bias.const_data_ptr<Value>() + head * bias.size(1) + offset_place(offset);
  }
  template <class Stored>
  [[nodiscard]] Operand<Stored> vectors_from(int64_t offset, bool transposed) const {
    return {vectors.const_data_ptr<Stored>() + offset_place(offset) * d, d, transposed};
  }

  [[nodiscard]] bool counts(const Tile& tile, int64_t row) const {
    return valid.at(tile.b, tile.residue + (tile.first + row) * windows.dilation);
  }

  // The columns of the tile that a row sees.
  [[nodiscard]] RowSpan seen(const Tile& tile, int64_t row) const {
    const int64_t token = tile.first + row;
    return {std::max<int64_t>(0, token - reach(tile.h).back - tile.column),
            std::min(tile.columns, token + reach(tile.h).ahead + 1 - tile.column)};
  }
  // Of each row the scores of its line that count: none of a row that is not valid. Columns between its extra keys and
  // those that it sees are closed.
  template <class Stored>
  [[nodiscard]] RowSpan* spans(const Tile& tile, WindowScratch<Stored>& scratch) const {
    using Value = Computed<Stored>;
    RowSpan* const result = grown(scratch.spans, tile.rows);
    for (int64_t r = 0; r < tile.rows; ++r) {
      const auto [from, to] = seen(tile, r);
      result[r] = !counts(tile, r) ? RowSpan{0, 0} : RowSpan{g > 0 ? 0 : from, g + to};
      if (g == 0) continue;
      Value* const columns = scratch.scores.data() + r * line(tile) + g;
      std::fill(columns, columns + from, -std::numeric_limits<Value>::infinity());
    }
    return result;
  }

  // Elements of a tile's row in memory: extra keys, columns, and what fills up to whole vectors.
  [[nodiscard]] int64_t line(const Tile& tile) const {
    return (g + tile.columns + kSumLanes - 1) / kSumLanes * kSumLanes;
  }

  // Draws of the tile's rows, each as its line of scores.
  template <class Stored>
  [[nodiscard]] Drawn draw(const Tile& tile, WindowScratch<Stored>& scratch) const {
    if (draws.threshold() == 0) return {};
    const int64_t block = ((tile.b * h + tile.h) * windows.dilation + tile.residue) * windows.blocks + tile.block;
    const int64_t row = (block - tile.block) * windows.block + tile.first;
    const int64_t cut = tile.column - (tile.block * windows.block - windows.before);  // columns that are not read
    std::vector<uint16_t>& memory = scratch.draws;
    if (vectors.defined()) {  // of many columns few may be read
      const int64_t line = this->line(tile);
      memory.resize(std::max(memory.size(), static_cast<size_t>(tile.rows * line)));
      for (int64_t r = 0; r < tile.rows; ++r) {
        uint16_t* const to = memory.data() + r * line;
        if (g > 0) std::copy_n(draws.draw((row + r) * width, g, scratch.row_draws), g, to);
        const uint16_t* const read = draws.draw((row + r) * width + g + cut, tile.columns, scratch.row_draws);
        std::copy_n(read, tile.columns, to + g);
      }
      return {memory.data(), line};
    }
    const uint16_t* const drawn = draws.draw(row * width, tile.rows * width, memory, /*beyond=*/kSumLanes);
    if (cut == 0) return {drawn, width};
    uint16_t* const first = memory.data() + (drawn - memory.data());
    for (int64_t r = 0; r < tile.rows; ++r)
      std::copy_backward(first + r * width, first + r * width + g, first + r * width + cut + g);
    return {drawn + cut, width};
  }

  // scale q k^T of a tile [rows, line], extra keys first; -infinity where a key may not be seen for another
  // reason than its distance.
  template <class Stored, class Value = Computed<Stored>>
  void score(const Tile& tile, const Residue<const Stored>& queries, const Residue<const Stored>& keys,
             const ExtraRows<const Stored>& extra, WindowScratch<Stored>& scratch) const {
    const int64_t line = this->line(tile);
    Value* const scores = grown(scratch.scores, tile.rows * line);
    products(tile, static_cast<Value>(scale), queries, keys, extra, d, scores);
    if (vectors.defined()) score_offsets(tile, queries, scores, scratch.by_offset);
    if (gains_.defined() || extra_gains_.defined()) score_gains(tile, scores, scratch.gains);
    constexpr Value kNever = -std::numeric_limits<Value>::infinity();
    const int64_t* const rows = places(tile);
    if (rows != nullptr || allowed_.flags != nullptr) {
      for (int64_t j = 0; j < g; ++j) {
        if (extra_counts(tile, rows == nullptr ? j : rows[j])) continue;
        for (int64_t r = 0; r < tile.rows; ++r) scores[r * line + j] = kNever;
      }
    }
    if (!valid.defined()) return;
    const bool* const flags = valid.flags(tile.b) + tile.residue;
    scratch.open.resize(static_cast<size_t>(tile.columns));
    for (int64_t j = 0; j < tile.columns; ++j)
      scratch.open[static_cast<size_t>(j)] = flags[(tile.column + j) * windows.dilation];
    if (std::find(scratch.open.begin(), scratch.open.end(), 0) == scratch.open.end()) return;
    for (int64_t r = 0; r < tile.rows; ++r)
      for (int64_t j = 0; j < tile.columns; ++j)
        if (scratch.open[static_cast<size_t>(j)] == 0) scores[r * line + g + j] = kNever;
  }

  // out [rows, line] = factor left [rows, inner] right^T, for extra keys and columns.
  template <class Stored, class Value = Computed<Stored>>
  void products(const Tile& tile, Value factor, const Residue<const Stored>& left, const Residue<const Stored>& right,
                const ExtraRows<const Stored>& extra, int64_t inner, Value* out) const {
    const int64_t line = this->line(tile);
    const Operand<Stored> rows{left.row(tile.first), left.stride};
    if (g > 0) gemm(tile.rows, g, inner, factor, rows, {extra.data, extra.stride, true}, Value(0), out, line);
    gemm(tile.rows, tile.columns, inner, factor, rows, {right.row(tile.column), right.stride, true}, Value(0), out + g,
         line);
  }

 private:
  // From the head's bias, where there is one.
  void find_reach() {
    reach_.assign(static_cast<size_t>(h), {windows.back, windows.ahead});
    if (!bias.defined()) return;
    AT_DISPATCH_FLOATING_TYPES(bias.scalar_type(), "window_attention_reach", [&] {
      for (int64_t head = 0; head < h; ++head) {
        const auto far = [&](int64_t offset) {
          return *bias_from<scalar_t>(head, offset) == -std::numeric_limits<scalar_t>::infinity();
        };
        Reach& mine = reach_[static_cast<size_t>(head)];
        while (mine.back > 0 && far(-mine.back)) --mine.back;
        while (mine.ahead > 0 && far(mine.ahead)) --mine.ahead;
      }
    });
  }

  // What distances add to a tile's scores: a row's are neighbours, as its columns are.
  template <class Stored, class Value = Computed<Stored>>
  void score_offsets(const Tile& tile, const Residue<const Stored>& queries, Value* scores,
                     std::vector<Value>& room) const {
    const Offsets offsets = offsets_of(tile, reach(tile.h));
    gemm(tile.rows, offsets.count, d, static_cast<Value>(scale), {queries.row(tile.first), queries.stride},
         vectors_from<Stored>(offsets.first, /*transposed=*/true), Value(0), grown(room, tile.rows * offsets.count),
         offsets.count);
    for (int64_t r = 0; r < tile.rows; ++r) {
      const auto [from, to] = seen(tile, r);
      const int64_t offset = tile.column + from - (tile.first + r);
      Value* const row = scores + r * line(tile) + g + from;
      const int64_t count = to - from;
      add_rows(room.data() + r * offsets.count + (offset - offsets.first), count, 1, count, row);
      add_rows(bias_from<Value>(tile.h, offset), count, 1, count, row);
    }
  }

  // What biases of keys add to a tile's scores.
  template <class Value>
  void score_gains(const Tile& tile, Value* scores, std::vector<Value>& gains) const {
    gains.assign(static_cast<size_t>(g + tile.columns), Value(0));
    const int64_t* const rows = places(tile);
    const auto of_head = [&](const at::Tensor& x) {
      return x.const_data_ptr<Value>() + tile.b * x.stride(0) + tile.h * x.stride(1);
    };
    if (extra_gains_.defined()) {
      const Value* const of = of_head(extra_gains_);
      for (int64_t j = 0; j < g; ++j)
        if (const int64_t place = rows == nullptr ? j : rows[j]; place >= 0) gains[static_cast<size_t>(j)] = of[place];
    }
    if (gains_.defined()) {
      const Value* const of = of_head(gains_) + tile.residue + tile.column * windows.dilation;
      for (int64_t j = 0; j < tile.columns; ++j) gains[static_cast<size_t>(g + j)] = of[j * windows.dilation];
    }
    const int64_t count = g + tile.columns;
    for (int64_t r = 0; r < tile.rows; ++r) add_rows(gains.data(), count, 1, count, scores + r * line(tile));
  }

  // A bias of keys, of every sample and head.
  [[nodiscard]] at::Tensor for_heads(const at::Tensor& bias, int64_t keys) const {
    return bias.defined() ? bias.to(at::toOpMathType(q.scalar_type())).contiguous().expand({b, h, keys}) : at::Tensor();
  }

  at::Tensor gains_, extra_gains_;     // [b,h,n], [b,h,m]; undefined without
  at::Tensor extra_allowed_, places_;  // [b,h,m], [h,t,g]
  // Those of extra_allowed_, asked of the tensor once and not for each key.
  struct {
    const bool* flags = nullptr;
    int64_t sample = 0, head = 0;
  } allowed_;
  std::vector<Reach> reach_;
};

// Heads whose stride BLAS takes even where there is but one row.
template <class Value>
[[nodiscard]] Heads<Value> with_stride(Heads<Value> heads, int64_t width) {
  heads.stride = std::max(heads.stride, width);
  return heads;
}

}  // namespace xformer::kernels
