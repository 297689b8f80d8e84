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

}  // namespace

at::Tensor hashed_attention(const at::Tensor& q, const at::Tensor& v, const at::Tensor& buckets,
                            const HashedAttentionOptions& options) {
  XF_ASSERT(!buckets.defined() || buckets.size(3) == hashed_slots(q.size(2), options.chunk),
            "{} slots for {} tokens in chunks of {}", buckets.size(3), q.size(2), options.chunk);
  const bool fits = q.is_cpu() || fits_hashed_programs(q, v, buckets);
  return run_fused(HashedAttentionCall{q, v, buckets, options, {}}, fits && !options.dup_correct)[0];
}

at::Tensor hash_buckets(const at::Tensor& turned, const std::vector<int64_t>& factors,
                        const HashedAttentionOptions& options) {
  const at::Tensor values = turned.detach();
  const bool fused = hash_buckets_operator.runs_on(values) && fit_kernels({values}) &&
                     (values.is_cpu() || fits_bucket_program(values, factors));
  calls_of("hash_buckets").count(values, fused);
  if (!fused) return hash_buckets_reference(values, factors, options);
  const at::Tensor result = hash_buckets_operator(values, factors, options);
  check_forward("hash_buckets", {result},
                [&] { return variable_list{hash_buckets_reference(values, factors, options)}; });
  return result;
}

}  // namespace xformer::kernels
