// Rows of the embedding that lie in the cache.
#include "kernels/cpu/vectorised.h"
#include "kernels/embedding/cpu.h"

namespace xformer::kernels {

namespace {

template <class Value>
[[gnu::always_inline]] inline void add(const Value* __restrict a, const Value* __restrict b, int64_t count,
                                       Value* __restrict out) {
  for (int64_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

template <class Value>
[[gnu::always_inline]] inline void add_to(const Value* __restrict from, int64_t count, Value* __restrict into) {
  for (int64_t i = 0; i < count; ++i) into[i] += from[i];
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
[[gnu::always_inline]] inline void drop_in_place(Value* values, const uint16_t* __restrict draws, int64_t count,
                                                 uint32_t threshold, Value keep) {
  for (int64_t i = 0; i < count; ++i) {
    const Value kept = values[i] * keep;
    values[i] = draws[i] < threshold ? Value(0) : kept;
  }
}

template <class Value>
[[gnu::always_inline]] inline void forward_of(const EmbeddingRows<Value>& block, const Value* tokens,
                                              const Value* positions, Value* out) {
  const int64_t width = block.width;
  for (int64_t r = 0; r < block.rows; ++r) {
    const Value* const token = tokens + block.ids[r] * width;
    Value* const row = out + r * width;
    if (positions != nullptr) add(token, positions + r * width, width, row);
    else
      for (int64_t i = 0; i < width; ++i) row[i] = token[i];
  }
  if (block.draws != nullptr) drop_in_place(out, block.draws, block.rows * width, block.threshold, block.keep);
}

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
    add_to(kept, width, token_sums + block.ids[r] * width);
    if (position_sums != nullptr) add_to(kept, width, position_sums + r * width);
  }
}

}  // namespace

XFORMER_VECTORISED
void embedding_rows(const EmbeddingRows<float>& block, const float* tokens, const float* positions, float* out) {
  forward_of(block, tokens, positions, out);
}
void embedding_rows(const EmbeddingRows<double>& block, const double* tokens, const double* positions, double* out) {
  forward_of(block, tokens, positions, out);
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
