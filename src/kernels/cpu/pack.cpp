#include "kernels/cpu/pack.h"

#include <algorithm>
#include <cstring>

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

XFORMER_VECTORISED void pack_transposed(int64_t rows, int64_t columns, float factor, const float* from, int64_t stride,
                                        float* to, int64_t to_stride) {
  transpose(rows, columns, from, stride * static_cast<int64_t>(sizeof(float)), to, to_stride,
            [&](auto& lanes) { lanes *= factor; });
}

void pack_transposed(int64_t rows, int64_t columns, double factor, const double* from, int64_t stride, double* to,
                     int64_t to_stride) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) to[i * to_stride + j] = factor * from[j * stride + i];
}

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
