// Attention over windows on the CPU: for each block of rows one tile of weights, which stays in the cache.
#include "kernels/window_attention/cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include "kernels/attention/cpu.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/units.h"
#include "kernels/window_attention/offset_sums.h"
#include "kernels/window_attention/pass.h"

namespace xformer::kernels {

namespace {

// As many rows of the next block as this row of its tile stands for.
template <class Stored>
[[gnu::always_inline]] inline void prefetch(const WindowPass& pass, const Tile& tile, int64_t row,
                                            const WindowScratch<Stored>& scratch) {
  for (const NextRows<Stored>& next : scratch.next) next.prefetch(tile.first - tile.block * pass.windows.block + row);
}

// Rows between which others are asked for.
constexpr int64_t kAtOnce = 8;

// work(first, rows, draws of each) for a tile's rows, a few at once.
template <class Stored, class Work>
void for_rows(const WindowPass& pass, const Tile& tile, const Drawn& draws, const WindowScratch<Stored>& scratch,
              const Work& work) {
  const uint16_t* starts[kAtOnce];
  for (int64_t first = 0; first < tile.rows; first += kAtOnce) {
    const int64_t rows = std::min(kAtOnce, tile.rows - first);
    for (int64_t r = 0; r < rows; ++r) {
      prefetch(pass, tile, first + r, scratch);
      starts[r] = draws.at(first + r, 0);
    }
    work(first, rows, starts);
  }
}

// Weights of a tile from its scores, as products take them and not yet divided by their sums, and the sums and
// log-sums, `lowest` of no keys.
template <class Stored, class Value = Computed<Stored>>
const Stored* weigh(const WindowPass& pass, const Tile& tile, Value lowest, WindowScratch<Stored>& scratch, Value* sums,
                    Value* log_sums) {
  const int64_t line = pass.line(tile);
  const Drawn draws = pass.draw(tile, scratch);
  const RowSpan* const spans = pass.spans(tile, scratch);
  Value* const scores = scratch.scores.data();
  Stored* const weights = place_of_factor<Stored>(scores, tile.rows * line, scratch.factor);
  std::fill_n(sums, tile.rows, Value(0));
  std::fill_n(log_sums, tile.rows, -std::numeric_limits<Value>::infinity());
  for_rows(pass, tile, draws, scratch, [&](int64_t first, int64_t rows, const uint16_t* const* starts) {
    Value rescale[kAtOnce];
    weigh_tile({rows, line, line, scores + first * line, static_cast<Value>(kLog2OfE), starts, pass.draws.threshold(),
                static_cast<Value>(pass.draws.keep()), log_sums + first, sums + first, rescale, spans + first},
               weights + first * line);
  });
  log_rows(log_sums, sums, tile.rows, lowest, log_sums);
  return weights;
}

// The place of each of a tile's rows in [b,h,n].
int64_t place(const WindowPass& pass, const Tile& tile, int64_t row) {
  return (tile.b * pass.h + tile.h) * pass.n + tile.residue + (tile.first + row) * pass.windows.dilation;
}

// Gradients of a tile's scores and its weights after dropout, in place of the scores' gradient and the scores.
template <class Stored, class Value = Computed<Stored>>
void slopes(const WindowPass& pass, const Tile& tile, const Residue<const Stored>& out,
            const Residue<const Stored>& gradient, const Value* log_sum, const Value* log_sum_gradient, Value lowest,
            WindowScratch<Stored>& scratch) {
  const int64_t line = pass.line(tile), first_place = place(pass, tile, 0);
  const Drawn draws = pass.draw(tile, scratch);
  RowSpan* const spans = pass.spans(tile, scratch);
  // What softmax's gradient takes off: a row's sum of out * gradient.
  Value *const deltas = grown(scratch.deltas, 2 * tile.rows), *const shifts = deltas + tile.rows;
  const auto outs = loaded_rows(out.row(tile.first), out.stride, tile.rows, pass.e, scratch.rows),
             given = loaded_rows(gradient.row(tile.first), gradient.stride, tile.rows, pass.e, scratch.slopes);
  row_products(tile.rows, pass.e, outs.data, outs.stride, given.data, given.stride, deltas);
  for (int64_t r = 0; r < tile.rows; ++r) {
    const int64_t at = first_place + r * pass.windows.dilation;
    shifts[r] = static_cast<Value>(kLog2OfE) * log_sum[at];
    if (log_sum[at] == lowest) spans[r] = {0, 0};
    if (log_sum_gradient != nullptr) deltas[r] -= log_sum_gradient[at];
  }
  for_rows(pass, tile, draws, scratch, [&](int64_t first, int64_t rows, const uint16_t* const* starts) {
    slope_tile(SlopeTile<Value>{rows, line, line, scratch.scores.data() + first * line,
                                scratch.gradient.data() + first * line, static_cast<Value>(kLog2OfE), starts,
                                pass.draws.threshold(), static_cast<Value>(pass.draws.keep()), shifts + first,
                                deltas + first, spans + first});
  });
}

template <class Value>
Heads<const Value> heads_of(const at::Tensor& x) {
  return x.defined() ? with_stride(reading<Value>(x), x.size(3)) : Heads<const Value>{};
}

// Where the gradients [rows, width] of a head are added up: where they are stored, or in `room`. Then store_sums().
template <class Stored, class Value = Computed<Stored>>
Heads<Value> sums_for(const Heads<Stored>& to, int64_t rows, int64_t width, std::vector<Value>& room) {
  if constexpr (kConverts<Stored>) return {grown(room, rows * width), 0, 0, width};
  else return to;
}
template <class Stored>
void store_sums(const Heads<Computed<Stored>>& sums, int64_t b, int64_t h, int64_t rows, int64_t width,
                const Heads<Stored>& to) {
  store_rows(TileRows<Computed<Stored>>{sums.at(b, h), sums.stride}, rows, width, to.at(b, h), to.stride);
}

template <class Value>
void zero_rows(const Heads<Value>& heads, int64_t b, int64_t h, int64_t from, int64_t to, int64_t width) {
  for (int64_t i = from; i < to; ++i) std::fill_n(heads.at(b, h, i), width, Value(0));
}

}  // namespace

WindowAttentionForward window_attention_forward_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                    const ExtraKeys& extra, const RelativeKeys& relative,
                                                    const WindowAttentionOptions& options) {
  const WindowPass pass(q, k, v, extra, relative, options);
  const Windows& windows = pass.windows;
  WindowAttentionForward result{new_heads(q, pass.n, pass.e),
                                at::empty({pass.b, pass.h, pass.n, 1}, computed_options(q))};
  // Blocks go by in runs, so that a thread knows which one it will take next.
  const int64_t all = windows.dilation * windows.blocks, run = std::clamp<int64_t>(pass.b * pass.h * all / 256, 1, 16);
  const int64_t runs = (all + run - 1) / run, units = pass.b * pass.h * runs;
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, q.scalar_type(), "window_attention", [&] {
    using Value = Computed<scalar_t>;
    std::vector<WindowScratch<scalar_t>> scratch(static_cast<size_t>(workers_for(units)));
    const auto queries = with_stride(reading<scalar_t>(pass.q), pass.d);
    const auto keys = with_stride(reading<scalar_t>(pass.k), pass.d);
    const auto values = with_stride(reading<scalar_t>(pass.v), pass.e);
    const auto out = with_stride(writing<scalar_t>(result.out), pass.e);
    const auto extra_keys = heads_of<scalar_t>(pass.extra_k), extra_values = heads_of<scalar_t>(pass.extra_v);
    auto* const log_sums = result.log_sum.mutable_data_ptr<Value>();
    const auto lowest = static_cast<Value>(lowest_log_sum(q.scalar_type()));
    const auto look_ahead = [&](int64_t b, int64_t h, int64_t one, WindowScratch<scalar_t>& mine) {
      const int64_t residue = one / windows.blocks, block = one % windows.blocks;
      mine.next = {pass.next_rows(queries, b, h, residue, block, pass.d, false),
                   pass.next_rows(keys, b, h, residue, block, pass.d, true),
                   pass.next_rows(values, b, h, residue, block, pass.e, true),
                   pass.next_rows(Heads<const scalar_t>{out.data, out.batch_stride, out.head_stride, out.stride}, b, h,
                                  residue, block, pass.e, false)};
    };
    for_units(units, run * windows.block * (windows.columns_per_block() + pass.g) * (pass.d + pass.e),
              [&](int64_t unit, int64_t worker) {
                WindowScratch<scalar_t>& mine = scratch[static_cast<size_t>(worker)];
                const int64_t b = unit / runs / pass.h, h = unit / runs % pass.h;
                const int64_t last_one = std::min(all, (unit % runs + 1) * run);
                for (int64_t one = unit % runs * run; one < last_one; ++one) {
                  const int64_t residue = one / windows.blocks, block = one % windows.blocks;
                  if (one + 1 < last_one) look_ahead(b, h, one + 1, mine);
                  else mine.next.clear();
                  pass.for_tiles(b, h, residue, block, [&](const Tile& tile) {
                    const auto rows = pass.residue(out, tile);
                    const auto from = pass.residue(values, tile);
                    const int64_t line = pass.line(tile);
                    pass.score(tile, pass.residue(queries, tile), pass.residue(keys, tile),
                               pass.extra_rows(tile, extra_keys, pass.d, mine.extra_k), mine);
                    Value *const sums = grown(mine.gradient, 2 * tile.rows), *const logs = sums + tile.rows;
                    const scalar_t* const weights = weigh(pass, tile, lowest, mine, sums, logs);
                    const auto to = rows_for(rows.row(tile.first), rows.stride, tile.rows, pass.e, mine.out);
                    if (pass.g > 0) {
                      const auto more = pass.extra_rows(tile, extra_values, pass.e, mine.extra_v);
                      gemm(tile.rows, pass.e, pass.g, Value(1), {weights, line}, {more.data, more.stride}, Value(0),
                           to.data, to.stride);
                    }
                    gemm(tile.rows, pass.e, tile.columns, Value(1), {weights + pass.g, line},
                         {from.row(tile.column), from.stride}, Value(pass.g > 0), to.data, to.stride);
                    quotient_rows(tile.rows, pass.e, to.data, to.stride, sums, nullptr, rows.row(tile.first),
                                  rows.stride);
                    for (int64_t r = 0; r < tile.rows; ++r) log_sums[place(pass, tile, r)] = logs[r];
                  });
                  // Padding behind the last valid token.
                  const int64_t last = std::min(windows.tokens(residue, pass.n), (block + 1) * windows.block);
                  for (int64_t i = std::max(windows.tokens(residue, pass.valid.end(b)), block * windows.block);
                       i < last; ++i) {
                    const int64_t token = residue + i * windows.dilation;
                    std::fill_n(out.at(b, h, token), pass.e, scalar_t(0));
                    log_sums[(b * pass.h + h) * pass.n + token] = lowest;
                  }
                }
              });
  });
  return result;
}

WindowAttentionGradients window_attention_backward_cpu(const at::Tensor& out_gradient,
                                                       const at::Tensor& log_sum_gradient, const at::Tensor& q,
                                                       const at::Tensor& k, const at::Tensor& v, const ExtraKeys& extra,
                                                       const RelativeKeys& relative,
                                                       const WindowAttentionForward& forward,
                                                       const WindowAttentionOptions& options) {
  const WindowPass pass(q, k, v, extra, relative, options, DrawnBy::kBackward);
  const Windows& windows = pass.windows;
  const at::Tensor gradient = blas_rows(out_gradient.defined() ? out_gradient : at::zeros_like(forward.out));
  const at::Tensor log_slopes = log_sum_gradient.defined() ? log_sum_gradient.contiguous() : at::Tensor();
  WindowAttentionGradients result{
      new_heads(q, pass.n, pass.d), new_heads(q, pass.n, pass.d), new_heads(q, pass.n, pass.e), {}, {}, {}, {}};
  const OffsetSums offset_sums(pass);
  if (pass.g > 0) {
    // Heads or tokens outside, as where they come from.
    const auto like = [](const at::Tensor& x) {
      return x.stride(1) > x.stride(2) ? at::empty(x.sizes(), x.options()) : new_heads(x, x.size(2), x.size(3));
    };
    result.extra_k = like(extra.k);
    result.extra_v = like(extra.v);
  }
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, q.scalar_type(), "window_attention_backward", [&] {
    using Value = Computed<scalar_t>;
    std::vector<WindowScratch<scalar_t>> scratch(static_cast<size_t>(workers_for(pass.b * pass.h)));
    const auto queries = with_stride(reading<scalar_t>(pass.q), pass.d);
    const auto keys = with_stride(reading<scalar_t>(pass.k), pass.d);
    const auto values = with_stride(reading<scalar_t>(pass.v), pass.e);
    const auto outs = reading<scalar_t>(forward.out);
    const auto given = with_stride(reading<scalar_t>(gradient), pass.e);
    const auto q_to = with_stride(writing<scalar_t>(result.q), pass.d),
               k_to = with_stride(writing<scalar_t>(result.k), pass.d),
               v_to = with_stride(writing<scalar_t>(result.v), pass.e);
    const auto extra_keys = heads_of<scalar_t>(pass.extra_k), extra_values = heads_of<scalar_t>(pass.extra_v);
    const int64_t extras = pass.g > 0 ? extra.k.size(2) : 0;
    Heads<scalar_t> extra_k_to{}, extra_v_to{};
    if (pass.g > 0) {
      extra_k_to = with_stride(writing<scalar_t>(result.extra_k), pass.d);
      extra_v_to = with_stride(writing<scalar_t>(result.extra_v), pass.e);
    }
    const auto* const log_sums = forward.log_sum.const_data_ptr<Value>();
    const auto* const log_gradients = log_slopes.defined() ? log_slopes.const_data_ptr<Value>() : nullptr;
    const auto lowest = static_cast<Value>(lowest_log_sum(q.scalar_type()));
    const auto scale = static_cast<Value>(pass.scale);
    const auto look_ahead = [&](int64_t b, int64_t h, int64_t one, WindowScratch<scalar_t>& mine) {
      const int64_t residue = one / windows.blocks, block = one % windows.blocks;
      mine.next = {pass.next_rows(queries, b, h, residue, block, pass.d, false),
                   pass.next_rows(keys, b, h, residue, block, pass.d, true),
                   pass.next_rows(values, b, h, residue, block, pass.e, true),
                   pass.next_rows(outs, b, h, residue, block, pass.e, false),
                   pass.next_rows(given, b, h, residue, block, pass.e, false)};
    };
    // Blocks that share no keys: the first tile of each writes their gradients, the others add to them.
    const bool alone = windows.before == 0 && windows.after == 0 && !pass.vectors.defined();
    // Windows overlap: a head's key gradients are added up by one thread, block after block.
    for_units(pass.b * pass.h, pass.n * (windows.columns_per_block() + pass.g) * (pass.d + pass.e),
              [&](int64_t unit, int64_t worker) {
                WindowScratch<scalar_t>& mine = scratch[static_cast<size_t>(worker)];
                const int64_t b = unit / pass.h, h = unit % pass.h;
                const int64_t end = pass.valid.end(b), sums_from = alone ? end : 0;
                const auto dq = sums_for(q_to, pass.n, pass.d, mine.dq), dk = sums_for(k_to, pass.n, pass.d, mine.dk),
                           dv = sums_for(v_to, pass.n, pass.e, mine.dv),
                           extra_dk = sums_for(extra_k_to, extras, pass.d, mine.extra_dk),
                           extra_dv = sums_for(extra_v_to, extras, pass.e, mine.extra_dv);
                zero_rows(extra_dk, b, h, 0, extras, pass.d);
                zero_rows(extra_dv, b, h, 0, extras, pass.e);
                zero_rows(dk, b, h, sums_from, pass.n, pass.d);
                zero_rows(dv, b, h, sums_from, pass.n, pass.e);
                zero_rows(dq, b, h, end, pass.n, pass.d);
                const auto add = [&](const Tile& tile) {
                  const int64_t g = pass.g, rows = tile.rows, columns = tile.columns, line = pass.line(tile);
                  const auto slope = pass.residue(given, tile);
                  const auto query = pass.residue(queries, tile), key = pass.residue(keys, tile),
                             value = pass.residue(values, tile);
                  const auto to_q = pass.residue(dq, tile), to_k = pass.residue(dk, tile),
                             to_v = pass.residue(dv, tile);
                  const auto more_k = pass.extra_rows(tile, extra_keys, pass.d, mine.extra_k),
                             more_v = pass.extra_rows(tile, extra_values, pass.e, mine.extra_v);
                  pass.score(tile, query, key, more_k, mine);
                  Value* const steps = grown(mine.gradient, rows * line);
                  pass.products(tile, Value(1), slope, value, more_v, pass.e, steps);
                  slopes(pass, tile, pass.residue(outs, tile), slope, log_sums, log_gradients, lowest, mine);
                  const Operand<scalar_t> q_rows{query.row(tile.first), query.stride},
                      o_rows{slope.row(tile.first), slope.stride};
                  const scalar_t *const weights = factor_of<scalar_t>(mine.scores.data(), rows * line, mine.factor),
                                        *const step_rows = factor_of<scalar_t>(steps, rows * line, mine.slope_factor);
                  if (g > 0) {
                    gemm(rows, pass.d, g, scale, {step_rows, line}, {more_k.data, more_k.stride}, Value(0),
                         to_q.row(tile.first), to_q.stride);
                    pass.add_extra(tile, Value(1), weights, line, o_rows, pass.e, extra_dv, mine.extra_sums);
                    pass.add_extra(tile, scale, step_rows, line, q_rows, pass.d, extra_dk, mine.extra_sums);
                  }
                  const auto more = Value(!alone || tile.first > tile.block * windows.block);
                  gemm(columns, pass.e, rows, Value(1), {weights + g, line, true}, o_rows, more, to_v.row(tile.column),
                       to_v.stride);
                  gemm(columns, pass.d, rows, scale, {step_rows + g, line, true}, q_rows, more, to_k.row(tile.column),
                       to_k.stride);
                  gemm(rows, pass.d, columns, scale, {step_rows + g, line}, {key.row(tile.column), key.stride},
                       Value(g > 0), to_q.row(tile.first), to_q.stride);
                  if (pass.vectors.defined()) offset_sums.add(pass, tile, steps, q_rows, to_q, mine);
                };
                for (int64_t one = 0; one < windows.dilation * windows.blocks; ++one) {
                  if (one + 1 < windows.dilation * windows.blocks) look_ahead(b, h, one + 1, mine);
                  else mine.next.clear();
                  pass.for_tiles(b, h, one / windows.blocks, one % windows.blocks, add);
                }
                store_sums(dq, b, h, pass.n, pass.d, q_to);
                store_sums(dk, b, h, pass.n, pass.d, k_to);
                store_sums(dv, b, h, pass.n, pass.e, v_to);
                store_sums(extra_dk, b, h, extras, pass.d, extra_k_to);
                store_sums(extra_dv, b, h, extras, pass.e, extra_v_to);
              });
  });
  offset_sums.finish(pass, result);
  return result;
}

double relative_products(const Windows& windows, int64_t back, int64_t ahead) {
  const Reach reach{std::min(back, windows.back), std::min(ahead, windows.ahead)};
  int64_t products = 0;
  for (int64_t residue = 0; residue < std::min(windows.dilation, windows.length); ++residue)
    for (int64_t block = 0; block < windows.blocks; ++block)
      for_cuts(windows, windows.tokens(residue, windows.length), block, 0, &reach,
               [&](const Cut& cut) { products += cut.rows * (2 * cut.columns + offsets_of(cut, reach).count); });
  return static_cast<double>(products);
}

}  // namespace xformer::kernels
