#include "kernels/hashed_attention/hashed_attention.h"

#include "core/error.h"
#include "kernels/fused.h"
#include "kernels/hashed_attention/cpu.h"
#include "kernels/hashed_attention/device.h"

namespace xformer::kernels {

namespace {

const Operator<hash_buckets_cpu> hash_buckets_operator{"hash_buckets"};

struct HashedAttentionCall {
  at::Tensor q, v, buckets;
  HashedAttentionOptions options;
  HashedAttentionForward made;

  static constexpr const char* kName = "hashed_attention";
  static inline const Operator<hashed_attention_forward_cpu> kForward{"hashed_attention_forward"};
  static inline const Operator<hashed_attention_backward_cpu> kBackward{"hashed_attention_backward"};
  static constexpr bool kReports = true, kTakesBf16 = true;

  [[nodiscard]] variable_list inputs() const { return {q, v}; }
  variable_list forward() {
    const int64_t n = q.size(2), keys = buckets.defined() ? 2 * options.chunk : n;
    const int64_t rows = buckets.defined() ? buckets.numel() : q.size(0) * q.size(1) * n;
    options.dropout = remembering(options.dropout, rows * keys, keys);
    made = kForward(q, v, buckets, options);
    return {made.out};
  }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    return tensors_of(kBackward(gradients[0], q, v, made, options));
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    return {hashed_attention_reference(in[0], in[1], buckets, options)};
  }
};

// [b,h,r,n], of the buckets [b,h,r,slots] of tokens: the sum of what each digit's direction of x [h,b,n,r,columns]
// reaches; 0 for the bucket behind all others.
at::Tensor reached_in(const at::Tensor& buckets, const at::Tensor& x, const std::vector<int64_t>& factors) {
  at::Tensor left = buckets.narrow(3, 0, x.size(2)).permute({1, 0, 3, 2}).unsqueeze(-1),
             sum = at::zeros_like(left, x.options());
  int64_t first = 0;
  for (const int64_t factor : factors) {
    const at::Tensor digit = left.remainder(factor), part = x.narrow(-1, first, factor / 2);
    const at::Tensor along = part.gather(-1, digit.remainder(factor / 2));
    sum = sum + at::where(digit < factor / 2, along, -along);
    left = left.div(factor, "floor");
    first += factor / 2;
  }
  return sum.masked_fill(left > 0, 0);
}

}  // namespace

at::Tensor hashed_attention(const at::Tensor& q, const at::Tensor& v, const at::Tensor& buckets,
                            const HashedAttentionOptions& options) {
  XF_ASSERT(!buckets.defined() || buckets.size(3) == hashed_slots(q.size(2), options.chunk),
            "{} slots for {} tokens in chunks of {}", buckets.size(3), q.size(2), options.chunk);
  const bool fits = q.is_cpu() || fits_hashed_programs(q, v, buckets);
  return run_fused(HashedAttentionCall{q, v, buckets, options, {}}, fits && !options.dup_correct)[0];
}

at::Tensor hash_buckets(const at::Tensor& q_in, const at::Tensor& directions, const std::vector<int64_t>& factors,
                        const HashedAttentionOptions& options) {
  const at::Tensor q = q_in.detach();
  const bool fused = hash_buckets_operator.runs_on(q) && fit_kernels({directions}) &&
                     (q.is_cpu() || fits_bucket_program(q, directions, factors, options.chunk));
  calls_of("hash_buckets").count(q, fused);
  if (!fused) return hash_buckets_reference(q, directions, factors, options);
  const at::Tensor result = hash_buckets_operator(q, directions, factors, options);
  if (policy() == Policy::kCheck) {
    // Of directions that are equal but for rounding either may win: what is reached along those that did is compared.
    const at::Tensor x = along_directions(q, directions);
    check_forward("hash_buckets", {reached_in(result, x, factors)}, [&] {
      return variable_list{reached_in(hash_buckets_reference(q, directions, factors, options), x, factors)};
    });
  }
  return result;
}

}  // namespace xformer::kernels
