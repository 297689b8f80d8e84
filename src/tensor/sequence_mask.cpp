#include "tensor/sequence_mask.h"

#include <ATen/Functions.h>

#include "core/error.h"
#include "tensor/closed_keys.h"
#include "tensor/parts.h"

namespace xformer {

at::Tensor SequenceMask::as_factor(at::ScalarType type) const {
  XF_ASSERT(key_valid.defined(), "a mask without key_valid has no factor");
  return key_valid.to(type).unsqueeze(1).unsqueeze(-1);
}

at::Tensor SequenceMask::query_valid(int64_t n) const {
  return all_valid() || cross || key_valid.size(1) != n ? at::Tensor() : key_valid;
}

int64_t pooled_len(int64_t n, int64_t scale, int64_t pinned) { return pinned + (n - pinned + scale - 1) / scale; }

at::Tensor SequenceMask::zero_padding(const at::Tensor& x) const {
  // A selection is one pass; masked_fill would copy first.
  return all_valid() ? x : at::where(key_valid.unsqueeze(1).unsqueeze(-1), x, 0);
}

SequenceMask SequenceMask::pooled(int64_t scale, int64_t pinned) const {
  if (scale == 1 || all_valid()) return *this;
  const int64_t n = key_valid.size(1), groups = pooled_len(n, scale, pinned) - pinned;
  const at::Tensor rest =
      with_zeros_behind(part_of(key_valid, 1, pinned, n - pinned), 1, groups * scale - (n - pinned));
  const at::Tensor any = rest.view({rest.size(0), groups, scale}).any(2);
  return {pinned == 0 ? any : at::cat({key_valid.narrow(1, 0, pinned), any}, 1), causal, cross};
}

at::Tensor pool_tokens(const at::Tensor& x, const SequenceMask& mask, int64_t scale, int64_t pinned) {
  if (scale == 1) return x;
  const int64_t n = x.size(2), groups = pooled_len(n, scale, pinned) - pinned, missing = groups * scale - (n - pinned);
  const at::Tensor valid = mask.all_valid() ? at::ones({1, 1, n, 1}, x.options()) : mask.as_factor(x.scalar_type());
  const auto grouped = [&](const at::Tensor& rows) {  // [.., n - pinned, d] -> sums [.., groups, d]
    const at::Tensor padded = with_zeros_behind(part_of(rows, 2, pinned, n - pinned), 2, missing);
    return padded.unflatten(2, {groups, scale}).sum(3);
  };
  const at::Tensor masked = mask.all_valid() ? x : x * valid;
  const at::Tensor mean = grouped(masked) / grouped(valid).clamp_min(1);
  return pinned == 0 ? mean : at::cat({masked.narrow(2, 0, pinned), mean}, 2);
}

at::Tensor repeat_tokens(const at::Tensor& x, int64_t n, int64_t scale, int64_t pinned) {
  if (scale == 1) return x;
  const int64_t groups = x.size(2) - pinned;
  auto shape = x.sizes().vec();
  shape[2] = groups;
  shape.insert(shape.begin() + 3, scale);
  const at::Tensor repeated =
      part_of(part_of(x, 2, pinned, groups).unsqueeze(3).expand(shape).flatten(2, 3), 2, 0, n - pinned);
  return pinned == 0 ? repeated : at::cat({x.narrow(2, 0, pinned), repeated}, 2);
}

at::Tensor masked_softmax(const at::Tensor& scores, const SequenceMask& mask) {
  const at::Tensor closed = closed_keys(mask, scores.size(-2), scores.size(-1), scores);
  return closed.defined() ? closed_softmax(scores, closed) : at::softmax(scores, -1);
}

}  // namespace xformer
