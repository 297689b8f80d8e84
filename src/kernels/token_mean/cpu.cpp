// The mean over tokens on the CPU: parts of a sequence are summed side by side, then these sums in order.
#include "kernels/token_mean/cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include <algorithm>

#include "kernels/cpu/add_rows.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/stream.h"
#include "kernels/cpu/units.h"
#include "kernels/cpu/valid_rows.h"

namespace xformer::kernels {

namespace {

constexpr int64_t kPartTokens = 512;

// How tokens [b,n] are divided, and which of them count.
struct TokenParts {
  int64_t b, n, pinned, parts;
  ValidRows valid;

  TokenParts(int64_t samples, int64_t length, const TokenMeanOptions& options)
      : b(samples),
        n(length),
        pinned(options.pinned),
        parts((length + kPartTokens - 1) / kPartTokens),
        valid(options.valid, length) {}

  [[nodiscard]] bool counts(int64_t sample, int64_t token) const { return token >= pinned && valid.at(sample, token); }

  // work(unit, sample, first, tokens, counts) for neighbours that all count or all do not; units are parts of samples.
  template <class Work>
  void for_runs(int64_t width, const Work& work) const {
    for_units(b * parts, kPartTokens * width, [&](int64_t unit, int64_t /*worker*/) {
      const int64_t sample = unit / parts, begin = unit % parts * kPartTokens, end = std::min(begin + kPartTokens, n);
      for (int64_t first = begin, next; first < end; first = next) {
        const bool counted = counts(sample, first);
        for (next = first + 1; next < end && counts(sample, next) == counted;) ++next;
        work(unit, sample, first, next - first, counted);
      }
    });
  }
};

}  // namespace

TokenMeans token_mean_forward_cpu(const at::Tensor& x_in, const TokenMeanOptions& options) {
  const at::Tensor x = x_in.contiguous();
  const int64_t n = x.size(1), d = x.size(2);
  const TokenParts division(x.size(0), n, options);
  const at::Tensor sums = at::zeros({division.b, division.parts, d}, computed_options(x)),
                   counted = at::zeros({division.b, division.parts}, at::kLong);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "token_mean", [&] {
    using Value = Computed<scalar_t>;
    const auto* const rows = x.const_data_ptr<scalar_t>();
    auto* const to = sums.mutable_data_ptr<Value>();
    auto* const counts = counted.mutable_data_ptr<int64_t>();
    division.for_runs(d, [&](int64_t unit, int64_t sample, int64_t first, int64_t tokens, bool count) {
      if (!count) return;
      add_rows(rows + (sample * n + first) * d, d, tokens, d, to + unit * d);
      counts[unit] += tokens;
    });
  });
  TokenMeans result;
  const at::Tensor tokens = options.padded ? at::full({division.b}, n - options.pinned, at::kLong) : counted.sum(1);
  result.share = tokens.clamp_min(1).to(sums.scalar_type()).reciprocal();
  result.mean = (sums.sum(1) * result.share.unsqueeze(-1)).to(x.scalar_type());
  return result;
}

at::Tensor token_mean_backward_cpu(const at::Tensor& gradient, const at::Tensor& share, int64_t n,
                                   const TokenMeanOptions& options) {
  const int64_t d = gradient.size(1);
  const TokenParts division(gradient.size(0), n, options);
  const at::Tensor slopes = (gradient * share.unsqueeze(-1)).to(gradient.scalar_type()).contiguous();
  at::Tensor result = at::empty({division.b, n, d}, gradient.options());
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, gradient.scalar_type(), "token_mean_backward", [&] {
    const auto* const from = slopes.const_data_ptr<scalar_t>();
    auto* const rows = result.mutable_data_ptr<scalar_t>();
    division.for_runs(d, [&](int64_t /*unit*/, int64_t sample, int64_t first, int64_t tokens, bool count) {
      scalar_t* const to = rows + (sample * n + first) * d;
      if (!count) stream_zeros(to, static_cast<size_t>(tokens * d) * sizeof(scalar_t));
      else
        for (int64_t i = 0; i < tokens; ++i) std::copy_n(from + sample * d, d, to + i * d);
    });
  });
  return result;
}

}  // namespace xformer::kernels
