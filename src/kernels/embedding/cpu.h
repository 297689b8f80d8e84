// The CPU's two passes of embedding.h, for float and double, and for bf16 from tables in float.
#pragma once

#include "kernels/embedding/embedding.h"

namespace xformer::kernels {

// `type`: of the result.
[[nodiscard]] at::Tensor embedding_forward_cpu(const at::Tensor& tokens, const at::Tensor& ids,
                                               const at::Tensor& positions, const DropoutPlace& drop,
                                               const at::Tensor& needed, at::ScalarType type);

struct EmbeddingGradients {
  at::Tensor tokens, positions;  // positions: undefined where position_rows is 0
};

[[nodiscard]] EmbeddingGradients embedding_backward_cpu(const at::Tensor& gradient, const at::Tensor& ids,
                                                        int64_t token_rows, int64_t position_rows,
                                                        const DropoutPlace& drop, const at::Tensor& needed);

// Some rows of `width` elements, neighbours in position. `draws`: 16 bits an element, or nullptr without dropout.
template <class Value>
struct EmbeddingRows {
  int64_t rows, width;
  const int64_t* ids;
  const uint16_t* draws;
  uint32_t threshold;
  Value keep;
};
// positions may be nullptr.
void embedding_rows(const EmbeddingRows<float>& block, const float* tokens, const float* positions, float* out);
void embedding_rows(const EmbeddingRows<double>& block, const double* tokens, const double* positions, double* out);
// Adds drop(gradient) to the rows of both tables; position_sums may be nullptr. `row`: scratch of one row.
void embedding_gradient_rows(const EmbeddingRows<float>& block, const float* gradient, float* token_sums,
                             float* position_sums, float* row);
void embedding_gradient_rows(const EmbeddingRows<double>& block, const double* gradient, double* token_sums,
                             double* position_sums, double* row);

}  // namespace xformer::kernels
