#include "kernels/cpu/pack.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/lanes_512.h"
#include "kernels/cpu/rounding.h"
#include "kernels/cpu/vectorised.h"

namespace xformer::kernels {

namespace {

// As Vector, but anywhere in memory.
template <class Value, int64_t lanes>
struct Unaligned {
  typedef Value Lanes __attribute__((vector_size(lanes * sizeof(Value)), aligned(2), may_alias));
};

// to [rows, columns] from [columns, rows], whose rows begin `stride` bytes apart, 4 x 8 at a time: two half rows are
// joined as they are loaded, so that only two exchanges between registers are left.
// map(lanes) changes numbers, one or more at once, before they are written.
template <class Value, class Map>
[[gnu::always_inline]] inline void transpose(int64_t rows, int64_t columns, const void* from, int64_t stride, Value* to,
                                             int64_t to_stride, const Map& map) {
  const auto place = [&](int64_t row, int64_t column) {
    return static_cast<const char*>(from) + row * stride + column * static_cast<int64_t>(sizeof(Value));
  };
  using Half = typename Unaligned<Value, 4>::Lanes;
  using Whole = typename Unaligned<Value, 8>::Lanes;
  const int64_t whole_rows = rows / 4 * 4, whole_columns = columns / 8 * 8;
  for (int64_t j = 0; j < whole_columns; j += 8) {
    for (int64_t i = 0; i < whole_rows; i += 4) {
      Whole joined[4];
      for (int64_t column = 0; column < 4; ++column)
        joined[column] =
            __builtin_shufflevector(*reinterpret_cast<const Half*>(place(j + column, i)),
                                    *reinterpret_cast<const Half*>(place(j + column + 4, i)), 0, 1, 2, 3, 4, 5, 6, 7);
      const Whole a = __builtin_shufflevector(joined[0], joined[1], 0, 8, 1, 9, 4, 12, 5, 13),
                  b = __builtin_shufflevector(joined[2], joined[3], 0, 8, 1, 9, 4, 12, 5, 13),
                  c = __builtin_shufflevector(joined[0], joined[1], 2, 10, 3, 11, 6, 14, 7, 15),
                  d = __builtin_shufflevector(joined[2], joined[3], 2, 10, 3, 11, 6, 14, 7, 15);
      Whole turned[4] = {__builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13),
                         __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15),
                         __builtin_shufflevector(c, d, 0, 1, 8, 9, 4, 5, 12, 13),
                         __builtin_shufflevector(c, d, 2, 3, 10, 11, 6, 7, 14, 15)};
      for (int64_t row = 0; row < 4; ++row) {
        map(turned[row]);
        *reinterpret_cast<Whole*>(to + (i + row) * to_stride + j) = turned[row];
      }
    }
  }
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = i < whole_rows ? whole_columns : 0; j < columns; ++j) {
      Value one;
      std::memcpy(&one, place(j, i), sizeof(Value));
      map(one);
      to[i * to_stride + j] = one;
    }
}

}  // namespace

XFORMER_VECTORISED void pack_rows(int64_t rows, int64_t columns, float factor, const float* from, int64_t stride,
                                  float* to, int64_t to_stride) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) to[i * to_stride + j] = factor * from[i * stride + j];
}

namespace {

XFORMER_VECTORISED void transpose_plainly(int64_t rows, int64_t columns, float factor, const float* from,
                                          int64_t stride, float* to, int64_t to_stride) {
  transpose(rows, columns, from, stride * static_cast<int64_t>(sizeof(float)), to, to_stride,
            [&](auto& lanes) { lanes *= factor; });
}

#ifdef XFORMER_BY_512
// 8 rows of 16 columns at a time: halves of a register are two columns, so that what is exchanged stays in its half.
template <bool kScales>
XFORMER_BY_512 [[gnu::always_inline]] inline void transpose_piece(const __m512& factor, const float* from,
                                                                  int64_t stride, float* to, int64_t to_stride) {
  const auto put = [&](float* place, const __m512& x) __attribute__((always_inline)) XFORMER_BY_512 {
    if constexpr (kScales) _mm512_storeu_ps(place, _mm512_mul_ps(x, factor));
    else _mm512_storeu_ps(place, x);
  };
  __m512 x[8], y[8];
  for (int64_t j = 0; j < 8; ++j)
    x[j] = _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(from + j * stride)),
                              _mm256_loadu_ps(from + (j + 8) * stride), 1);
  for (int64_t j = 0; j < 8; j += 2)
    y[j] = _mm512_unpacklo_ps(x[j], x[j + 1]), y[j + 1] = _mm512_unpackhi_ps(x[j], x[j + 1]);
  for (int64_t j = 0; j < 8; j += 4)
    for (int64_t i = 0; i < 2; ++i) {
      x[j + 2 * i] = _mm512_shuffle_ps(y[j + i], y[j + i + 2], 0x44);
      x[j + 2 * i + 1] = _mm512_shuffle_ps(y[j + i], y[j + i + 2], 0xEE);
    }
  // Quarters: the lower halves' first, second, and the same of the upper ones.
  const __m512i front = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13),
                back = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
  for (int64_t i = 0; i < 4; ++i) {
    const __m512d a = _mm512_castps_pd(x[i]), b = _mm512_castps_pd(x[i + 4]);
    const __m512 first = _mm512_castpd_ps(_mm512_permutex2var_pd(a, front, b)),
                 second = _mm512_castpd_ps(_mm512_permutex2var_pd(a, back, b));
    put(to + i * to_stride, first);
    put(to + (i + 4) * to_stride, second);
  }
}

// All in pieces, of which the last ones lie partly on others; none where there is no room for one.
template <bool kScales>
XFORMER_BY_512 [[gnu::always_inline]] inline bool transpose_pieces(int64_t rows, int64_t columns, float factor,
                                                                   const float* from, int64_t stride, float* to,
                                                                   int64_t to_stride) {
  if (rows < 8 || columns < 16) return false;
  const __m512 factors = _mm512_set1_ps(factor);
  for (int64_t next_column = 0; next_column < columns; next_column += 16)
    for (int64_t next_row = 0; next_row < rows; next_row += 8) {
      const int64_t i = std::min(next_row, rows - 8), j = std::min(next_column, columns - 16);
      transpose_piece<kScales>(factors, from + j * stride + i, stride, to + i * to_stride + j, to_stride);
    }
  return true;
}

XFORMER_BY_512 void transpose_by_512(int64_t rows, int64_t columns, float factor, const float* from, int64_t stride,
                                     float* to, int64_t to_stride) {
  if (!transpose_pieces<true>(rows, columns, factor, from, stride, to, to_stride))
    transpose_plainly(rows, columns, factor, from, stride, to, to_stride);
}
#else
constexpr auto transpose_by_512 = transpose_plainly;
#endif

}  // namespace

void pack_transposed(int64_t rows, int64_t columns, float factor, const float* from, int64_t stride, float* to,
                     int64_t to_stride) {
  (has_512() ? transpose_by_512 : transpose_plainly)(rows, columns, factor, from, stride, to, to_stride);
}

void pack_transposed(int64_t rows, int64_t columns, double factor, const double* from, int64_t stride, double* to,
                     int64_t to_stride) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) to[i * to_stride + j] = factor * from[j * stride + i];
}

namespace by_compiler {

XFORMER_VECTORISED void pack_pairs(int64_t rows, int64_t columns, const c10::BFloat16* from, int64_t stride,
                                   c10::BFloat16* to, int64_t to_stride) {
  auto* const pairs = reinterpret_cast<uint32_t*>(to);
  for (int64_t i = 0; i + 1 < rows; i += 2)
    for (int64_t j = 0; j < columns; ++j)
      pairs[i / 2 * to_stride + j] =
          static_cast<uint32_t>(from[i * stride + j].x) | static_cast<uint32_t>(from[(i + 1) * stride + j].x) << 16;
  if (rows % 2 == 1)
    for (int64_t j = 0; j < columns; ++j) pairs[rows / 2 * to_stride + j] = from[(rows - 1) * stride + j].x;
}

XFORMER_VECTORISED void pack_pairs_transposed(int64_t rows, int64_t columns, const c10::BFloat16* from, int64_t stride,
                                              c10::BFloat16* to, int64_t to_stride) {
  auto* const pairs = reinterpret_cast<uint32_t*>(to);
  // Two neighbours in memory are a pair already.
  transpose(rows / 2, columns, from, stride * static_cast<int64_t>(sizeof(*from)), pairs, to_stride, [](auto&) {});
  if (rows % 2 == 1)
    for (int64_t j = 0; j < columns; ++j) pairs[rows / 2 * to_stride + j] = from[j * stride + rows - 1].x;
}

}  // namespace by_compiler

namespace by_512 {

#ifdef XFORMER_BY_512
XFORMER_BY_512 void pack_pairs(int64_t rows, int64_t columns, const c10::BFloat16* from, int64_t stride,
                               c10::BFloat16* to, int64_t to_stride) {
  const int64_t whole_rows = rows / 2 * 2, whole_columns = columns / 32 * 32;
  alignas(64) uint16_t order[64];
  for (uint16_t i = 0; i < 32; ++i) order[2 * i] = i, order[2 * i + 1] = static_cast<uint16_t>(32 + i);
  const __m512i front = _mm512_load_si512(order), back = _mm512_load_si512(order + 32);
  for (int64_t i = 0; i < whole_rows; i += 2)
    for (int64_t j = 0; j < whole_columns; j += 32) {
      const __m512i own = _mm512_loadu_si512(from + i * stride + j),
                    below = _mm512_loadu_si512(from + (i + 1) * stride + j);
      c10::BFloat16* const pairs = to + 2 * (i / 2 * to_stride + j);
      _mm512_storeu_si512(pairs, _mm512_permutex2var_epi16(own, front, below));
      _mm512_storeu_si512(pairs + 32, _mm512_permutex2var_epi16(own, back, below));
    }
  if (whole_columns < columns)
    by_compiler::pack_pairs(whole_rows, columns - whole_columns, from + whole_columns, stride, to + 2 * whole_columns,
                            to_stride);
  if (whole_rows < rows)
    by_compiler::pack_pairs(1, columns, from + whole_rows * stride, stride, to + whole_rows * to_stride, to_stride);
}

XFORMER_BY_512 void pack_pairs_transposed(int64_t rows, int64_t columns, const c10::BFloat16* from, int64_t stride,
                                          c10::BFloat16* to, int64_t to_stride) {
  // Pairs move as numbers of four bytes, whatever these mean. A row without another has pairs of its own.
  const int64_t whole = rows / 2 * 2;
  if (stride % 2 != 0 || !transpose_pieces<false>(whole / 2, columns, 1, reinterpret_cast<const float*>(from),
                                                  stride / 2, reinterpret_cast<float*>(to), to_stride))
    return by_compiler::pack_pairs_transposed(rows, columns, from, stride, to, to_stride);
  if (whole < rows)
    by_compiler::pack_pairs_transposed(1, columns, from + whole, stride, to + whole * to_stride, to_stride);
}
#else
using by_compiler::pack_pairs, by_compiler::pack_pairs_transposed;
#endif

}  // namespace by_512

void pack_pairs(int64_t rows, int64_t columns, const c10::BFloat16* from, int64_t stride, c10::BFloat16* to,
                int64_t to_stride) {
  (has_512() ? by_512::pack_pairs : by_compiler::pack_pairs)(rows, columns, from, stride, to, to_stride);
}

void pack_pairs_transposed(int64_t rows, int64_t columns, const c10::BFloat16* from, int64_t stride, c10::BFloat16* to,
                           int64_t to_stride) {
  (has_512() ? by_512::pack_pairs_transposed : by_compiler::pack_pairs_transposed)(rows, columns, from, stride, to,
                                                                                   to_stride);
}

namespace {

XFORMER_VECTORISED void round_pairs_plainly(int64_t rows, int64_t columns, const float* from, int64_t stride,
                                            c10::BFloat16* to, int64_t to_stride) {
  auto* const pairs = reinterpret_cast<uint32_t*>(to);
  for (int64_t i = 0; i < rows; i += 2)
    for (int64_t j = 0; j < columns; ++j) {
      const uint32_t below = i + 1 < rows ? rounded_bits(from[(i + 1) * stride + j]) : 0;
      pairs[i / 2 * to_stride + j] = rounded_bits(from[i * stride + j]) | below << 16;
    }
}

#ifdef XFORMER_BY_BF16_512
XFORMER_BY_BF16_512
void round_pairs_by_512(int64_t rows, int64_t columns, const float* from, int64_t stride, c10::BFloat16* to,
                        int64_t to_stride) {
  const __m512i turns = turns_of_pairs();
  for (int64_t i = 0; i < rows; i += 2)
    for (int64_t j = 0; j < columns; j += 16) {
      const auto wanted = static_cast<__mmask16>((1U << std::min<int64_t>(16, columns - j)) - 1);
      const __m512 own = _mm512_maskz_loadu_ps(wanted, from + i * stride + j),
                   below =
                       i + 1 < rows ? _mm512_maskz_loadu_ps(wanted, from + (i + 1) * stride + j) : _mm512_setzero_ps();
      const __m512i both = _mm512_permutexvar_epi16(turns, rounded_by_512(own, below));
      _mm512_mask_storeu_epi32(to + 2 * (i / 2 * to_stride + j), wanted, both);
    }
}
#else
constexpr auto round_pairs_by_512 = round_pairs_plainly;
#endif

}  // namespace

void pack_rounded_pairs(int64_t rows, int64_t columns, const float* from, int64_t stride, c10::BFloat16* to,
                        int64_t to_stride) {
  return (has_bf16_512() ? round_pairs_by_512 : round_pairs_plainly)(rows, columns, from, stride, to, to_stride);
}

}  // namespace xformer::kernels
