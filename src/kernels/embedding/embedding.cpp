#include "kernels/embedding/embedding.h"

#include <ATen/Functions.h>

#include "kernels/embedding/cpu.h"
#include "kernels/embedding/device.h"
#include "kernels/fused.h"
#include "kernels/needed.h"

namespace xformer::kernels {

namespace {

struct EmbeddingCall {
  at::Tensor tokens, ids, positions;
  DropoutPlace drop;
  at::Tensor needed;
  at::ScalarType type;  // of the result

  static constexpr const char* kName = "embedding";
  static inline const Operator<embedding_forward_cpu> kForward{"embedding_forward"};
  static inline const Operator<embedding_backward_cpu> kBackward{"embedding_backward"};
  static constexpr bool kTakesBf16 = true;

  static bool is_parameter(size_t) { return true; }
  [[nodiscard]] variable_list inputs() const { return {tokens, positions}; }
  variable_list forward() {
    drop = remembering(drop, ids.numel() * tokens.size(1), tokens.size(1));
    return {kForward(tokens, ids, positions, drop, needed, type)};
  }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    const int64_t position_rows = positions.defined() ? positions.size(0) : 0;
    return tensors_of(kBackward(gradients[0], ids, tokens.size(0), position_rows, drop, needed));
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    return {embedding_reference(in[0], ids, in[1], drop, needed)};
  }
};

}  // namespace

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& ids, const at::Tensor& positions,
                     const DropoutPlace& drop, const at::Tensor& needed) {
  const at::ScalarType type = stores_bf16({tokens, positions}) ? at::kBFloat16 : tokens.scalar_type();
  const bool possible = tokens.is_cpu() || fits_embedding_programs(tokens, ids);
  return run_fused(EmbeddingCall{tokens, ids, positions, drop, needed, type}, possible)[0];
}

at::Tensor embedding_reference(const at::Tensor& tokens, const at::Tensor& ids, const at::Tensor& positions,
                               const DropoutPlace& drop, const at::Tensor& needed) {
  const at::Tensor x = at::embedding(tokens, ids);
  return needed_alone(drop(positions.defined() ? x + positions.narrow(0, 0, ids.size(1)) : x), needed);
}

}  // namespace xformer::kernels
