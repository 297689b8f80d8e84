// Rows of the embedding that lie in the cache.
#include "kernels/cpu/vectorised.h"
#include "kernels/embedding/cpu.h"

namespace xformer::kernels {

namespace {

template <bool kDrops, class Value>
[[gnu::always_inline]] inline void forward_of(const EmbeddingRows<Value>& block, const Value* tokens,
                                              const Value* positions, Value* out) {
  const int64_t width = block.width;
  const uint32_t threshold = block.threshold;
  const Value keep = block.keep;
  const auto kept = [&](Value x, const uint16_t* draws, int64_t i) __attribute__((always_inline)) {
    const Value scaled = kDrops ? x * keep : x;
    return kDrops && draws[i] < threshold ? Value(0) : scaled;
  };
  for (int64_t r = 0; r < block.rows; ++r) {
    const Value* __restrict token = tokens + block.ids[r] * width;
    const uint16_t* __restrict draws = kDrops ? block.draws + r * width : nullptr;
    Value* __restrict row = out + r * width;
    if (positions != nullptr) {
      const Value* __restrict place = positions + r * width;
      for (int64_t i = 0; i < width; ++i) row[i] = kept(token[i] + place[i], draws, i);
    } else {
      for (int64_t i = 0; i < width; ++i) row[i] = kept(token[i], draws, i);
    }
  }
}

template <class Value>
[[gnu::always_inline]] inline void drop(const Value* __restrict in, const uint16_t* __restrict draws, int64_t count,
                                        uint32_t threshold, Value keep, Value* __restrict out) {
  for (int64_t i = 0; i < count; ++i) {
    const Value kept = in[i] * keep;
    out[i] = draws[i] < threshold ? Value(0) : kept;
  }
}

template <class Value>
[[gnu::always_inline]] inline void add_to_both(const Value* __restrict from, int64_t count, Value* __restrict one,
                                               Value* __restrict other) {
  for (int64_t i = 0; i < count; ++i) {
    one[i] += from[i];
    other[i] += from[i];
  }
}

// What dropout leaves of a row is put down before it is added: a compiler that makes one operation of the product and
// the sum does so in some loops and not in others, and which one runs depends on where a row lies.
template <class Value>
[[gnu::always_inline]] inline void backward_of(const EmbeddingRows<Value>& block, const Value* gradient,
                                               Value* token_sums, Value* position_sums, Value* row) {
  const int64_t width = block.width;
  for (int64_t r = 0; r < block.rows; ++r) {
    const Value* kept = gradient + r * width;
    if (block.draws != nullptr) {
      drop(kept, block.draws + r * width, width, block.threshold, block.keep, row);
      kept = row;
    }
    Value* const token = token_sums + block.ids[r] * width;
    if (position_sums != nullptr) add_to_both(kept, width, token, position_sums + r * width);
    else
      for (int64_t i = 0; i < width; ++i) token[i] += kept[i];
  }
}

template <class Value>
[[gnu::always_inline]] inline void forward_rows(const EmbeddingRows<Value>& block, const Value* tokens,
                                                const Value* positions, Value* out) {
  block.draws == nullptr ? forward_of<false>(block, tokens, positions, out)
                         : forward_of<true>(block, tokens, positions, out);
}

}  // namespace

XFORMER_VECTORISED
void embedding_rows(const EmbeddingRows<float>& block, const float* tokens, const float* positions, float* out) {
  forward_rows(block, tokens, positions, out);
}
void embedding_rows(const EmbeddingRows<double>& block, const double* tokens, const double* positions, double* out) {
  forward_rows(block, tokens, positions, out);
}

XFORMER_VECTORISED
void embedding_gradient_rows(const EmbeddingRows<float>& block, const float* gradient, float* token_sums,
                             float* position_sums, float* row) {
  backward_of(block, gradient, token_sums, position_sums, row);
}
void embedding_gradient_rows(const EmbeddingRows<double>& block, const double* gradient, double* token_sums,
                             double* position_sums, double* row) {
  backward_of(block, gradient, token_sums, position_sums, row);
}

}  // namespace xformer::kernels
