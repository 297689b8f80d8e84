// The loops of joined_softmax, in versions for each instruction set.
#include "kernels/cpu/heads.h"
#include "kernels/cpu/registers.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/joined_softmax/cpu.h"

namespace xformer::kernels {

namespace {

// Neighbouring rows' logs lie side by side, so all loops are over rows.
template <class Value>
[[gnu::always_inline]] inline void to_shares(int64_t parts, int64_t count, Value* __restrict shares,
                                             Value* __restrict room) {
  Value *const largest = room, *const sum = room + count;
  for (int64_t r = 0; r < count; ++r) largest[r] = shares[r], sum[r] = 0;
  for (int64_t i = 1; i < parts; ++i)
    for (int64_t r = 0; r < count; ++r)
      largest[r] = shares[i * count + r] > largest[r] ? shares[i * count + r] : largest[r];
  for (int64_t i = 0; i < parts; ++i)
    for (int64_t r = 0; r < count; ++r) shares[i * count + r] = exp_below(shares[i * count + r] - largest[r]);
  for (int64_t i = 0; i < parts; ++i)
    for (int64_t r = 0; r < count; ++r) sum[r] += shares[i * count + r];
  for (int64_t i = 0; i < parts; ++i)
    for (int64_t r = 0; r < count; ++r) shares[i * count + r] /= sum[r];
}

// A block of channels of a row after the other, so that its sum stays in a register.
template <class Value>
[[gnu::always_inline]] inline void join(const TileRows<const Value>* from, int64_t parts, int64_t count, int64_t width,
                                        const Value* shares, const TileRows<Value>& to) {
  for (int64_t r = 0; r < count; ++r) {
    Value* const out = to.data + r * to.stride;
    for (int64_t i = 0; i < parts; ++i) fetch_row_ahead(from[i].data + r * from[i].stride, from[i].stride, width);
    int64_t c = 0;
    for (; c + kSumLanes <= width; c += kSumLanes) {
      SumRegisters<Value> sum = {}, row;
      for (int64_t i = 0; i < parts; ++i) {
        row.load_from(from[i].data + r * from[i].stride + c);
        sum += row * shares[i * count + r];
      }
      sum.store_to(out + c);
    }
    for (; c < width; ++c) {
      Value sum = 0;
      for (int64_t i = 0; i < parts; ++i) sum += shares[i * count + r] * from[i].data[r * from[i].stride + c];
      out[c] = sum;
    }
  }
}

template <class Value>
[[gnu::always_inline]] inline void take_apart(const TileRows<const Value>& slope, const TileRows<const Value>* from,
                                              int64_t parts, int64_t count, int64_t width, Value* __restrict shares,
                                              const TileRows<Value>* to, Value* __restrict room) {
  for (int64_t r = 0; r < count; ++r) room[r] = 0;
  for (int64_t i = 0; i < parts; ++i) {
    for (int64_t r = 0; r < count; ++r) {
      const Value *const g = slope.data + r * slope.stride, *const row = from[i].data + r * from[i].stride;
      Value* const out = to[i].data + r * to[i].stride;
      fetch_row_ahead(row, from[i].stride, width);
      if (i == 0) fetch_row_ahead(g, slope.stride, width);
      const Value share = shares[i * count + r];
      SumRegisters<Value> sums = {}, x, y;
      int64_t c = 0;
      for (; c + kSumLanes <= width; c += kSumLanes) {
        x.load_from(g + c), y.load_from(row + c);
        sums += x * y;
        (x * share).store_to(out + c);
      }
      Value product = sums.sum();
      for (; c < width; ++c) {
        product += g[c] * row[c];
        out[c] = share * g[c];
      }
      // s (g . out_i), of which its share of the sum over parts goes off.
      room[r] += shares[(parts + i) * count + r] = share * product;
    }
  }
  for (int64_t i = 0; i < parts; ++i)
    for (int64_t r = 0; r < count; ++r)
      shares[i * count + r] = shares[(parts + i) * count + r] - shares[i * count + r] * room[r];
}

}  // namespace

XFORMER_VECTORISED
void shares_of(int64_t parts, int64_t count, float* shares, float* room) { to_shares(parts, count, shares, room); }
void shares_of(int64_t parts, int64_t count, double* shares, double* room) { to_shares(parts, count, shares, room); }

XFORMER_VECTORISED
void join_rows(const TileRows<const float>* from, int64_t parts, int64_t count, int64_t width, const float* shares,
               const TileRows<float>& to) {
  join(from, parts, count, width, shares, to);
}
void join_rows(const TileRows<const double>* from, int64_t parts, int64_t count, int64_t width, const double* shares,
               const TileRows<double>& to) {
  join(from, parts, count, width, shares, to);
}

XFORMER_VECTORISED
void part_rows(const TileRows<const float>& slope, const TileRows<const float>* from, int64_t parts, int64_t count,
               int64_t width, float* shares, const TileRows<float>* to, float* room) {
  take_apart(slope, from, parts, count, width, shares, to, room);
}
void part_rows(const TileRows<const double>& slope, const TileRows<const double>* from, int64_t parts, int64_t count,
               int64_t width, double* shares, const TileRows<double>* to, double* room) {
  take_apart(slope, from, parts, count, width, shares, to, room);
}

}  // namespace xformer::kernels
