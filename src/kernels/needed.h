// Rows of a batch that somebody reads, mostly all but the padding behind each sequence's end: the others are zero in
// what operators make that are told of them, and what arrives there as a gradient is not looked at.
#pragma once

#include <ATen/Functions.h>

namespace xformer::kernels {

// What a definition makes [.., width], with zeros in rows that are not needed: [..] bool, undefined: all are.
[[nodiscard]] inline at::Tensor needed_alone(const at::Tensor& rows, const at::Tensor& needed) {
  return needed.defined() ? rows.masked_fill(needed.logical_not().unsqueeze(-1), 0) : rows;
}

}  // namespace xformer::kernels
