// Memory-compressed attention: Liu, Saleh, Pot, Goodrich, Sepassi, Kaiser, Shazeer, "Generating Wikipedia by
// Summarizing Long Sequences", 2018, section 4.2.4. A convolution whose kernel is as long as its stride c makes one key
// and one value of every c; all queries see all of them:
//   O = softmax(Q K'^T / sqrt(d)) V',   K'_t = W [K_tc, .., K_tc+c-1] + b, V' the same of V
// with one kernel W for keys and values, of each head by itself (attention-more 4). Padded tokens are zero in it; a
// slot without a valid token is no key. Causal: slot t is seen by queries i >= (t + 1) c - 1, which come behind all of
// it, and slot 0 of the softmax is a learned null key and value, without which the first queries would see nothing.
// With `alternate` even layers attend within blocks instead, as the paper's decoder does.
#include <cmath>

#include "attention/descriptor.h"
#include "attention/shared/windows.h"
#include "kernels/attention/attention.h"
#include "kernels/fused.h"
#include "tensor/parts.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::memory_compressed {

struct Options {
  int64_t compression = 3;
  bool alternate = false;
  int64_t block = 256;
};

class MemoryCompressedCore : public AttentionCore {
 public:
  MemoryCompressedCore(const Options& options, const BuildContext& context)
      : rate_(options.compression),
        block_(options.alternate && context.layer % 2 == 0 ? options.block : 0),
        causal_(context.causal),
        dropout_(context.make_dropout()) {
    if (block_ > 0) return;
    const int64_t h = context.heads, d = context.head_dim;
    const double bound = 1 / std::sqrt(static_cast<double>(rate_ * d));  // LibTorch's for Conv1d with a group a head
    kernel_ = register_parameter("compress", context.init.uniform("compress", {h, rate_, d, d}, -bound, bound));
    bias_ = register_parameter("compress_bias", context.init.uniform("compress_bias", {h, 1, d}, -bound, bound));
    if (causal_) null_ = register_parameter("null", at::zeros({h, 1, 2 * d}));
  }

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    XF_ASSERT(mask.causal == causal_ && k.size(2) == q.size(2),
              "memory-compressed attends within one sequence, causal {}", causal_);
    if (block_ > 0)
      return window_attention(q, k, v, mask.key_valid, Windows::own_block(q.size(2), block_, causal_), dropout_,
                              is_training());
    const at::Tensor short_k = compressed(k, mask), short_v = compressed(v, mask);  // [b,h,n',d]
    probe("short_k", short_k), probe("short_v", short_v);
    if (causal_) return look_back(q, short_k, short_v, mask);
    kernels::AttentionOptions options = options_of(q);
    options.mask.key_valid = mask.pooled(rate_).key_valid;
    options.query_valid = mask.key_valid;
    return kernels::attention(q, short_k, short_v, options);
  }

  [[nodiscard]] bool takes_bf16() const override { return true; }

  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const double z = static_cast<double>(shape.batch * shape.heads), d = static_cast<double>(shape.head_dim);
    const double n = static_cast<double>(shape.query_len);
    if (block_ > 0) {
      const Windows windows = Windows::own_block(shape.query_len, block_, causal_);
      return {4 * z * d * windows.executed_pairs(), 4 * z * d * windows.pattern_pairs(), kept_of_windows(z, n, d)};
    }
    const int64_t groups = pooled_len(shape.query_len, rate_);
    const double convolved = 4 * z * d * d * static_cast<double>(groups * rate_);
    double executed = n * static_cast<double>(groups), pattern = executed;
    if (causal_) {
      const int64_t rows = whole_groups(shape.query_len) + 1;
      executed = static_cast<double>(rate_ * kernels::attention_pairs(rows, rows, /*causal=*/true));
      pattern = 0;
      for (int64_t i = 0; i < shape.query_len; ++i) pattern += static_cast<double>(1 + (i + 1) / rate_);
    }
    return {convolved + 4 * z * d * executed, 4 * z * n * d * d + 4 * z * d * pattern, kept_of_windows(z, n, d)};
  }

 private:
  [[nodiscard]] int64_t whole_groups(int64_t n) const { return n / rate_; }

  [[nodiscard]] kernels::AttentionOptions options_of(const at::Tensor& q) const {
    kernels::AttentionOptions options;
    options.scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
    options.dropout = dropout_.place(is_training());
    return options;
  }

  // [b,h,n,d] -> [b,h,n',d]
  [[nodiscard]] at::Tensor compressed(const at::Tensor& x, const SequenceMask& mask) const {
    const int64_t n = x.size(2), groups = pooled_len(n, rate_);
    const at::Tensor valid = with_zeros_behind(mask.zero_padding(kernels::in_float(x)), 2, groups * rate_ - n);
    return at::matmul(valid.unflatten(2, {groups, rate_}).flatten(3), kernel_.flatten(1, 2)) + bias_;
  }

  // Query i sees the null slot and slots t < (i + 1) / c: of the queries with one remainder of (i + 1) mod c each sees
  // one slot more than the one before, which is causal attention of that many slots.
  [[nodiscard]] at::Tensor look_back(const at::Tensor& q, const at::Tensor& short_k, const at::Tensor& short_v,
                                     const SequenceMask& mask) const {
    const int64_t b = q.size(0), h = q.size(1), n = q.size(2), d = q.size(3), rows = whole_groups(n) + 1;
    const auto slots = [&](const at::Tensor& x,
                           const at::Tensor& null) {  // [b,h c,rows,d], the same for all remainders
      const at::Tensor all = at::cat({null.unsqueeze(0).expand({b, h, 1, d}), x.narrow(2, 0, rows - 1)}, 2);
      return all.unsqueeze(2).expand({b, h, rate_, rows, d}).flatten(1, 2);
    };
    const at::Tensor by_remainder = at::constant_pad_nd(q, {0, 0, 1, rows * rate_ - n - 1})
                                        .unflatten(2, {rows, rate_})
                                        .transpose(2, 3)
                                        .flatten(1, 2);  // [b,h c,rows,d], a row of no query in front
    kernels::AttentionOptions options = options_of(q);
    options.mask.causal = true;
    if (!mask.all_valid()) {  // the null slot is there for samples that have a token
      const at::Tensor groups = mask.pooled(rate_).key_valid.narrow(1, 0, rows - 1);
      options.mask.key_valid = at::cat({mask.key_valid.any(1, /*keepdim=*/true), groups}, 1);
    }
    const at::Tensor out = kernels::attention(by_remainder, slots(short_k, null_.narrow(-1, 0, d)),
                                              slots(short_v, null_.narrow(-1, d, d)), options);
    return out.unflatten(1, {h, rate_}).transpose(2, 3).flatten(2, 3).narrow(2, 1, n);
  }

  int64_t rate_, block_;  // block_: of a layer that is local, else 0
  bool causal_;
  kernels::Dropout dropout_;
  at::Tensor kernel_, bias_, null_;  // W [h, c, d in, d out], b [h, 1, d], null key and value [h, 1, 2 d]
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::compression, "compression", "consecutive tokens whose keys and values become one (c)",
               at_least(1))
          .add(&Options::alternate, "alternate", "even layers attend within blocks, odd ones to compressed keys")
          .add(&Options::block, "block", "tokens per block (b)", at_least(1));
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor result;
  result.name = "memory-compressed";
  result.title = "Memory-compressed attention";
  result.paper =
      "Liu, Saleh, Pot, Goodrich, Sepassi, Kaiser, Shazeer: Generating Wikipedia by Summarizing Long Sequences, 2018";
  result.method_class = "FP+M";
  result.summary = "A strided convolution makes one key and one value of every few; all queries see them.";
  result.complexity = Complexity::kQuadratic;
  result.traits = {.causal_ok = true};
  result.appended_padding = always_exact();
  result.options = schema().options();
  result.tensors = {
      {"compress", "W: kernel over c keys, and over c values, of each head [h, c, d in, d out]"},
      {"compress_bias", "b: added to each compressed key and value [h, 1, d]"},
      {"null", "key and value side by side that all queries of a causal sequence see in front [h, 1, 2 d]"}};
  result.build_core = [](const Json& options, const BuildContext& context) {
    return std::make_shared<MemoryCompressedCore>(schema().read(options), context);
  };
  return {result};
}

}  // namespace xformer::attention::variants::memory_compressed
