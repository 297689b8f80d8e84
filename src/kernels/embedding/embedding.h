// Token and position embedding with dropout in one pass: drop(tokens[id] + positions[i]).
#pragma once

#include "kernels/dropout/place.h"

namespace xformer::kernels {

// tokens [v,m], ids [b,n] of 0 .. v - 1 (else an IndexError, as at::embedding's; where the kernels of another device
// run, a row of NaN, since ids are not read back), positions [at least n, m] or undefined
// -> [b,n,m]; under autocast to bf16 in that, where the kernels of the CPU run. `needed`: [b,n] bool, those places that
// somebody reads (needed.h); undefined: all.
[[nodiscard]] at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& ids, const at::Tensor& positions,
                                   const DropoutPlace& drop, const at::Tensor& needed = {});
// The definition.
[[nodiscard]] at::Tensor embedding_reference(const at::Tensor& tokens, const at::Tensor& ids,
                                             const at::Tensor& positions, const DropoutPlace& drop,
                                             const at::Tensor& needed = {});

}  // namespace xformer::kernels
