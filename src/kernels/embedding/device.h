// The passes of embedding.h on a device, but for the launches themselves: cuda.cpp gives them, tests walk the programs.
// The signatures are the CPU's (cpu.h).
#pragma once

#include "kernels/device/tensors.h"
#include "kernels/embedding/cpu.h"
#include "kernels/embedding/program.h"

namespace xformer::kernels {

// Whether a device's programs take such tables.
[[nodiscard]] inline bool fits_embedding_programs(const at::Tensor& tokens, const at::Tensor& ids) {
  return tokens.scalar_type() == at::kFloat && tokens.numel() > 0 && ids.numel() > 0 && tokens.size(0) <= kMostTokens;
}

// What all launches are told; `ids` is [b,n] of int64 without gaps.
[[nodiscard]] inline EmbeddingArguments embedding_arguments(const at::Tensor& ids, int64_t vocabulary, int64_t m) {
  TORCH_CHECK(ids.dim() == 2 && ids.scalar_type() == at::kLong && ids.is_contiguous(), "token ids are [b, n] of int64");
  EmbeddingArguments a;
  a.ids = static_cast<const int64_t*>(ids.const_data_ptr());
  a.b = ids.size(0), a.n = ids.size(1), a.m = m, a.vocabulary = vocabulary;
  return a;
}

// Launch takes EmbeddingArguments.
template <class Launch>
at::Tensor embedding_forward_device(const at::Tensor& tokens_in, const at::Tensor& ids_in,
                                    const at::Tensor& positions_in, const DropoutPlace& drop,
                                    const at::Tensor& needed_in, at::ScalarType type, const Launch& launch) {
  const at::Tensor tokens = tokens_in.contiguous(), ids = ids_in.to(at::kLong).contiguous();
  const at::Tensor positions = positions_in.defined() ? positions_in.contiguous() : positions_in;
  TORCH_CHECK(fits_embedding_programs(tokens, ids) && type == at::kFloat, "embedding on a device is in float, of at ",
              "most ", kMostTokens, " tokens");
  EmbeddingArguments a = embedding_arguments(ids, tokens.size(0), tokens.size(1));
  TORCH_CHECK(!positions.defined() ||
                  (positions.scalar_type() == at::kFloat && positions.size(0) >= a.n && positions.size(1) == a.m),
              "positions are at least as many rows as tokens, as wide");
  at::Tensor result = at::empty({a.b, a.n, a.m}, tokens.options());
  const at::Tensor needed = dense_flags(needed_in, a.b * a.n);
  a.needed = read_flags(needed);
  a.tokens = read_floats(tokens), a.positions = read_floats(positions);
  a.out = written_floats(result);
  a.wide = a.m % kRun == 0 && reads_wide({tokens, positions, result});
  a.drop = device_drop(drop, result);
  launch(a);
  return result;
}

// The same, for each table.
template <class Launch>
EmbeddingGradients embedding_backward_device(const at::Tensor& gradient_in, const at::Tensor& ids_in,
                                             int64_t token_rows, int64_t position_rows, const DropoutPlace& drop,
                                             const at::Tensor& needed_in, const Launch& launch) {
  const at::Tensor gradient = gradient_in.contiguous(), ids = ids_in.to(at::kLong).contiguous();
  EmbeddingArguments a = embedding_arguments(ids, token_rows, gradient.size(2));
  const at::Tensor needed = dense_flags(needed_in, a.b * a.n);
  a.needed = read_flags(needed);
  EmbeddingGradients result;
  const at::Tensor tables = at::empty({embedding_division(a).parts, token_rows, a.m}, gradient.options());
  result.tokens = tables.size(0) == 1 ? tables.select(0, 0) : at::empty({token_rows, a.m}, gradient.options());
  a.gradient = read_floats(gradient), a.tables = written_floats(tables), a.sums = written_floats(result.tokens);
  a.wide = a.m % kRun == 0 && reads_wide({gradient, tables});
  a.drop = device_drop(drop, gradient);
  a.stage = EmbeddingStage::kTokenGradient;
  launch(a);
  if (position_rows == 0) return result;
  result.positions = at::empty({position_rows, a.m}, gradient.options());
  a.d_positions = written_floats(result.positions), a.position_rows = position_rows;
  a.wide = a.wide && reads_wide({result.positions});
  a.stage = EmbeddingStage::kPositionGradient;
  launch(a);
  return result;
}

}  // namespace xformer::kernels
