#include "kernels/hashed_attention/token_rows.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/row_sums.h"
#include "kernels/cpu/vectorised.h"

namespace xformer::kernels {

namespace {

template <class Value>
[[gnu::always_inline]] inline void add_at(const Value* __restrict rows, int64_t width, const int32_t* tokens,
                                          int64_t count, Value* __restrict into) {
  for (int64_t i = 0; i < count; ++i) {
    if (tokens[i] < 0) continue;
    Value* __restrict const place = into + tokens[i] * width;
    for (int64_t j = 0; j < width; ++j) place[j] += rows[i * width + j];
  }
}

template <class Value>
void put_at(const Value* rows, int64_t width, const int32_t* tokens, int64_t count, Value* into) {
  for (int64_t i = 0; i < count; ++i)
    if (tokens[i] >= 0) std::copy_n(rows + i * width, width, into + tokens[i] * width);
}

template <class Value>
[[gnu::always_inline]] inline void scale(const Value* __restrict rows, int64_t width, const int32_t* tokens,
                                         int64_t count, const Value* factors, Value* __restrict to) {
  for (int64_t i = 0; i < count; ++i) {
    const Value factor = tokens[i] < 0 ? Value(0) : factors[tokens[i]];
    for (int64_t j = 0; j < width; ++j) to[i * width + j] = factor * rows[i * width + j];
  }
}

template <class Value>
[[gnu::always_inline]] inline void mix(Value* __restrict into, const Value* __restrict row, int64_t width, Value old,
                                       Value now) {
  for (int64_t j = 0; j < width; ++j) into[j] = into[j] * old + row[j] * now;
}

// A lane remembers its own largest and where it was, the first of equal ones.
template <class Place, class Value>
[[gnu::always_inline]] inline int64_t largest_of(const Value* x, int64_t count) {
  using Places = typename Vector<Place, kSumLanes>::Lanes;
  SumLanes<Value> largest = SumLanes<Value>{} - 1, part;
  Places place = {}, now;
  for (int64_t lane = 0; lane < kSumLanes; ++lane) now[lane] = static_cast<Place>(lane);
  int64_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes, now += static_cast<Place>(kSumLanes)) {
    load(x + i, part);
    part = part < 0 ? -part : part;
    place = part > largest ? now : place;
    largest = part > largest ? part : largest;
  }
  Value most = -1;
  int64_t result = 0;
  if (i > 0) {
    most = largest_lane<kSumLanes, Value>(largest);
    const Places behind = Places{} - static_cast<Place>(count);
    place = largest == most ? -place : behind;
    result = -static_cast<int64_t>(largest_lane<kSumLanes, Place>(place));
    result = result < count ? result : 0;
  }
  for (; i < count; ++i) {
    const Value size = x[i] < 0 ? -x[i] : x[i];
    if (size > most) most = size, result = i;
  }
  return result;
}

// Without a branch, which would go wrong every other time.
template <class Value>
[[gnu::always_inline]] inline int64_t with_sign(const Value* x, int64_t place, int64_t count) {
  return place + static_cast<int64_t>(x[place] < 0) * count;
}

template <class Index>
[[gnu::always_inline]] inline void gather(const void* from, int64_t stride, int64_t width, const Index* tokens,
                                          int64_t count, void* rows) {
  constexpr int64_t kStep = 32, kAhead = 16;  // tokens lie anywhere, so nobody else fetches those that come
  const auto* const source = static_cast<const char*>(from);
  auto* const to = static_cast<char*>(rows);
  for (int64_t i = 0; i < count; ++i) {
    char* const row = to + i * width;
    if (i + kAhead < count && tokens[i + kAhead] >= 0) __builtin_prefetch(source + tokens[i + kAhead] * stride);
    if (tokens[i] < 0) {
      std::memset(row, 0, static_cast<size_t>(width));
      continue;
    }
    const char* const token = source + tokens[i] * stride;
    int64_t j = 0;
    for (; j + kStep <= width; j += kStep) std::memcpy(row + j, token + j, kStep);
    if (j < width) std::memcpy(row + j, token + j, static_cast<size_t>(width - j));
  }
}

}  // namespace

XFORMER_VECTORISED
void gather_rows(const void* from, int64_t stride, int64_t width, const int32_t* tokens, int64_t count, void* rows) {
  gather(from, stride, width, tokens, count, rows);
}
XFORMER_VECTORISED
void gather_rows(const void* from, int64_t stride, int64_t width, const int64_t* tokens, int64_t count, void* rows) {
  gather(from, stride, width, tokens, count, rows);
}

void put_rows_at(const float* rows, int64_t width, const int32_t* tokens, int64_t count, float* into) {
  put_at(rows, width, tokens, count, into);
}
void put_rows_at(const double* rows, int64_t width, const int32_t* tokens, int64_t count, double* into) {
  put_at(rows, width, tokens, count, into);
}

XFORMER_VECTORISED
void add_rows_at(const float* rows, int64_t width, const int32_t* tokens, int64_t count, float* into) {
  add_at(rows, width, tokens, count, into);
}
void add_rows_at(const double* rows, int64_t width, const int32_t* tokens, int64_t count, double* into) {
  add_at(rows, width, tokens, count, into);
}

XFORMER_VECTORISED
void scale_rows(const float* rows, int64_t width, const int32_t* tokens, int64_t count, const float* factors,
                float* to) {
  scale(rows, width, tokens, count, factors, to);
}
void scale_rows(const double* rows, int64_t width, const int32_t* tokens, int64_t count, const double* factors,
                double* to) {
  scale(rows, width, tokens, count, factors, to);
}

XFORMER_VECTORISED
void mix_row(float* into, const float* row, int64_t width, float old, float now) { mix(into, row, width, old, now); }
void mix_row(double* into, const double* row, int64_t width, double old, double now) {
  mix(into, row, width, old, now);
}

XFORMER_VECTORISED
int64_t digit_of(const float* x, int64_t count) { return with_sign(x, largest_of<int32_t>(x, count), count); }
int64_t digit_of(const double* x, int64_t count) { return with_sign(x, largest_of<int64_t>(x, count), count); }

}  // namespace xformer::kernels
