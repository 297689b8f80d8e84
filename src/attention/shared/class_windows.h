// Attention to the last tokens of a token's own class (a bucket, a cluster), however far back they are. A class that is
// a function of its token alone, and a count that goes back from the token, leave no way for later tokens to be seen:
// chunks of a list sorted by class would, because where they begin depends on all tokens of the classes before.
#pragma once

#include "attention/shared/windows.h"

namespace xformer::attention {

struct ClassRows {
  at::Tensor rows, log_sum;  // [b,h,n,d], [b,h,n,1]
};

// Token i reads itself and up to `back` tokens j < i of its class: softmax(q k^T) v, q scaled already. q, k, v
// [b,h,n,d], classes [b,h,n] int64; padded tokens have a class of their own. With `self_last` a token reads itself only
// where it sees no other (its logit is kernels::kSelfLogit).
[[nodiscard]] ClassRows class_windows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const at::Tensor& classes, int64_t back, bool self_last,
                                      const kernels::Dropout& dropout, bool training, const IndexTables& tables);

// Over the tokens in order of their class. explicit_pairs() are multiplied; a pattern has most where all are of one
// class.
[[nodiscard]] inline Windows class_windows_of(int64_t n, int64_t back) { return Windows::sliding(n, back, 0); }

}  // namespace xformer::attention
