#include "kernels/token_convolution/token_convolution.h"

#include <ATen/Dispatch.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "kernels/cpu/heads.h"
#include "kernels/cpu/units.h"
#include "kernels/cpu/valid_rows.h"
#include "kernels/fused.h"
#include "kernels/token_convolution/cpu.h"
#include "tensor/op_counter.h"

namespace xformer::kernels {

namespace {

using torch::autograd::AutogradContext;

// The valid tokens of one sample and head with zeros in front and behind: row i + half is token i.
template <class Value>
void padded_tokens(const Heads<const Value>& x, const ValidRows& valid, int64_t b, int64_t h, int64_t n, int64_t d,
                   int64_t half, std::vector<Value>& into) {
  into.assign(static_cast<size_t>((n + 2 * half) * d), Value(0));
  for (int64_t i = 0; i < valid.end(b); ++i)
    if (valid.at(b, i)) std::copy_n(x.at(b, h, i), d, into.data() + (i + half) * d);
}

// Rows beyond these see no valid token.
int64_t near(const ValidRows& valid, int64_t b, int64_t n, int64_t half) { return std::min(n, valid.end(b) + half); }

at::Tensor convolve_forward(const at::Tensor& base, const at::Tensor& x, const at::Tensor& w,
                            const at::Tensor& key_valid) {
  const int64_t heads = x.size(1), n = x.size(2), d = x.size(3), taps = w.size(1);
  const ValidRows valid(key_valid, n);
  at::Tensor result = new_heads(x, n, d);
  const int64_t units = x.size(0) * heads;
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "convolve_tokens", [&] {
    const auto tokens = reading<scalar_t>(x), bases = reading<scalar_t>(base);
    const auto out = writing<scalar_t>(result);
    const scalar_t* const kernel = w.const_data_ptr<scalar_t>();
    std::vector<std::vector<scalar_t>> scratch(static_cast<size_t>(workers_for(units)));
    for_units(units, n * d * taps, [&](int64_t unit, int64_t worker) {
      const int64_t b = unit / heads, h = unit % heads;
      std::vector<scalar_t>& padded = scratch[static_cast<size_t>(worker)];
      padded_tokens(tokens, valid, b, h, n, d, taps / 2, padded);
      const int64_t rows = near(valid, b, n, taps / 2);
      for (int64_t i = 0; i < rows; ++i)
        convolve_row(padded.data() + i * d, d, d, kernel + h * taps, taps, bases.at(b, h, i), out.at(b, h, i));
      for (int64_t i = rows; i < n; ++i) std::copy_n(bases.at(b, h, i), d, out.at(b, h, i));
    });
  });
  add_executed_flops(2 * units * n * d * taps);
  return result;
}

struct ConvolutionGradients {
  at::Tensor x, w;
};

ConvolutionGradients convolve_backward(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& w,
                                       const at::Tensor& key_valid) {
  const int64_t heads = x.size(1), n = x.size(2), d = x.size(3), taps = w.size(1), half = taps / 2;
  const ValidRows valid(key_valid, n), all({}, n);
  const int64_t units = x.size(0) * heads;
  ConvolutionGradients result{new_heads(x, n, d), {}};
  const at::Tensor shares = at::zeros({x.size(0), heads, taps}, w.options());  // of the kernel's gradient, per sample
  const at::Tensor turned = w.flip(1);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "convolve_tokens_backward", [&] {
    const auto tokens = reading<scalar_t>(x), slopes = reading<scalar_t>(gradient);
    const auto out = writing<scalar_t>(result.x);
    const scalar_t* const kernel = turned.const_data_ptr<scalar_t>();
    scalar_t* const share = shares.mutable_data_ptr<scalar_t>();
    std::vector<std::vector<scalar_t>> scratch(static_cast<size_t>(2 * workers_for(units)));
    for_units(units, n * d * taps, [&](int64_t unit, int64_t worker) {
      const int64_t b = unit / heads, h = unit % heads;
      std::vector<scalar_t>&padded = scratch[static_cast<size_t>(2 * worker)],
      &slope = scratch[static_cast<size_t>(2 * worker + 1)];
      padded_tokens(tokens, valid, b, h, n, d, half, padded);
      padded_tokens(slopes, all, b, h, n, d, half, slope);
      for (int64_t i = 0; i < n; ++i) {
        if (valid.at(b, i)) convolve_row(slope.data() + i * d, d, d, kernel + h * taps, taps, nullptr, out.at(b, h, i));
        else std::fill_n(out.at(b, h, i), d, scalar_t(0));
      }
      correlate_rows(slope.data() + half * d, padded.data(), near(valid, b, n, half), d, taps, share + unit * taps);
    });
  });
  add_executed_flops(4 * units * n * d * taps);
  result.w = shares.sum(0);
  return result;
}

struct ConvolveTokens : torch::autograd::Function<ConvolveTokens> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& base, const at::Tensor& x, const at::Tensor& w,
                            const SequenceMask& mask) {
    RECORD_FUNCTION("xformer::convolve_tokens", operands(base, x, w));
    const at::Tensor tokens = with_rows(x), kernel = w.contiguous();
    context->save_for_backward({tokens, kernel, mask.key_valid});
    return convolve_forward(with_rows(base), tokens, kernel, mask.key_valid);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    RECORD_FUNCTION("xformer::convolve_tokens_backward", operands(gradients[0]));
    const variable_list saved = context->get_saved_variables();
    const auto [x, w] = convolve_backward(with_rows(gradients[0]), saved[0], saved[1], saved[2]);
    check_backward("xformer::convolve_tokens", {saved[0], saved[1]}, gradients, {x, w},
                   [&](const variable_list& inputs) {
                     const at::Tensor base = at::zeros_like(inputs[0].detach());
                     return variable_list{convolve_tokens_reference(base, inputs[0], inputs[1], {saved[2], false})};
                   });
    return {gradients[0], x, w, at::Tensor()};
  }
};

}  // namespace

at::Tensor convolve_tokens_reference(const at::Tensor& base, const at::Tensor& x, const at::Tensor& w,
                                     const SequenceMask& mask) {
  const int64_t b = x.size(0), h = x.size(1), n = x.size(2), d = x.size(3), taps = w.size(1), half = taps / 2;
  const int64_t count = (n + 31) / 32, rows = (n + count - 1) / count, columns = rows + taps - 1;
  const at::Tensor valid = mask.all_valid() ? x : x * mask.as_factor(x.scalar_type());
  // Row r of the band is the kernel moved by r: lines one longer than the band's, read in lines of the band's length.
  const at::Tensor line = at::constant_pad_nd(w.view({h, 1, taps}), {0, rows});
  const at::Tensor band = line.expand({h, rows, columns + 1}).flatten(1).narrow(1, 0, rows * columns);
  const at::Tensor tokens = at::constant_pad_nd(valid, {0, 0, half, count * rows - n + half}).unfold(2, columns, rows);
  const at::Tensor windows = tokens.permute({1, 4, 0, 2, 3}).reshape({h, columns, b * count * d});
  const at::Tensor mixed = at::bmm(band.view({h, rows, columns}), windows).view({h, rows, b, count, d});
  return base + mixed.permute({2, 0, 3, 1, 4}).flatten(2, 3).narrow(2, 0, n);
}

at::Tensor convolve_tokens(const at::Tensor& base, const at::Tensor& x, const at::Tensor& w, const SequenceMask& mask) {
  XF_ASSERT(w.dim() == 2 && w.size(0) == x.size(1) && w.size(1) % 2 == 1 && base.sizes() == x.sizes(),
            "convolve_tokens takes two [b,h,n,d] and [h,T] with T odd");
  if (!runs_fused({base, x, w})) return convolve_tokens_reference(base, x, w, mask);
  const at::Tensor result = ConvolveTokens::apply(base, x, w, mask);
  check_forward("xformer::convolve_tokens", {result},
                [&] { return variable_list{convolve_tokens_reference(base, x, w, mask)}; });
  return result;
}

}  // namespace xformer::kernels
