#include "kernels/token_mean/token_mean.h"

#include "core/error.h"
#include "kernels/fused.h"
#include "kernels/token_mean/cpu.h"
#include "kernels/token_mean/device.h"

namespace xformer::kernels {

namespace {

struct TokenMeanCall {
  at::Tensor x;
  TokenMeanOptions options;
  int64_t n;
  at::Tensor share;

  static constexpr const char* kName = "token_mean";
  static inline const Operator<token_mean_forward_cpu> kForward{"token_mean_forward"};
  static inline const Operator<token_mean_backward_cpu> kBackward{"token_mean_backward"};
  static constexpr bool kTakesBf16 = true;

  [[nodiscard]] variable_list inputs() const { return {x}; }
  variable_list forward() {
    TokenMeans made = kForward(std::exchange(x, {}), options);
    share = made.share;
    return {made.mean};
  }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    return {kBackward(gradients[0], share, n, options)};
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    return {token_mean_reference(in[0], options)};
  }
};

}  // namespace

at::Tensor token_mean_reference(const at::Tensor& x, const TokenMeanOptions& options) {
  const int64_t length = x.size(1) - options.pinned;
  const at::Tensor places = x.narrow(1, options.pinned, length);
  if (!options.valid.defined()) return places.sum(1) / static_cast<double>(length);
  const at::Tensor own = options.valid.narrow(1, options.pinned, length).unsqueeze(-1).to(x.scalar_type());
  const at::Tensor sum = (places * own).sum(1);
  return options.padded ? sum / static_cast<double>(length) : sum / own.sum(1).clamp_min(1);
}

at::Tensor token_mean(const at::Tensor& x, const TokenMeanOptions& options) {
  XF_ASSERT(x.dim() == 3 && x.size(1) >= options.pinned, "a mean over tokens behind the {} pinned ones",
            options.pinned);
  const bool possible = x.is_cpu() || fits_token_mean_programs(x);
  return run_fused(TokenMeanCall{x, options, x.size(1), {}}, possible)[0];
}

}  // namespace xformer::kernels
