// The definition of hashed attention, with all weights in memory.
#include <ATen/Functions.h>
#include <torch/csrc/autograd/custom_function.h>

#include <set>

#include "kernels/hashed_attention/hashed_attention.h"
#include "tensor/probe.h"

namespace xformer::kernels {

namespace {

using torch::autograd::variable_list;

// Rows of x [rows, d] in the order of index [slots]; row i stands in the slots inverse[.., i] ([copies, rows]) and, if
// at all, in others without a gradient. So the gradient is gathered as well, and nothing is scattered.
struct TakeRows : torch::autograd::Function<TakeRows> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& index,
                            const at::Tensor& inverse) {
    context->save_for_backward({inverse});
    return x.index_select(0, index);
  }

  static variable_list backward(torch::autograd::AutogradContext* context, const variable_list& gradients) {
    const at::Tensor inverse = context->get_saved_variables()[0], gradient = gradients[0];
    const at::Tensor taken = gradient.index_select(0, inverse.flatten());
    return {taken.view({inverse.size(0), inverse.size(1), gradient.size(1)}).sum(0), at::Tensor(), at::Tensor()};
  }
};

// Equal numbers keep their order.
at::Tensor sorting_order(const at::Tensor& x) {
  return std::get<1>(at::sort(x, /*stable=*/std::optional<bool>(true), -1, /*descending=*/false));
}

struct Attended {
  at::Tensor rows, log_sum;  // [.., c, d] and [.., c, 1]
};

// q [.., c, d], k and v [.., w, d]. `self` [.., c, w]: a token with itself; `hidden` [.., 1, w]: keys that are none;
// `repeats` [.., c, w]: how often a key is found. The last two may be undefined.
Attended attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& self,
                const at::Tensor& hidden, const at::Tensor& repeats, const DropoutPlace& dropout) {
  // Logits at first. In place, because nothing else is as large.
  at::Tensor weights = at::matmul(q, k.transpose(-1, -2));
  if (repeats.defined()) weights.sub_(repeats.to(q.scalar_type()).log());
  weights.masked_fill_(self, kSelfLogit);
  if (hidden.defined()) weights.masked_fill_(hidden, -INFINITY);
  const at::Tensor largest = weights.detach().amax(-1, /*keepdim=*/true).clamp_min(kLowestLogit);
  weights.sub_(largest).exp_();
  at::Tensor sum = weights.sum(-1, /*keepdim=*/true);  // zero only where all keys are hidden
  sum = sum.masked_fill(sum == 0, 1);
  probe("weights", weights), probe("weights_sum", sum);
  return {at::matmul(dropout(weights), v) / sum, largest + sum.log()};
}

// How often the lists of a query, of all its rounds, hold a key: [b,h,chunks,c,2c]. `chunk` [b,h,r,slots]: of a token.
// A list reaches into its own round and into the one before.
at::Tensor count_repeats(const at::Tensor& chunk, const at::Tensor& tokens, const at::Tensor& seen) {
  const int64_t r = chunk.size(2), chunks = tokens.size(2);
  std::vector<at::Tensor> of_query, of_key;  // chunk of the same token in each round
  for (int64_t i = 0; i < r; ++i) {
    const at::Tensor here = chunk.select(2, i).to(at::kInt);
    of_query.push_back(here.gather(-1, tokens.flatten(2)).view(tokens.sizes()).unsqueeze(-1));
    of_key.push_back(here.gather(-1, seen.flatten(2)).view(seen.sizes()).unsqueeze(-2));
  }
  at::Tensor result = at::zeros({1}, tokens.options().dtype(at::kInt));
  for (int64_t i = 0; i < r; ++i)
    for (const int64_t j : std::set<int64_t>{i, (i + r - 1) % r}) {
      const at::Tensor back = of_query[static_cast<size_t>(i)] - of_key[static_cast<size_t>(j)];
      result = result + (back == 0).logical_or_(back == 1).logical_or_(back == 1 - chunks);
    }
  return result;
}

// q, k, v [b,n,h,d] -> [b,n,h,d].
at::Tensor attend_all(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const HashedAttentionOptions& options) {
  const at::Tensor self = at::eye(q.size(1), q.options().dtype(at::kBool));
  at::Tensor hidden;
  if (options.valid.defined()) hidden = options.valid.logical_not().unsqueeze(1).unsqueeze(1);
  return attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), self, hidden, {}, options.dropout)
      .rows.transpose(1, 2);
}

at::Tensor attend_hashed(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& bucket,
                         const HashedAttentionOptions& options) {
  const int64_t b = q.size(0), n = q.size(1), h = q.size(2), r = bucket.size(2), c = options.chunk;
  const int64_t slots = bucket.size(3), chunks = r * slots / c;
  const auto count = [&](int64_t to) { return at::arange(to, q.options().dtype(at::kLong)); };
  const at::Tensor sample = count(b).view({b, 1, 1, 1}), head = count(h).view({h, 1, 1}), round = count(r).view({r, 1});

  const at::Tensor order = sorting_order(bucket);                 // token of a slot [b,h,r,slots]
  const at::Tensor place = sorting_order(order) + round * slots;  // of a token in its list
  const at::Tensor tokens = order.view({b, h, chunks, c});
  const at::Tensor seen = at::cat({tokens.roll(1, 2), tokens}, -1);  // [b,h,chunks,2c]
  probe("tokens", tokens);

  // x [b,n,h,d] by the tokens of all slots -> [b,h,chunks,w,d]. Slots behind the last token get it again; they are
  // hidden as keys and cut off as queries. `where` [copies,b,h,r,slots]: the rows that hold a token.
  const auto take = [&](const at::Tensor& x, const at::Tensor& which, const at::Tensor& where) {
    const int64_t d = x.size(3);
    const at::Tensor index = (which.clamp_max(n - 1) + sample * n) * h + head;
    const at::Tensor inverse = where.narrow(-1, 0, n).permute({0, 3, 1, 4, 2}).reshape({-1, b * n * h});
    return TakeRows::apply(x.reshape({b * n * h, d}), index.flatten(), inverse).view({b, h, chunks, -1, d});
  };
  const at::Tensor list = sample * h + head, chunk = place.div(c, "floor"), offset = place - chunk * c;
  const at::Tensor as_query = place + list * (r * slots);  // row of a token as a query, by round [b,h,r,slots]
  // As a key it stands in the second half of its own chunk's list and in the first half of the next one's.
  const at::Tensor as_key =
      at::stack({chunk * (2 * c) + c, (chunk + 1).remainder(chunks) * (2 * c)}) + (offset + list * (chunks * 2 * c));

  at::Tensor hidden;  // [b,h,chunks,1,2c]
  if (options.valid.defined() || slots > n) {
    const at::Tensor valid = options.valid.defined() ? options.valid : at::ones({b, n}, q.options().dtype(at::kBool));
    const at::Tensor padded = at::constant_pad_nd(valid, {0, slots - n}).flatten();
    hidden = padded.index_select(0, (seen + sample * slots).flatten()).view(seen.sizes()).logical_not().unsqueeze(-2);
  }
  const Attended found =
      attend(take(q, tokens, as_query.unsqueeze(0)), take(k, seen, as_key), take(v, seen, as_key),
             tokens.unsqueeze(-1) == seen.unsqueeze(-2), hidden,
             options.dup_correct ? count_repeats(chunk, tokens, seen) : at::Tensor(), options.dropout);

  const at::Tensor there = as_query.permute({2, 0, 3, 1}).flatten();
  const at::Tensor back = (((round * b + sample) * slots + order) * h + head).view({1, -1});
  const auto restore = [&](const at::Tensor& x) {  // [b,h,chunks,c,e] -> [r,b,n,h,e]
    const int64_t e = x.size(-1);
    return TakeRows::apply(x.reshape({-1, e}), there, back).view({r, b, slots, h, e}).narrow(2, 0, n);
  };
  const at::Tensor rows = restore(found.rows), log_sum = restore(found.log_sum);
  probe("log_sum", log_sum);
  return (rows * at::softmax(log_sum, 0)).sum(0);
}

}  // namespace

at::Tensor hashed_attention_reference(const at::Tensor& q_heads, const at::Tensor& v_heads, const at::Tensor& buckets,
                                      const HashedAttentionOptions& options) {
  const at::Tensor q = q_heads.transpose(1, 2), v = v_heads.transpose(1, 2);
  const at::Tensor k =
      q * ((q.square().mean(-1, /*keepdim=*/true) + kKeyEpsilon) * static_cast<double>(q.size(3))).rsqrt();
  probe("k", k.transpose(1, 2));
  at::Tensor out = buckets.defined() ? attend_hashed(q, k, v, buckets, options) : attend_all(q, k, v, options);
  if (options.valid.defined()) out = out.masked_fill(options.valid.logical_not().unsqueeze(-1).unsqueeze(-1), 0);
  return out.transpose(1, 2);
}

at::Tensor hash_buckets_reference(const at::Tensor& q, const at::Tensor& directions,
                                  const std::vector<int64_t>& factors, const HashedAttentionOptions& options) {
  const at::Tensor turned = along_directions(q, directions);
  at::Tensor bucket;  // [h,b,n,r,1]
  int64_t first = 0, buckets = 1;
  for (const int64_t factor : factors) {
    const at::Tensor part = turned.narrow(-1, first, factor / 2), winner = part.abs().argmax(-1, /*keepdim=*/true);
    const at::Tensor digit = winner + (part.gather(-1, winner) < 0) * (factor / 2);
    bucket = bucket.defined() ? bucket + buckets * digit : digit;
    first += factor / 2;
    buckets *= factor;
  }
  bucket = bucket.squeeze(-1).permute({1, 0, 3, 2});  // [b,h,r,n]
  if (options.valid.defined())
    bucket = bucket.masked_fill(options.valid.logical_not().unsqueeze(1).unsqueeze(1), buckets);
  const int64_t n = q.size(2);
  return at::constant_pad_nd(bucket, {0, hashed_slots(n, options.chunk) - n}, buckets).contiguous();
}

}  // namespace xformer::kernels
