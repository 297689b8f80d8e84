#include "kernels/cpu/registers.h"
#include "kernels/token_convolution/cpu.h"

namespace xformer::kernels {

namespace {

// kConvolvedRows sums of `lanes` columns stay in registers while the rows of x go by: a row is loaded once for all.
template <int64_t lanes, int64_t kRegister, class Value>
[[gnu::always_inline]] inline void convolve_columns(Rows<const Value> x, int64_t rows, const Value* w, int64_t taps,
                                                    Rows<const Value> base, Rows<Value> out) {
  for (int64_t first = 0; first < rows; first += kConvolvedRows) {
    const int64_t count = rows - first < kConvolvedRows ? rows - first : kConvolvedRows;
    Registers<Value, lanes, kRegister> sums[kConvolvedRows] = {}, row;
    if (base.data != nullptr)
      for (int64_t r = 0; r < count; ++r) sums[r].load_from(base.data + (first + r) * base.stride);
    for (int64_t t = 0; t < taps + kConvolvedRows - 1; ++t) {
      row.load_from(x.data + (first + t) * x.stride);
      for (int64_t r = 0; r < kConvolvedRows; ++r) sums[r] += row * w[t - r];
    }
    for (int64_t r = 0; r < count; ++r) sums[r].store_to(out.data + (first + r) * out.stride);
  }
}

template <int64_t kRegister, class Value>
[[gnu::always_inline]] inline void convolve(Rows<const Value> x, int64_t rows, int64_t columns, const Value* w,
                                            int64_t taps, Rows<const Value> base, Rows<Value> out) {
  constexpr int64_t kWide = kRegister / 2, kNarrow = 8;  // two registers of floats, kConvolvedRows times
  const auto from = [&](int64_t c) { return Rows<const Value>{x.data + c, x.stride}; };
  const auto added = [&](int64_t c) { return Rows<const Value>{base.data ? base.data + c : nullptr, base.stride}; };
  const auto to = [&](int64_t c) { return Rows<Value>{out.data + c, out.stride}; };
  int64_t c = 0;
  for (; c + kWide <= columns; c += kWide) convolve_columns<kWide, kRegister>(from(c), rows, w, taps, added(c), to(c));
  for (; c + kNarrow <= columns; c += kNarrow)
    convolve_columns<kNarrow, kRegister>(from(c), rows, w, taps, added(c), to(c));
  for (; c < columns; ++c) convolve_columns<1, kRegister>(from(c), rows, w, taps, added(c), to(c));
}

// kTaps sums of `lanes` columns stay in registers while all rows go by: a row of slopes is loaded once for all of them.
constexpr int64_t kTaps = 7;  // 35 taps, Nystromformer's in LRA, are five times as many

template <int64_t taps, int64_t lanes, int64_t kRegister, class Value>
[[gnu::always_inline]] inline void correlate_columns(Rows<const Value> slope, Rows<const Value> x, int64_t rows,
                                                     Value* sums) {
  Registers<Value, lanes, kRegister> wide[taps] = {}, s, v;
  for (int64_t i = 0; i < rows; ++i) {
    s.load_from(slope.data + i * slope.stride);
    for (int64_t t = 0; t < taps; ++t) {
      v.load_from(x.data + (i + t) * x.stride);
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
[[gnu::always_inline]] inline void correlate_taps(Rows<const Value> slope, Rows<const Value> x, int64_t rows,
                                                  int64_t columns, Value* sums) {
  constexpr int64_t kWide = 16, kNarrow = 8;
  const auto at = [](const Rows<const Value>& all, int64_t c) { return Rows<const Value>{all.data + c, all.stride}; };
  int64_t c = 0;
  for (; c + kWide <= columns; c += kWide)
    correlate_columns<taps, kWide, kRegister>(at(slope, c), at(x, c), rows, sums);
  for (; c + kNarrow <= columns; c += kNarrow)
    correlate_columns<taps, kNarrow, kRegister>(at(slope, c), at(x, c), rows, sums);
  for (; c < columns; ++c) correlate_columns<taps, 1, kRegister>(at(slope, c), at(x, c), rows, sums);
}

template <int64_t kRegister, class Value>
[[gnu::always_inline]] inline void correlate(Rows<const Value> slope, Rows<const Value> x, int64_t rows,
                                             int64_t columns, int64_t taps, Value* sums) {
  const auto from = [&](int64_t t) { return Rows<const Value>{x.data + t * x.stride, x.stride}; };
  int64_t t = 0;
  for (; t + kTaps <= taps; t += kTaps) correlate_taps<kTaps, kRegister>(slope, from(t), rows, columns, sums + t);
  for (; t < taps; ++t) correlate_taps<1, kRegister>(slope, from(t), rows, columns, sums + t);
}

}  // namespace

XFORMER_VECTORISED_BY_REGISTER(void, convolve_rows,
                               (Rows<const float> x, int64_t rows, int64_t columns, const float* w, int64_t taps,
                                Rows<const float> base, Rows<float> out),
                               (x, rows, columns, w, taps, base, out),
                               convolve<kRegister>(x, rows, columns, w, taps, base, out))
void convolve_rows(Rows<const double> x, int64_t rows, int64_t columns, const double* w, int64_t taps,
                   Rows<const double> base, Rows<double> out) {
  convolve<kPlainRegister>(x, rows, columns, w, taps, base, out);
}

XFORMER_VECTORISED_BY_REGISTER(void, correlate_rows,
                               (Rows<const float> slope, Rows<const float> x, int64_t rows, int64_t columns,
                                int64_t taps, float* sums),
                               (slope, x, rows, columns, taps, sums),
                               correlate<kRegister>(slope, x, rows, columns, taps, sums))
void correlate_rows(Rows<const double> slope, Rows<const double> x, int64_t rows, int64_t columns, int64_t taps,
                    double* sums) {
  correlate<kPlainRegister>(slope, x, rows, columns, taps, sums);
}

}  // namespace xformer::kernels
