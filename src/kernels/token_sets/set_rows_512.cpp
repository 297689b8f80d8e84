// The largest of a set's rows by AVX-512, 32 channels at a time: of a selection by two comparisons g++ 12 makes a step
// for each channel, or a loop whose numbers are in memory. (Sums over a set wait for its rows, whatever adds them.)
#include "kernels/cpu/heads.h"
#include "kernels/cpu/lanes_512.h"
#include "kernels/token_sets/cpu.h"

#ifdef XFORMER_BY_512

namespace xformer::kernels::by_512 {

namespace {

constexpr int64_t kLanes = 16, kAtOnce = 2 * kLanes;

// The lanes of two registers from a channel on.
struct Channels {
  __mmask16 lanes[2];
  explicit Channels(int64_t left) : lanes{lanes_of(left), left > kLanes ? lanes_of(left - kLanes) : __mmask16{0}} {}
};

XFORMER_BY_512 [[gnu::always_inline]] inline void load(const float* from, const Channels& channels, __m512 (&x)[2]) {
  for (int k = 0; k < 2; ++k) x[k] = _mm512_maskz_loadu_ps(channels.lanes[k], from + kLanes * k);
}
XFORMER_BY_512 [[gnu::always_inline]] inline void store(const __m512 (&x)[2], const Channels& channels, float* to) {
  for (int k = 0; k < 2; ++k)
    if (channels.lanes[k] == kAllLanes) _mm512_storeu_ps(to + kLanes * k, x[k]);
    else _mm512_mask_storeu_ps(to + kLanes * k, channels.lanes[k], x[k]);
}

// Asks for the rows to come, once for all channels.
[[gnu::always_inline]] inline void fetch_ahead(int64_t channel, const float* row, int64_t stride, int64_t width) {
  if (channel == 0) fetch_row_ahead(row, stride, width);
}

XFORMER_BY_512 [[gnu::always_inline]] inline __mmask16 no_number(const __m512& x) {
  return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
}

}  // namespace

XFORMER_BY_512 void largest_of_set(const SetRows<float>& of, int64_t width, float* largest) {
  int64_t begin = 0;
  while (of.valid != nullptr && begin < of.count && !of.valid[begin]) ++begin;
  for (int64_t c = 0; c < width; c += kAtOnce) {
    const Channels channels(width - c);
    __m512 most[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()}, row[2];
    if (begin < of.count) load(of.rows + begin * of.stride + c, channels, most);
    __mmask16 none[2] = {no_number(most[0]), no_number(most[1])};
    for (int64_t i = begin + 1; i < of.count; ++i) {
      const float* const from = of.rows + i * of.stride;
      fetch_ahead(c, from, of.stride, width);
      if (of.valid != nullptr && !of.valid[i]) continue;
      load(from + c, channels, row);
      for (int k = 0; k < 2; ++k) {
        most[k] = _mm512_max_ps(row[k], most[k]);  // the second where they are equal or one is no number
        none[k] |= no_number(row[k]);
      }
    }
    for (int k = 0; k < 2; ++k) most[k] = _mm512_mask_mov_ps(most[k], none[k], _mm512_set1_ps(NAN));
    store(most, channels, largest + c);
  }
}

XFORMER_BY_512 void slopes_of_set(const SetRows<float>& of, int64_t width, const float* largest, float* left,
                                  float* out, int64_t out_stride) {
  for (int64_t c = 0; c < width; c += kAtOnce) {
    const Channels channels(width - c);
    __m512 most[2], rest[2], row[2], taken[2];
    load(largest + c, channels, most);
    load(left + c, channels, rest);
    for (int64_t i = 0; i < of.count; ++i) {
      const float* const from = of.rows + i * of.stride;
      fetch_ahead(c, from, of.stride, width);
      if (of.valid == nullptr || of.valid[i]) {
        load(from + c, channels, row);
        for (int k = 0; k < 2; ++k) {
          const auto takes =
              static_cast<__mmask16>(_mm512_cmp_ps_mask(row[k], most[k], _CMP_EQ_OQ) | no_number(row[k]));
          taken[k] = _mm512_maskz_mov_ps(takes, rest[k]);
          rest[k] = _mm512_maskz_mov_ps(static_cast<__mmask16>(~takes), rest[k]);
        }
      } else {
        taken[0] = taken[1] = _mm512_setzero_ps();
      }
      store(taken, channels, out + i * out_stride + c);
    }
    store(rest, channels, left + c);
  }
}

}  // namespace xformer::kernels::by_512

#endif
