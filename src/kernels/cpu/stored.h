// Numbers as they lie in memory and as arithmetic takes them. bf16 is computed with in float and rounded once where it
// is stored; float and double are what they are stored as, and the functions here then copy nothing. Conversions
// belong inside a tile, which is in the cache.
#pragma once

#include <ATen/OpMathType.h>
#include <torch/types.h>

#include <algorithm>
#include <type_traits>
#include <vector>

namespace xformer::kernels {

template <class Stored>
using Computed = at::opmath_type<Stored>;
template <class Stored>
inline constexpr bool kConverts = !std::is_same_v<Stored, Computed<Stored>>;

// `rows` rows of `width` numbers; each side has its own distance between rows.
void widen(int64_t rows, int64_t width, const c10::BFloat16* from, int64_t from_stride, float* to, int64_t to_stride);
// As rounding.h says.
void narrow(int64_t rows, int64_t width, const float* from, int64_t from_stride, c10::BFloat16* to, int64_t to_stride);

// The same of rows without gaps, with `added` [width] added to each before it is rounded.
void narrow_sums(int64_t rows, int64_t width, const float* from, const float* added, c10::BFloat16* to);

// Rows, each divided by its divisor before it is stored, which may be where it lies: zeros, whatever it holds, where
// `valid` (nullptr: all are) says so or the divisor is 0.
void quotient_rows(int64_t rows, int64_t width, const float* from, int64_t from_stride, const float* divisor,
                   const bool* valid, float* to, int64_t to_stride);
void quotient_rows(int64_t rows, int64_t width, const float* from, int64_t from_stride, const float* divisor,
                   const bool* valid, c10::BFloat16* to, int64_t to_stride);
void quotient_rows(int64_t rows, int64_t width, const double* from, int64_t from_stride, const double* divisor,
                   const bool* valid, double* to, int64_t to_stride);

// Rows of a tile: `stride` numbers apart.
template <class Value>
struct TileRows {
  Value* data;
  int64_t stride;
};

template <class Value>
Value* grown(std::vector<Value>& room, int64_t count) {
  if (room.size() < static_cast<size_t>(count)) room.resize(static_cast<size_t>(count));
  return room.data();
}

// Stored rows [rows, width] to compute with: where they lie, or side by side in `room`.
template <class Stored>
[[nodiscard]] TileRows<const Computed<Stored>> loaded_rows(const Stored* from, int64_t stride, int64_t rows,
                                                           int64_t width, std::vector<Computed<Stored>>& room) {
  if constexpr (kConverts<Stored>) {
    Computed<Stored>* const to = grown(room, rows * width);
    widen(rows, width, from, stride, to, width);
    return {to, width};
  } else {
    return {from, stride};
  }
}
template <class Stored>
[[nodiscard]] const Computed<Stored>* loaded(const Stored* from, int64_t count, std::vector<Computed<Stored>>& room) {
  return loaded_rows(from, count, 1, count, room).data;
}

// Where what is to be stored at `to` is computed: there, or in `room`. Afterwards store_rows() or store().
template <class Stored>
[[nodiscard]] TileRows<Computed<Stored>> rows_for(Stored* to, int64_t stride, int64_t rows, int64_t width,
                                                  std::vector<Computed<Stored>>& room) {
  if constexpr (kConverts<Stored>) return {grown(room, rows * width), width};
  else return {to, stride};
}
template <class Stored>
[[nodiscard]] Computed<Stored>* place_for(Stored* to, int64_t count, std::vector<Computed<Stored>>& room) {
  return rows_for(to, count, 1, count, room).data;
}
template <class Stored>
void store_rows(const TileRows<Computed<Stored>>& from, int64_t rows, int64_t width, Stored* to, int64_t stride) {
  if constexpr (kConverts<Stored>) narrow(rows, width, from.data, from.stride, to, stride);
}
template <class Stored>
void store(Computed<Stored>* from, int64_t count, Stored* to) {
  store_rows(TileRows<Computed<Stored>>{from, count}, 1, count, to, count);
}

// Copies what is stored, to be computed with elsewhere, where rows lie without gaps.
template <class Stored>
void take_rows(const Stored* from, int64_t stride, int64_t rows, int64_t width, Computed<Stored>* to) {
  if constexpr (kConverts<Stored>) widen(rows, width, from, stride, to, width);
  else
    for (int64_t r = 0; r < rows; ++r) std::copy_n(from + r * stride, width, to + r * width);
}
template <class Stored>
void take(const Stored* from, int64_t count, Computed<Stored>* to) {
  take_rows(from, count, 1, count, to);
}

// Copies what was computed elsewhere to where it is stored.
template <class Stored>
void put(const Computed<Stored>* from, int64_t count, Stored* to) {
  if constexpr (kConverts<Stored>) narrow(1, count, from, count, to, count);
  else std::copy_n(from, count, to);
}

// What was computed, as a product takes it: itself, or rounded in `room`.
template <class Stored>
[[nodiscard]] const Stored* factor_of(const Computed<Stored>* from, int64_t count, std::vector<Stored>& room) {
  if constexpr (kConverts<Stored>) {
    narrow(1, count, from, count, grown(room, count), count);
    return room.data();
  } else {
    return from;
  }
}

// Where a tile is to be computed that products take: where its numbers lie, or rounded in `room`.
template <class Stored>
[[nodiscard]] Stored* place_of_factor(Computed<Stored>* tile, int64_t count, std::vector<Stored>& room) {
  if constexpr (kConverts<Stored>) return grown(room, count);
  else return tile;
}

// The type that arithmetic uses for activations of a type.
[[nodiscard]] inline at::TensorOptions computed_options(const at::Tensor& activations) {
  return activations.options().dtype(at::toOpMathType(activations.scalar_type()));
}

}  // namespace xformer::kernels
