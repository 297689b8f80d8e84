// Reformer: Kitaev, Kaiser, Levskaya, "Reformer: The Efficient Transformer", ICLR 2020, section 2 and appendix A.
//   k_j = q_j / |q_j|: one projection for queries and keys           h(q) = argmax [q R; -q R]
//   round r: tokens sorted by (h, position) and cut into chunks of c; P_i^r = the chunk of i and the one before it
//   o_i^r = sum over j in P_i^r of exp(q_i k_j - z_i^r) v_j          (equations 2, 3 and 5; z the log of the sum)
//   o_i   = sum over r of exp(z_i^r - log sum_r' exp z_i^r') o_i^r   (equation 6 by appendix A)
// The key itself is read only where a token sees no other (its logit is -1e5). Lists of all rounds lie one behind the
// other, and the chunk before the first is the last one: what a round's first chunk looks back to is the round before,
// as in the authors' code. A key found several times counts several times, unless dup_correct divides its weight by
// how often it is found (appendix A). Up to c tokens: plain attention, without hashing. No causal form: where a chunk
// ends depends on later tokens, so hiding them by position would still let them through.
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <set>

#include "attention/descriptor.h"
#include "attention/multi_head.h"
#include "attention/shared/full_precision.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::reformer {

using torch::autograd::variable_list;

constexpr double kEpsilon = 1e-6;  // of the mean square of a key
constexpr double kSelf = -1e5;     // logit of a token with itself
constexpr double kLowest = -1e30;  // stands for the largest logit where there is none

struct Options {
  int64_t rounds = 2;
  int64_t chunk = 64;
  bool dup_correct = false;
};

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

class ReformerMixer : public SequenceMixer {
 public:
  ReformerMixer(const Options& options, const BuildContext& context)
      : options_(options),
        model_dim_(context.model_dim),
        heads_(context.heads),
        head_dim_(context.head_dim),
        max_len_(context.max_len),
        dropout_(context.make_dropout()) {
    XF_ASSERT(max_len_ > 0, "reformer needs the longest length when it is built");
    const auto linear = [&](const char* name, int64_t in, int64_t out, bool bias) {
      return register_module(name,
                             std::make_shared<Linear>(in, out, bias, context.init_scheme, context.init.child(name)));
    };
    query_ = linear("query", model_dim_, heads_ * head_dim_, false);
    value_ = linear("value", model_dim_, heads_ * head_dim_, false);
    out_ = linear("out", heads_ * head_dim_, model_dim_, context.bias);
    // Fewer buckets take the first columns; two factors may need fewer than the largest single one.
    int64_t columns = 0;
    for (int64_t n = options.chunk + 1; n <= max_len_; ++n) columns = std::max(columns, columns_of(bucket_factors(n)));
    if (columns > 0)
      rotations_ = register_buffer("rotations",
                                   context.init.normal("rotations", {heads_, head_dim_, options.rounds, columns}, 1));
  }

  at::Tensor forward(const at::Tensor& x, const SequenceMask& mask, Carry&) override {
    const int64_t b = x.size(0), n = x.size(1);
    XF_CHECK(n <= max_len_, UserError, "reformer was built for at most {} tokens, got {}", max_len_, n);
    XF_ASSERT(!mask.causal, "reformer has no causal form");
    const at::Tensor projected_q = query_->forward(x), projected_v = value_->forward(x);
    at::Tensor mixed;  // [b,n,h,d]
    {
      const FullPrecision full(x.device().type());
      const at::Tensor q = full(projected_q).view({b, n, heads_, head_dim_});
      const at::Tensor v = full(projected_v).view({b, n, heads_, head_dim_});
      const at::Tensor k =
          q * ((q.square().mean(-1, /*keepdim=*/true) + kEpsilon) * static_cast<double>(head_dim_)).rsqrt();
      probe("q", q.transpose(1, 2)), probe("k", k.transpose(1, 2)), probe("v", v.transpose(1, 2));
      mixed = n <= options_.chunk ? attend_all(q, k, v, mask) : attend_hashed(q, k, v, mask);
      if (!mask.all_valid()) mixed = mixed.masked_fill(mask.key_valid.logical_not().unsqueeze(-1).unsqueeze(-1), 0);
    }
    probe("mixed", mixed.transpose(1, 2));
    return out_->forward(mixed.reshape({b, n, heads_ * head_dim_}));
  }

  // Z n d r columns for hashing, 4 Z d for each pair. The pattern has no rows behind the last token.
  [[nodiscard]] Cost cost(int64_t batch, int64_t length) const override {
    const double z = static_cast<double>(batch * heads_), d = static_cast<double>(head_dim_);
    const double n = static_cast<double>(length), c = static_cast<double>(options_.chunk);
    const double projections = 6 * z * n * d * static_cast<double>(model_dim_);
    if (length <= options_.chunk) {
      const double flops = projections + 4 * z * n * n * d;
      return {flops, flops, 2 * z * n * n};
    }
    const double r = static_cast<double>(options_.rounds), slots = static_cast<double>(slots_of(length));
    const double found = projections + 2 * z * n * d * r * static_cast<double>(columns_of(bucket_factors(length)));
    return {found + 8 * z * r * slots * c * d, found + 8 * z * r * n * c * d, 4 * z * r * slots * c};
  }

 private:
  struct Attended {
    at::Tensor rows, log_sum;  // [.., c, d] and [.., c, 1]
  };

  [[nodiscard]] int64_t slots_of(int64_t n) const { return (n + options_.chunk - 1) / options_.chunk * options_.chunk; }

  // Their product is the number of buckets, 2^floor(log2(2 n / c)): two factors where one would need too many columns.
  [[nodiscard]] std::vector<int64_t> bucket_factors(int64_t n) const {
    const int bits = std::bit_width(static_cast<uint64_t>(2 * n / options_.chunk)) - 1;
    const auto root = static_cast<int64_t>(std::sqrt(static_cast<double>(max_len_ / options_.chunk)));
    if (int64_t{1} << bits <= 2 * std::max(root, options_.chunk)) return {int64_t{1} << bits};
    return {int64_t{1} << (bits / 2), int64_t{1} << (bits - bits / 2)};
  }

  // Of the rotations: a column stands for two buckets, itself and its negative.
  static int64_t columns_of(const std::vector<int64_t>& factors) {
    return std::accumulate(factors.begin(), factors.end(), int64_t{0}) / 2;
  }

  // Equal numbers keep their order.
  static at::Tensor sorting_order(const at::Tensor& x) {
    return std::get<1>(at::sort(x, /*stable=*/std::optional<bool>(true), -1, /*descending=*/false));
  }

  // q [b,n,h,d] -> bucket of each token [b,h,r,slots]; padded tokens and the slots behind them have one of their own.
  [[nodiscard]] at::Tensor hash(const at::Tensor& q, const SequenceMask& mask) const {
    const int64_t b = q.size(0), n = q.size(1), r = options_.rounds;
    const std::vector<int64_t> factors = bucket_factors(n);
    const int64_t columns = columns_of(factors);
    const at::Tensor rotations = rotations_.to(q.scalar_type()).narrow(3, 0, columns).reshape({heads_, head_dim_, -1});
    const at::Tensor turned =
        at::bmm(q.reshape({b * n, heads_, head_dim_}).transpose(0, 1), rotations).view({heads_, b, n, r, columns});
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
    if (!mask.all_valid()) bucket = bucket.masked_fill(mask.key_valid.logical_not().unsqueeze(1).unsqueeze(1), buckets);
    return at::constant_pad_nd(bucket, {0, slots_of(n) - n}, buckets).contiguous();
  }

  // q [.., c, d], k and v [.., w, d]. `self` [.., c, w]: a token with itself; `hidden` [.., 1, w]: keys that are none;
  // `repeats` [.., c, w]: how often a key is found. The last two may be undefined.
  [[nodiscard]] Attended attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& self,
                                const at::Tensor& hidden, const at::Tensor& repeats) const {
    // Logits at first. In place, because nothing else is as large.
    at::Tensor weights = at::matmul(q, k.transpose(-1, -2));
    if (repeats.defined()) weights.sub_(repeats.to(q.scalar_type()).log());
    weights.masked_fill_(self, kSelf);
    if (hidden.defined()) weights.masked_fill_(hidden, -INFINITY);
    const at::Tensor largest = weights.detach().amax(-1, /*keepdim=*/true).clamp_min(kLowest);
    weights.sub_(largest).exp_();
    at::Tensor sum = weights.sum(-1, /*keepdim=*/true);  // zero only where all keys are hidden
    sum = sum.masked_fill(sum == 0, 1);
    probe("weights", weights), probe("weights_sum", sum);
    return {at::matmul(dropout_(weights, is_training()), v) / sum, largest + sum.log()};
  }

  // q, k, v [b,n,h,d] -> [b,n,h,d].
  [[nodiscard]] at::Tensor attend_all(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const SequenceMask& mask) const {
    const at::Tensor self = at::eye(q.size(1), q.options().dtype(at::kBool));
    at::Tensor hidden;
    if (!mask.all_valid()) hidden = mask.key_valid.logical_not().unsqueeze(1).unsqueeze(1);
    return attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), self, hidden, {}).rows.transpose(1, 2);
  }

  [[nodiscard]] at::Tensor attend_hashed(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                         const SequenceMask& mask) const {
    const int64_t b = q.size(0), n = q.size(1), h = heads_, d = head_dim_, r = options_.rounds, c = options_.chunk;
    const int64_t slots = slots_of(n), chunks = r * slots / c;
    const auto count = [&](int64_t to) { return at::arange(to, q.options().dtype(at::kLong)); };
    const at::Tensor sample = count(b).view({b, 1, 1, 1}), head = count(h).view({h, 1, 1}),
                     round = count(r).view({r, 1});

    const at::Tensor bucket = hash(q.detach(), mask);
    const at::Tensor order = sorting_order(bucket);                 // token of a slot [b,h,r,slots]
    const at::Tensor place = sorting_order(order) + round * slots;  // of a token in its list
    const at::Tensor tokens = order.view({b, h, chunks, c});
    const at::Tensor seen = at::cat({tokens.roll(1, 2), tokens}, -1);  // [b,h,chunks,2c]
    probe("buckets", bucket), probe("tokens", tokens);

    // x [b,n,h,d] by the tokens of all slots -> [b,h,chunks,w,d]. Slots behind the last token get it again; they are
    // hidden as keys and cut off as queries. `where` [copies,b,h,r,slots]: the rows that hold a token.
    const auto take = [&](const at::Tensor& x, const at::Tensor& which, const at::Tensor& where) {
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
    if (!mask.all_valid() || slots > n) {
      const at::Tensor valid = mask.all_valid() ? at::ones({b, n}, q.options().dtype(at::kBool)) : mask.key_valid;
      const at::Tensor padded = at::constant_pad_nd(valid, {0, slots - n}).flatten();
      hidden = padded.index_select(0, (seen + sample * slots).flatten()).view(seen.sizes()).logical_not().unsqueeze(-2);
    }
    const Attended found = attend(take(q, tokens, as_query.unsqueeze(0)), take(k, seen, as_key), take(v, seen, as_key),
                                  tokens.unsqueeze(-1) == seen.unsqueeze(-2), hidden,
                                  options_.dup_correct ? count_repeats(chunk, tokens, seen) : at::Tensor());

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

  // How often the lists of a query, of all its rounds, hold a key: [b,h,chunks,c,2c]. `chunk` [b,h,r,slots]: of a
  // token. A list reaches into its own round and into the one before.
  [[nodiscard]] at::Tensor count_repeats(const at::Tensor& chunk, const at::Tensor& tokens,
                                         const at::Tensor& seen) const {
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

  Options options_;
  int64_t model_dim_, heads_, head_dim_, max_len_;
  kernels::Dropout dropout_;
  std::shared_ptr<Linear> query_, value_, out_;
  at::Tensor rotations_;  // [h,d,r,columns]; undefined where no sequence is longer than a chunk
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::rounds, "rounds", "times that tokens are hashed, each time anew (r)", at_least(1))
          .add(&Options::chunk, "chunk", "tokens of a chunk of the hashed and sorted sequence (c)", at_least(1))
          .add(&Options::dup_correct, "dup_correct",
               "divide the weight of a key by the number of times that it is found over all rounds");
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor result;
  result.name = "reformer";
  result.title = "Reformer (LSH attention)";
  result.paper = "Kitaev, Kaiser, Levskaya: Reformer: The Efficient Transformer, 2020";
  result.method_class = "LP";
  result.summary =
      "Hashes tokens so that similar ones fall together, sorts them, and attends within neighbouring chunks.";
  result.complexity = Complexity::kLinearithmic;
  result.traits = {.fixed_length = true};
  result.options = schema().options();
  result.tensors = {
      {"query.weight", "W of q = x W^T [h d, m]; head i has rows i d to (i+1) d; keys are q at unit length"},
      {"value.weight", "W of v = x W^T [h d, m]"},
      {"out.weight", "W of output = (heads side by side) W^T + bias [m, h d]"},
      {"out.bias", "of output [m]"},
      {"rotations",
       "R of each head and round, a column for two buckets; fewer buckets take the first [h, d, r, columns]"}};
  result.build_mixer = [](const Json& options, const BuildContext& context) {
    return std::make_shared<ReformerMixer>(schema().read(options), context);
  };
  return {result};
}

}  // namespace xformer::attention::variants::reformer
