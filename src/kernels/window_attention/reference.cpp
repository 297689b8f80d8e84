// Attention over windows from plain tensor operations: the meaning of the operator and of its gradient.
#include <ATen/Functions.h>
#include <ATen/TensorIndexing.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "kernels/window_attention/window_attention.h"
#include "tensor/probe.h"

namespace xformer::kernels {

namespace {

// Keys or values of each block [b,h,1,t,g,d], or those of all [b,h,1,1,m,d].
at::Tensor extra_rows(const at::Tensor& x, const at::Tensor& places) {
  if (!places.defined()) return x.unsqueeze(2).unsqueeze(2);
  const at::Tensor heads = at::arange(x.size(1), places.options()).view({-1, 1, 1});
  return x.index({at::indexing::Slice(), heads, places.clamp_min(0)}).unsqueeze(2);
}

// Numbers of keys [b or 1,h or 1,n] by columns: broadcasts to [b,h,r,t,c,w].
at::Tensor by_columns(const Windows& windows, const at::Tensor& x) {
  return windows.columns(x.unsqueeze(-1)).transpose(-1, -2);
}
// Those of extra keys [b or 1,h or 1,m]: broadcasts to [b,h,r,t,c,g].
at::Tensor by_extra(const ExtraKeys& extra, const at::Tensor& x) {
  if (!extra.places.defined()) return x.unsqueeze(2).unsqueeze(2).unsqueeze(2);
  return extra_rows(x.expand({-1, extra.k.size(1), -1}).unsqueeze(-1), extra.places).transpose(-1, -2);
}

at::Tensor both(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() ? a.logical_and(b) : a.defined() ? a : b;
}

// Which of them count: broadcasts to [b,h,r,t,c,g]; undefined: all.
at::Tensor extra_allowed(const ExtraKeys& extra) {
  at::Tensor allowed = extra.allowed.defined() ? by_extra(extra, extra.allowed) : at::Tensor();
  if (extra.bias.defined()) allowed = both(allowed, by_extra(extra, extra.bias.isneginf().logical_not()));
  if (!extra.places.defined()) return allowed;
  return both(extra.places.ge(0).unsqueeze(0).unsqueeze(2).unsqueeze(4), allowed);  // [1,h or 1,1,t,1,g]
}

// Of each pair in the columns: the offset's place in [r], where it is one of the windows' [c,w].
at::Tensor offset_places(const Windows& windows, const at::Tensor& like) {
  const auto numbers = like.options().dtype(at::kLong);
  const at::Tensor offset = at::arange(-windows.before, windows.block + windows.after, numbers) -
                            at::arange(windows.block, numbers).unsqueeze(1);
  return (offset + windows.back).clamp(0, windows.back + windows.ahead);
}

// Which columns a row sees: broadcasts to [b,h,r,t,c,w]; undefined: all.
at::Tensor allowed_columns(const WindowAttentionOptions& options, const at::Tensor& bias, const at::Tensor& like) {
  at::Tensor allowed = options.windows.allowed(options.valid, like);
  if (options.bias.defined())
    allowed = both(allowed, by_columns(options.windows, options.bias.isneginf().logical_not()));
  if (!bias.defined()) return allowed;
  const at::Tensor seen = bias.detach().isneginf().logical_not().to(like.device());  // [h,r]
  const at::Tensor near = seen.index({at::indexing::Slice(), offset_places(options.windows, like)});
  const at::Tensor by_offset = near.unsqueeze(1).unsqueeze(1).unsqueeze(0);
  return both(allowed, by_offset);
}

// Which of a row's g + w keys count: broadcasts to [b,h,r,t,c,g+w]; undefined: all.
at::Tensor allowed_keys(const ExtraKeys& extra, const RelativeKeys& relative, const WindowAttentionOptions& options,
                        const at::Tensor& like) {
  const at::Tensor allowed = allowed_columns(options, relative.bias, like);
  if (!extra.k.defined()) return allowed;
  const at::Tensor more = extra_allowed(extra);
  if (!allowed.defined() && !more.defined()) return allowed;
  const auto type = like.options().dtype(at::kBool);
  const int64_t g = extra.count(), w = options.windows.columns_per_block();
  const at::Tensor left = more.defined() ? more : at::ones({1, 1, 1, 1, 1, g}, type);
  const at::Tensor right = allowed.defined() ? allowed : at::ones({1, 1, 1, 1, 1, w}, type);
  std::vector<int64_t> shape;
  for (int64_t dim = 0; dim < 5; ++dim) shape.push_back(std::max(left.size(dim), right.size(dim)));
  const auto spread = [&](const at::Tensor& x, int64_t size) {
    auto full = shape;
    full.push_back(size);
    return x.expand(full);
  };
  return at::cat({spread(left, g), spread(right, w)}, -1);
}

}  // namespace

at::Tensor window_attention_reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const ExtraKeys& extra, const WindowAttentionOptions& options,
                                      at::Tensor* log_sum, const RelativeKeys& relative) {
  const Windows& windows = options.windows;
  const auto with_extra = [&](const at::Tensor& x, const at::Tensor& more) {  // [b,h,r,t,g+w,d]
    const at::Tensor columns = windows.columns(x);
    if (!more.defined()) return columns;
    auto shape = columns.sizes().vec();
    shape[4] = extra.count();
    return at::cat({extra_rows(more, extra.places).expand(shape), columns}, 4);
  };
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
  const at::Tensor rows = windows.rows(q * scale);
  at::Tensor scores = at::matmul(rows, with_extra(k, extra.k).transpose(-1, -2));  // [b,h,r,t,c,g+w]
  if (relative.defined()) {
    const at::Tensor place = offset_places(windows, q);
    const at::Tensor bias = relative.bias.masked_fill(relative.bias.isneginf(), 0);  // [h,r]
    const at::Tensor by_distance = at::matmul(rows, relative.vectors.t()) + bias.unsqueeze(1).unsqueeze(1).unsqueeze(1);
    auto shape = scores.sizes().vec();
    shape[5] = place.size(1);
    const at::Tensor gained = by_distance.gather(-1, place.expand(shape));
    scores = extra.k.defined() ? scores + at::constant_pad_nd(gained, {extra.count(), 0}) : scores + gained;
  }
  const auto finite = [&](const at::Tensor& bias) { return bias.masked_fill(bias.isneginf(), 0).to(q.scalar_type()); };
  if (options.bias.defined())
    scores.narrow(-1, extra.count(), windows.columns_per_block()) += by_columns(windows, finite(options.bias));
  if (extra.bias.defined()) scores.narrow(-1, 0, extra.count()) += by_extra(extra, finite(extra.bias));
  const at::Tensor allowed = allowed_keys(extra, relative, options, q);
  const double lowest = lowest_log_sum(scores.scalar_type());
  if (allowed.defined()) {
    // Where a weight is zero, softmax passes no gradient: the fill needs none of its own, and saves a pass over the
    // scores.
    const at::NoGradGuard no_grad;
    scores.masked_fill_(allowed.logical_not(), lowest);
  }
  const at::Tensor weights = at::softmax(scores, -1);
  probe("weights", weights);
  at::Tensor out = windows.join(at::matmul(options.dropout(weights), with_extra(v, extra.v)));
  if (log_sum != nullptr) *log_sum = windows.join(at::logsumexp(scores, -1, /*keepdim=*/true));
  // Without padding, distances and biases every row sees itself. A row without any key has even weights here: zero, and
  // no gradient.
  if (options.valid.defined() || options.bias.defined() || relative.defined()) {
    const at::Tensor any =
        allowed.any(-1, /*keepdim=*/true).expand({-1, -1, windows.dilation, windows.blocks, windows.block, 1});
    at::Tensor zero = windows.join(any).logical_not();
    if (options.valid.defined()) zero = zero.logical_or(options.valid.logical_not().unsqueeze(1).unsqueeze(-1));
    out = out.masked_fill(zero, 0);
    if (log_sum != nullptr) *log_sum = log_sum->masked_fill(zero, lowest);
  }
  return out;
}

}  // namespace xformer::kernels
