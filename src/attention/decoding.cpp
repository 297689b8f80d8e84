#include "attention/decoding.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "tensor/parts.h"

namespace xformer::attention {

int64_t decoding_length(const Resolved& attention, const Json& options, int64_t max_len) {
  return attention.base->appended_padding.holds(options) ? 0 : max_len;
}

at::Tensor keep(State& kept, const std::string& name, const at::Tensor& rows, const DecodingStep& step) {
  const int64_t count = rows.size(-2), all = step.first + count;
  XF_ASSERT(count == 1 || step.first == 0, "{} tokens at once behind {}", count, step.first);
  at::Tensor& place = kept[name];
  if (step.first == 0 || place.size(-2) < all) {
    // Twice as long each time, so that rows are copied once or twice in all.
    std::vector<int64_t> shape = rows.sizes().vec();
    shape[shape.size() - 2] = std::max(all, 2 * step.first);
    const at::Tensor larger = at::empty(shape, rows.options());
    if (step.first > 0) larger.narrow(-2, 0, step.first).copy_(place.narrow(-2, 0, step.first));
    place = larger;
  }
  place.narrow(-2, step.first, count).copy_(rows);
  return place.narrow(-2, 0, all);
}

namespace {

const SequenceMask kCausal{{}, /*causal=*/true};

// [..,n,d] with zeros behind, where the step asks for a length.
at::Tensor lengthened(const at::Tensor& rows, const DecodingStep& step) {
  return with_zeros_behind(rows, -2, std::max<int64_t>(0, step.length - rows.size(-2)));
}

}  // namespace

at::Tensor decode(SequenceMixer& mixer, const at::Tensor& x, const DecodingStep& step, Carry& carry, State& kept) {
  if (auto* const own = dynamic_cast<DecodingMixer*>(&mixer)) return own->decode(x, step, carry, kept);
  const at::Tensor all = lengthened(keep(kept, "inputs", x, step), step);
  return mixer.forward(all, kCausal, carry).narrow(1, step.first, x.size(1));
}

at::Tensor decode(AttentionCore& core, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const DecodingStep& step, Carry& carry, State& kept) {
  if (auto* const own = dynamic_cast<DecodingCore*>(&core)) return own->decode(q, k, v, step, kept);
  const at::Tensor keys = keep(kept, "keys", k, step), values = keep(kept, "values", v, step);
  if (dynamic_cast<const RowCore*>(&core) != nullptr)
    return core.forward(q, keys, values, q.size(2) == 1 ? SequenceMask{} : kCausal, carry);
  const at::Tensor queries = keep(kept, "queries", q, step);
  return core.forward(lengthened(queries, step), lengthened(keys, step), lengthened(values, step), kCausal, carry)
      .narrow(2, step.first, q.size(2));
}

}  // namespace xformer::attention
