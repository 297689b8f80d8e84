// An attention from a file of one's own: `script:FILE`, a TorchScript module (docs/own-attention.md).
//
// Its forward(q, k, v, mask) takes q, k and v [b,h,n,d] and mask [b,n] bool, true where a token is valid, and gives
// [b,h,n,d]. Attributes that are numbers, words or lists of whole numbers are options with the file's values as
// defaults; `causal` (bool) and `dropout` (float, of attention weights) are set by whoever builds it, and who has a
// `causal` claims to honour it. Parameters and buffers are registered under the names that they have there, and begin
// with the file's values in every layer and scale.
#pragma once

#include "attention/descriptor.h"
#include "attention/own_file.h"

namespace xformer::attention {

// The descriptor of the file behind kScript, as it is now; one more option, `sha256`, makes the file part of a plan.
// DataError when it is missing or no such module, with the reason. Its address stays.
[[nodiscard]] const Descriptor& script_attention(const std::string& name);

}  // namespace xformer::attention
