// The loops over the rows of one set of tokens, in versions for each instruction set.
#include "kernels/cpu/heads.h"
#include "kernels/cpu/lanes_512.h"
#include "kernels/cpu/stored_lanes.h"
#include "kernels/token_sets/cpu.h"

namespace xformer::kernels {

namespace {

// | in place of ||, which would keep a loop from being vectorised.
template <class Value>
[[gnu::always_inline]] inline void larger(const Value* row, int64_t width, Value* __restrict largest) {
  for (int64_t c = 0; c < width; ++c) {
    const Value x = row[c], y = largest[c];
    largest[c] = ((x > y) | (x != x)) ? x : y;
  }
}

template <class Value>
[[gnu::always_inline]] inline void take(const Value* row, const Value* largest, int64_t width, Value* __restrict left,
                                        Value* __restrict out) {
  for (int64_t c = 0; c < width; ++c) {
    const bool takes = (row[c] == largest[c]) | (row[c] != row[c]);
    const Value slope = left[c];
    out[c] = takes ? slope : Value(0);
    left[c] = takes ? Value(0) : slope;
  }
}

template <class Value>
[[gnu::always_inline]] inline void largest_rows(const SetRows<Value>& of, int64_t width, Value* __restrict largest) {
  int64_t i = 0;
  while (of.valid != nullptr && i < of.count && !of.valid[i]) ++i;
  for (int64_t c = 0; c < width; ++c) largest[c] = i < of.count ? of.rows[i * of.stride + c] : Value(0);
  for (++i; i < of.count; ++i) {
    const Value* const row = of.rows + i * of.stride;
    fetch_row_ahead(row, of.stride, width);
    if (of.valid == nullptr || of.valid[i]) larger(row, width, largest);
  }
}

template <class Value>
[[gnu::always_inline]] inline void slopes_of_rows(const SetRows<Value>& of, int64_t width, const Value* largest,
                                                  Value* __restrict left, Value* __restrict out, int64_t out_stride) {
  for (int64_t i = 0; i < of.count; ++i) {
    Value* const to = out + i * out_stride;
    fetch_row_ahead(of.rows + i * of.stride, of.stride, width);
    if (of.valid == nullptr || of.valid[i]) take(of.rows + i * of.stride, largest, width, left, to);
    else
      for (int64_t c = 0; c < width; ++c) to[c] = 0;
  }
}

template <int64_t kRegister, class Stored, class Value>
[[gnu::always_inline]] inline void products(const Stored* rows, int64_t stride, const SetRun& run, const Value* x,
                                            int64_t x_stride, int64_t width, Value factor, Value* __restrict out) {
  int64_t within = 0;
  for (int64_t i = 0; i < run.tokens; ++i, ++within) {
    if (within == run.size) x += x_stride, within = 0;
    const Stored* const row = rows + i * stride;
    fetch_row_ahead(row, stride, width);
    SumRegisters<Value, kRegister> sums = {}, a, b;
    int64_t c = 0;
    for (; c + kSumLanes <= width; c += kSumLanes) {
      fetch(row + c, a), b.load_from(x + c);
      sums += a * b;
    }
    Value sum = sums.sum();
    for (; c < width; ++c) sum += widened(row[c]) * x[c];
    out[i] = factor * sum;
  }
}

// A block of channels after the other, so that its sum stays in a register.
template <int64_t kRegister, class Stored, class Value>
[[gnu::always_inline]] inline void sum_rows(const Stored* rows, int64_t stride, int64_t count, const Value* weights,
                                            int64_t width, Value factor, Value* __restrict out) {
  int64_t c = 0;
  for (; c + kSumLanes <= width; c += kSumLanes) {
    SumRegisters<Value, kRegister> sums = {}, row;
    for (int64_t i = 0; i < count; ++i) {
      if (c == 0) fetch_row_ahead(rows + i * stride, stride, width);
      if (weights[i] == 0) continue;
      fetch(rows + i * stride + c, row);
      sums += row * weights[i];
    }
    (sums * factor).store_to(out + c);
  }
  for (; c < width; ++c) {
    Value sum = 0;
    for (int64_t i = 0; i < count; ++i)
      if (weights[i] != 0) sum += weights[i] * widened(rows[i * stride + c]);
    out[c] = factor * sum;
  }
}

template <int64_t kRegister, class Stored, class Value>
[[gnu::always_inline]] inline void sum_sets(const Stored* rows, int64_t stride, const SetRun& run, const Value* weights,
                                            int64_t width, const Value* factors, Value* __restrict out,
                                            int64_t out_stride) {
  for (int64_t set = 0, first = 0; set < run.sets(); ++set, first += run.size)
    sum_rows<kRegister>(rows + first * stride, stride, std::min(run.size, run.tokens - first), weights + first, width,
                        factors[set], out + set * out_stride);
}

template <class Value>
[[gnu::always_inline]] inline void outer(const Value* x, int64_t x_stride, int64_t width, const Value* weights,
                                         const SetRun& run, Value factor, bool more, Value* __restrict rows,
                                         int64_t stride) {
  int64_t within = 0;
  for (int64_t i = 0; i < run.tokens; ++i, ++within) {
    if (within == run.size) x += x_stride, within = 0;
    const Value weight = factor * weights[i];
    Value* __restrict const row = rows + i * stride;
    if (more)
      for (int64_t c = 0; c < width; ++c) row[c] += weight * x[c];
    else
      for (int64_t c = 0; c < width; ++c) row[c] = weight * x[c];
  }
}

}  // namespace

namespace by_compiler {

XFORMER_VECTORISED
void largest_of_set(const SetRows<float>& of, int64_t width, float* largest) { largest_rows(of, width, largest); }

XFORMER_VECTORISED
void slopes_of_set(const SetRows<float>& of, int64_t width, const float* largest, float* left, float* out,
                   int64_t out_stride) {
  slopes_of_rows(of, width, largest, left, out, out_stride);
}

}  // namespace by_compiler

namespace {

const LargestLoops& loops() {
  static const LargestLoops widest = ways_to_find_largest().front();
  return widest;
}

}  // namespace

std::vector<LargestLoops> ways_to_find_largest() {
  std::vector<LargestLoops> ways;
#ifdef XFORMER_BY_512
  if (has_512()) ways.push_back({by_512::largest_of_set, by_512::slopes_of_set});
#endif
  ways.push_back({by_compiler::largest_of_set, by_compiler::slopes_of_set});
  return ways;
}

void largest_of_set(const SetRows<float>& of, int64_t width, float* largest) { loops().largest(of, width, largest); }
void largest_of_set(const SetRows<double>& of, int64_t width, double* largest) { largest_rows(of, width, largest); }

void slopes_of_set(const SetRows<float>& of, int64_t width, const float* largest, float* left, float* out,
                   int64_t out_stride) {
  loops().slopes(of, width, largest, left, out, out_stride);
}
void slopes_of_set(const SetRows<double>& of, int64_t width, const double* largest, double* left, double* out,
                   int64_t out_stride) {
  slopes_of_rows(of, width, largest, left, out, out_stride);
}

XFORMER_VECTORISED_BY_REGISTER(void, products_with,
                               (const float* rows, int64_t stride, const SetRun& run, const float* x, int64_t x_stride,
                                int64_t width, float factor, float* out),
                               (rows, stride, run, x, x_stride, width, factor, out),
                               products<kRegister>(rows, stride, run, x, x_stride, width, factor, out))
void products_with(const double* rows, int64_t stride, const SetRun& run, const double* x, int64_t x_stride,
                   int64_t width, double factor, double* out) {
  products<kPlainRegister>(rows, stride, run, x, x_stride, width, factor, out);
}
XFORMER_VECTORISED_BY_REGISTER(void, products_with,
                               (const c10::BFloat16* rows, int64_t stride, const SetRun& run, const float* x,
                                int64_t x_stride, int64_t width, float factor, float* out),
                               (rows, stride, run, x, x_stride, width, factor, out),
                               products<kRegister>(rows, stride, run, x, x_stride, width, factor, out))

XFORMER_VECTORISED_BY_REGISTER(void, weighted_sums,
                               (const float* rows, int64_t stride, const SetRun& run, const float* weights,
                                int64_t width, const float* factors, float* out, int64_t out_stride),
                               (rows, stride, run, weights, width, factors, out, out_stride),
                               sum_sets<kRegister>(rows, stride, run, weights, width, factors, out, out_stride))
void weighted_sums(const double* rows, int64_t stride, const SetRun& run, const double* weights, int64_t width,
                   const double* factors, double* out, int64_t out_stride) {
  sum_sets<kPlainRegister>(rows, stride, run, weights, width, factors, out, out_stride);
}
XFORMER_VECTORISED_BY_REGISTER(void, weighted_sums,
                               (const c10::BFloat16* rows, int64_t stride, const SetRun& run, const float* weights,
                                int64_t width, const float* factors, float* out, int64_t out_stride),
                               (rows, stride, run, weights, width, factors, out, out_stride),
                               sum_sets<kRegister>(rows, stride, run, weights, width, factors, out, out_stride))

XFORMER_VECTORISED
void spread(const float* x, int64_t x_stride, int64_t width, const float* weights, const SetRun& run, float factor,
            bool more, float* rows, int64_t stride) {
  outer(x, x_stride, width, weights, run, factor, more, rows, stride);
}
void spread(const double* x, int64_t x_stride, int64_t width, const double* weights, const SetRun& run, double factor,
            bool more, double* rows, int64_t stride) {
  outer(x, x_stride, width, weights, run, factor, more, rows, stride);
}

}  // namespace xformer::kernels
