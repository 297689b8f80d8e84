// Attention over listed keys from plain tensor operations: the meaning of the operator and of its gradient. Keys and
// values are gathered a tile of rows at a time.
#include <ATen/Functions.h>

#include <cmath>

#include "kernels/listed_attention/listed_attention.h"
#include "kernels/row_tiles.h"
#include "tensor/closed_keys.h"
#include "tensor/probe.h"

namespace xformer::kernels {

namespace {

// Rows of x [b,h,m,d] at places [b,h,r,L]: [b,h,r,L,d].
at::Tensor rows_at(const at::Tensor& x, const at::Tensor& places) {
  const at::Tensor flat = places.flatten(2).unsqueeze(-1).expand({-1, -1, -1, x.size(3)});
  return x.gather(2, flat).unflatten(2, {places.size(2), places.size(3)});
}

}  // namespace

at::Tensor listed_attention_reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const ListedAttentionOptions& options, const at::Tensor& bias) {
  const int64_t b = q.size(0), h = q.size(1), n = q.size(2), length = options.places.size(3);
  at::Tensor places = options.places.expand({b, h, -1, -1});
  if (options.lists.defined())
    places = places.gather(2, options.lists.unsqueeze(-1).expand({b, h, n, length}));  // [b,h,n,L]
  at::Tensor closed = places.lt(0);
  places = places.clamp_min(0);
  if (options.key_valid.defined()) {
    const at::Tensor valid = options.key_valid.unsqueeze(1).expand({b, h, -1}).gather(2, places.flatten(2));
    closed = closed.logical_or(valid.logical_not().unflatten(2, {n, length}));
  }
  if (options.row_valid.defined())
    closed = closed.logical_or(options.row_valid.logical_not().unsqueeze(1).unsqueeze(-1));

  const int64_t tile = tile_rows(b * h * length * std::max(q.size(3), v.size(3)));
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  at::Tensor scores = in_row_tiles({q * scale, places}, {k}, tile, [](const Tensors& rows, const Tensors& whole) {
    return at::matmul(rows_at(whole[0], rows[1]), rows[0].unsqueeze(-1)).squeeze(-1);  // [b,h,r,L]
  });
  if (bias.defined()) scores = scores + bias;
  const at::Tensor weights = closed_softmax(scores, closed);
  probe("weights", weights);
  at::Tensor dropped;
  if (options.drops_by_key && options.dropout.p > 0)
    dropped = weights * options.dropout(at::ones({b, h, n, k.size(2)}, weights.options())).gather(3, places);
  else dropped = options.dropout(weights);
  return in_row_tiles({dropped, places}, {v}, tile, [](const Tensors& rows, const Tensors& whole) {
    return at::matmul(rows[0].unsqueeze(-2), rows_at(whole[0], rows[1])).squeeze(-2);  // [b,h,r,e]
  });
}

}  // namespace xformer::kernels
