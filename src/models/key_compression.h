// Fewer keys and values for any attention that can look at another sequence: learned mixtures of all tokens, as the
// FT-Transformer has them for tables of many columns (Gorishniy et al. 2021, bin/ft_transformer.py,
// make_kv_compression):
//   K' = E K,  V' = F V,   E and F [length, tokens], the same for all heads, without a bias.
// With softmax it is Linformer (Wang et al. 2020, equation 7) with other initial values: U(+-1/sqrt(tokens)).
#pragma once

#include "attention/descriptor.h"

namespace xformer::models {

struct KeyCompression {
  int64_t length = 0;                // rows of E and F; 0: keys and values stay as they are
  std::string sharing = "headwise";  // headwise: E and F for each layer; key-value: F = E; layerwise: one E for all
};

// UserError where the attention has no core that takes keys of another sequence, or there are fewer tokens than rows.
void check_compression(const KeyCompression& compression, const attention::Resolved& attention, int64_t tokens);

// Multi-head attention with compressed keys and values for sequences of the context's max_len tokens, no fewer. Under
// `mrs-` heads of scale 1 are compressed; coarser ones have fewer tokens already.
[[nodiscard]] std::shared_ptr<attention::SequenceMixer> build_compressed(const KeyCompression& compression,
                                                                         const attention::Resolved& attention,
                                                                         const Json& options,
                                                                         const attention::BuildContext& context);

}  // namespace xformer::models
