#include "kernels/cpu/registers.h"
#include "kernels/token_convolution/cpu.h"

namespace xformer::kernels {

namespace {

// kConvolvedRows sums of `lanes` columns stay in registers while the rows of x go by: a row is loaded once for all.
template <int64_t lanes, int64_t kRegister, class Value>
[[gnu::always_inline]] inline void convolve_columns(const Value* x, int64_t rows, int64_t columns, const Value* w,
                                                    int64_t taps, Rows<const Value> base, Rows<Value> out) {
  for (int64_t first = 0; first < rows; first += kConvolvedRows) {
    const int64_t count = rows - first < kConvolvedRows ? rows - first : kConvolvedRows;
    Registers<Value, lanes, kRegister> sums[kConvolvedRows] = {}, row;
    if (base.data != nullptr)
      for (int64_t r = 0; r < count; ++r) sums[r].load_from(base.data + (first + r) * base.stride);
    for (int64_t t = 0; t < taps + kConvolvedRows - 1; ++t) {
      row.load_from(x + (first + t) * columns);
      for (int64_t r = 0; r < kConvolvedRows; ++r) sums[r] += row * w[t - r];
    }
    for (int64_t r = 0; r < count; ++r) sums[r].store_to(out.data + (first + r) * out.stride);
  }
}

template <int64_t kRegister, class Value>
[[gnu::always_inline]] inline void convolve(const Value* x, int64_t rows, int64_t columns, const Value* w, int64_t taps,
                                            Rows<const Value> base, Rows<Value> out) {
  constexpr int64_t kWide = kRegister / 2, kNarrow = 8;  // two registers of floats, kConvolvedRows times
  const auto from = [&](int64_t c) { return Rows<const Value>{base.data ? base.data + c : nullptr, base.stride}; };
  const auto to = [&](int64_t c) { return Rows<Value>{out.data + c, out.stride}; };
  int64_t c = 0;
  for (; c + kWide <= columns; c += kWide)
    convolve_columns<kWide, kRegister>(x + c, rows, columns, w, taps, from(c), to(c));
  for (; c + kNarrow <= columns; c += kNarrow)
    convolve_columns<kNarrow, kRegister>(x + c, rows, columns, w, taps, from(c), to(c));
  for (; c < columns; ++c) convolve_columns<1, kRegister>(x + c, rows, columns, w, taps, from(c), to(c));
}

// kTaps sums of `lanes` columns stay in registers while all rows go by: a row of slopes is loaded once for all of them.
constexpr int64_t kTaps = 7;  // 35 taps, Nystromformer's in LRA, are five times as many

template <int64_t taps, int64_t lanes, int64_t kRegister, class Value>
[[gnu::always_inline]] inline void correlate_columns(const Value* slope, const Value* x, int64_t rows, int64_t columns,
                                                     Value* sums) {
  Registers<Value, lanes, kRegister> wide[taps] = {}, s, v;
  for (int64_t i = 0; i < rows; ++i) {
    s.load_from(slope + i * columns);
    for (int64_t t = 0; t < taps; ++t) {
      v.load_from(x + (i + t) * columns);
      wide[t] += s * v;
    }
  }
  for (int64_t t = 0; t < taps; ++t) {
    Value parts[lanes];
    wide[t].store_to(parts);
    for (int64_t lane = 0; lane < lanes; ++lane) sums[t] += parts[lane];
  }
}

template <int64_t taps, int64_t kRegister, class Value>
[[gnu::always_inline]] inline void correlate_taps(const Value* slope, const Value* x, int64_t rows, int64_t columns,
                                                  Value* sums) {
  constexpr int64_t kWide = 16, kNarrow = 8;
  int64_t c = 0;
  for (; c + kWide <= columns; c += kWide)
    correlate_columns<taps, kWide, kRegister>(slope + c, x + c, rows, columns, sums);
  for (; c + kNarrow <= columns; c += kNarrow)
    correlate_columns<taps, kNarrow, kRegister>(slope + c, x + c, rows, columns, sums);
  for (; c < columns; ++c) correlate_columns<taps, 1, kRegister>(slope + c, x + c, rows, columns, sums);
}

template <int64_t kRegister, class Value>
[[gnu::always_inline]] inline void correlate(const Value* slope, const Value* x, int64_t rows, int64_t columns,
                                             int64_t taps, Value* sums) {
  int64_t t = 0;
  for (; t + kTaps <= taps; t += kTaps)
    correlate_taps<kTaps, kRegister>(slope, x + t * columns, rows, columns, sums + t);
  for (; t < taps; ++t) correlate_taps<1, kRegister>(slope, x + t * columns, rows, columns, sums + t);
}

}  // namespace

XFORMER_VECTORISED_BY_REGISTER(void, convolve_rows,
                               (const float* x, int64_t rows, int64_t columns, const float* w, int64_t taps,
                                Rows<const float> base, Rows<float> out),
                               (x, rows, columns, w, taps, base, out),
                               convolve<kRegister>(x, rows, columns, w, taps, base, out))
void convolve_rows(const double* x, int64_t rows, int64_t columns, const double* w, int64_t taps,
                   Rows<const double> base, Rows<double> out) {
  convolve<kPlainRegister>(x, rows, columns, w, taps, base, out);
}

XFORMER_VECTORISED_BY_REGISTER(void, correlate_rows,
                               (const float* slope, const float* x, int64_t rows, int64_t columns, int64_t taps,
                                float* sums),
                               (slope, x, rows, columns, taps, sums),
                               correlate<kRegister>(slope, x, rows, columns, taps, sums))
void correlate_rows(const double* slope, const double* x, int64_t rows, int64_t columns, int64_t taps, double* sums) {
  correlate<kPlainRegister>(slope, x, rows, columns, taps, sums);
}

}  // namespace xformer::kernels
