// Reformer: Kitaev, Kaiser, Levskaya, "Reformer: The Efficient Transformer", ICLR 2020, section 2 and appendix A.
//   k_j = q_j / |q_j|: one projection for queries and keys           h(q) = argmax [q R; -q R]
//   round r: tokens sorted by (h, position) and cut into chunks of c; P_i^r = the chunk of i and the one before it
//   o_i^r = sum over j in P_i^r of exp(q_i k_j - z_i^r) v_j          (equations 2, 3 and 5; z the log of the sum)
//   o_i   = sum over r of exp(z_i^r - log sum_r' exp z_i^r') o_i^r   (equation 6 by appendix A)
// The key itself is read only where a token sees no other (its logit is -1e5). Lists of all rounds lie one behind the
// other, and the chunk before the first is the last one: what a round's first chunk looks back to is the round before,
// as in the authors' code. A key found several times counts several times, unless dup_correct divides its weight by
// how often it is found (appendix A). Up to c tokens: plain attention, without hashing.
// Causal: where a chunk begins depends on later tokens, so that chunks with later keys hidden, as published, let them
// through (attention-core 3.6 has how much). Here a token sees, in each round, the last c tokens of its own bucket
// before it, which is P_i of equation 3 but for its oldest part.
#include <ATen/OpMathType.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "attention/descriptor.h"
#include "attention/multi_head.h"
#include "attention/shared/class_windows.h"
#include "attention/shared/full_precision.h"
#include "kernels/hashed_attention/hashed_attention.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::reformer {

struct Options {
  int64_t rounds = 2;
  int64_t chunk = 64;
  bool dup_correct = false;
};

class ReformerMixer : public SequenceMixer {
 public:
  ReformerMixer(const Options& options, const BuildContext& context)
      : options_(options),
        model_dim_(context.model_dim),
        heads_(context.heads),
        head_dim_(context.head_dim),
        max_len_(context.max_len),
        causal_(context.causal),
        dropout_(context.make_dropout()) {
    XF_ASSERT(max_len_ > 0, "reformer needs the longest length when it is built");
    XF_CHECK(!causal_ || !options.dup_correct, UserError,
             "attention.dup_correct: reformer has no causal form of it; its lists are of chunks");
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
    XF_ASSERT(mask.causal == causal_, "reformer was built with causal {}", causal_);
    const std::vector<at::Tensor> projected = kernels::linear(x, {query_->map(), value_->map()}, mask.needed());
    at::Tensor mixed;  // [b,h,n,d]
    {
      const FullPrecision full(x.device().type(), /*takes_bf16=*/!causal_);
      const auto heads = [&](const at::Tensor& y) { return full(y).view({b, n, heads_, head_dim_}).transpose(1, 2); };
      const at::Tensor q = heads(projected[0]), v = heads(projected[1]);
      probe("q", q), probe("v", v);
      const kernels::HashedAttentionOptions options{options_.chunk, options_.dup_correct,
                                                    mask.all_valid() ? at::Tensor() : mask.key_valid,
                                                    dropout_.place(is_training())};
      const at::Tensor buckets = hash(q.detach(), options);
      if (buckets.defined()) probe("buckets", buckets);
      mixed = causal_ ? look_back(q, v, buckets, mask) : kernels::hashed_attention(q, v, buckets, options);
    }
    probe("mixed", mixed);
    return kernels::linear(mixed.transpose(1, 2).reshape({b, n, heads_ * head_dim_}), out_->map(), mask.needed());
  }

  // Z n d r columns for hashing, 4 Z d for each pair. The pattern has no rows behind the last token.
  [[nodiscard]] Cost cost(int64_t batch, int64_t length) const override {
    const double z = static_cast<double>(batch * heads_), d = static_cast<double>(head_dim_);
    const double n = static_cast<double>(length), c = static_cast<double>(options_.chunk);
    const double projections = 6 * z * n * d * static_cast<double>(model_dim_);
    if (causal_) {
      const Windows windows = class_windows_of(length, options_.chunk);
      const bool hashed = length > options_.chunk;
      const auto r = static_cast<double>(hashed ? options_.rounds : 1);
      const double columns = hashed ? static_cast<double>(columns_of(bucket_factors(length))) : 0;
      const double found = projections + 2 * z * n * d * r * columns, pairs = windows.explicit_pairs();
      return {found + 4 * z * r * d * pairs, found + 4 * z * r * d * windows.pattern_pairs(), 3 * z * r * pairs};
    }
    if (length <= options_.chunk) {
      const double flops = projections + 4 * z * n * n * d;
      return {flops, flops, z * n * (3 * d + 2)};
    }
    const double r = static_cast<double>(options_.rounds);
    const auto slots = static_cast<double>(kernels::hashed_slots(length, options_.chunk));
    const double found = projections + 2 * z * n * d * r * static_cast<double>(columns_of(bucket_factors(length)));
    const double lists = options_.dup_correct ? 4 * r * slots * c : 3 * r * slots;
    return {found + 8 * z * r * slots * c * d, found + 8 * z * r * n * c * d, z * (n * (3 * d + 2) + lists)};
  }

 private:
  // Their product is the number of buckets, 2^floor(log2(2 n / c)): two factors where one would need too many columns.
  [[nodiscard]] std::vector<int64_t> bucket_factors(int64_t n) const {
    const int bits = std::bit_width(static_cast<uint64_t>(2 * n / options_.chunk)) - 1;
    const auto root = static_cast<int64_t>(std::sqrt(static_cast<double>(max_len_ / options_.chunk)));
    if (int64_t{1} << bits <= 2 * std::max(root, options_.chunk)) return {int64_t{1} << bits};
    return {int64_t{1} << (bits / 2), int64_t{1} << (bits - bits / 2)};
  }

  // Columns of the rotations: each stands for two buckets, itself and its negative.
  static int64_t columns_of(const std::vector<int64_t>& factors) {
    return std::accumulate(factors.begin(), factors.end(), int64_t{0}) / 2;
  }

  // q [b,h,n,d] -> bucket of each token [b,h,r,slots]; undefined where no hashing is needed.
  [[nodiscard]] at::Tensor hash(const at::Tensor& queries, const kernels::HashedAttentionOptions& options) const {
    const int64_t n = queries.size(2);
    if (n <= options_.chunk) return {};
    const std::vector<int64_t> factors = bucket_factors(n);
    const at::Tensor rotations =
        rotations_.to(at::toOpMathType(queries.scalar_type())).narrow(3, 0, columns_of(factors));
    return kernels::hash_buckets(queries, rotations, factors, options);
  }

  // q, v [b,h,n,d], buckets [b,h,r,slots] or undefined: all tokens are of one.
  [[nodiscard]] at::Tensor look_back(const at::Tensor& q, const at::Tensor& v, const at::Tensor& buckets,
                                     const SequenceMask& mask) const {
    const int64_t b = q.size(0), n = q.size(2), r = buckets.defined() ? options_.rounds : 1;
    at::Tensor classes =
        buckets.defined() ? buckets.narrow(-1, 0, n) : at::zeros({b, heads_, 1, n}, q.options().dtype(at::kLong));
    if (!buckets.defined() && !mask.all_valid())
      classes = classes.masked_fill(mask.key_valid.logical_not().unsqueeze(1).unsqueeze(1), 1);
    const at::Tensor k =
        q * ((q.square().mean(-1, /*keepdim=*/true) + kernels::kKeyEpsilon) * static_cast<double>(head_dim_)).rsqrt();
    const auto rounds = [&](const at::Tensor& x) {  // [b,h r,n,d]
      return x.unsqueeze(2).expand({b, heads_, r, n, x.size(-1)}).flatten(1, 2);
    };
    const ClassRows found = class_windows(rounds(q), rounds(k), rounds(v), classes.flatten(1, 2), options_.chunk,
                                          /*self_last=*/true, dropout_, is_training(), tables_);
    const auto split = [&](const at::Tensor& x) { return x.unflatten(1, {heads_, r}); };
    return mask.zero_padding((split(found.rows) * at::softmax(split(found.log_sum), 2)).sum(2));
  }

  Options options_;
  int64_t model_dim_, heads_, head_dim_, max_len_;
  bool causal_;
  kernels::Dropout dropout_;
  std::shared_ptr<Linear> query_, value_, out_;
  IndexTables tables_;
  at::Tensor rotations_;  // [h,d,r,columns]; undefined where no sequence is longer than a chunk
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::rounds, "rounds", "times that tokens are hashed, each time anew (r)", at_least(1))
          .add(&Options::chunk, "chunk", "tokens of a chunk of the hashed and sorted sequence (c)", at_least(1))
          .add(&Options::dup_correct, "dup_correct",
               "divide the weight of a key by the number of times that it is found over all rounds; not causal");
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
  result.traits = {.causal_ok = true, .fixed_length = true};
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
