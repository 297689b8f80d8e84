// The passes of window_attention.h on a device, but for the launches themselves: cuda.cpp gives them, tests walk the
// programs. The signatures are the CPU's (cpu.h).
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/device/head_tensors.h"
#include "kernels/window_attention/cpu.h"
#include "kernels/window_attention/gradient_programs.h"

namespace xformer::kernels {

// Whether the programs take these: narrow heads of one type, float, bf16 or fp16, undefined ones aside, keys whose
// distance does not matter, rows that an int counts.
[[nodiscard]] inline bool fits_window_programs(at::TensorList heads, const RelativeKeys& relative) {
  const at::ScalarType type = heads[0].scalar_type();
  return type != at::kDouble && !relative.defined() &&
         std::all_of(heads.begin(), heads.end(), [&](const at::Tensor& one) {
           return !one.defined() ||
                  (one.scalar_type() == type && one.size(3) <= kWindowHeadWidest && one.size(2) <= kWindowMost);
         });
}

[[nodiscard]] inline WindowPattern window_pattern(const Windows& windows, bool by_block) {
  TORCH_CHECK(std::max(windows.length, windows.dilation) <= kWindowMost,
              "attention over windows on a device takes at most ", kWindowMost, " tokens");
  const auto whole = [](int64_t x) { return static_cast<int>(x); };
  return {whole(windows.length), whole(windows.dilation), whole(windows.block),
          whole(windows.blocks), whole(windows.before),   whole(windows.after),
          whole(windows.back),   whole(windows.ahead),    by_block};
}

// Tensors as programs read them, which must outlive the launches.
struct WindowOperands {
  at::Tensor q, k, v, extra_k, extra_v, valid, allowed, places, gains, extra_gains;

  WindowOperands(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const ExtraKeys& extra,
                 const WindowAttentionOptions& options)
      : q(readable_heads(q)), k(readable_heads(k)), v(readable_heads(v)) {
    valid = readable_flags(options.valid);
    const auto floats = [](const at::Tensor& x) { return x.defined() ? x.to(at::kFloat).contiguous() : x; };
    gains = floats(options.bias);
    if (extra.count() == 0) return;
    extra_gains = floats(extra.bias);
    extra_k = readable_heads(extra.k), extra_v = readable_heads(extra.v);
    if (extra.allowed.defined()) allowed = extra.allowed.contiguous();
    if (extra.places.defined()) places = extra.places.contiguous();
  }
};

[[nodiscard]] inline KeyGains key_gains(const at::Tensor& x, int64_t b, int64_t h, int64_t keys) {
  if (!x.defined()) return {};
  const at::Tensor rows = x.expand({b, h, keys});
  return {read_floats(x), rows.stride(0), rows.stride(1)};
}

[[nodiscard]] inline WindowArguments window_arguments(const WindowOperands& given, const RelativeKeys& relative,
                                                      const WindowAttentionOptions& options) {
  const auto& [q, k, v, extra_k, extra_v, valid, allowed, places, gains, extra_gains] = given;
  TORCH_CHECK(fits_window_programs({q, k, v, extra_k, extra_v}, relative),
              "attention over windows on a device takes heads of one type, not double, at most ", kWindowHeadWidest,
              " wide and ", kWindowMost, " long, and keys whose distance does not matter");
  for (const at::Tensor& one : {k, v, extra_k, extra_v})
    TORCH_CHECK(!one.defined() || one.device() == q.device(), "attention over windows has its heads on one device");
  WindowArguments a;
  a.type = element_type(q);
  const Windows& windows = options.windows;
  a.product = product_kind();
  a.pattern = window_pattern(windows, places.defined());
  a.q = q.const_data_ptr(), a.k = k.const_data_ptr(), a.v = v.const_data_ptr();
  a.q_places = head_places(q), a.k_places = head_places(k), a.v_places = head_places(v);
  a.b = q.size(0), a.h = q.size(1);
  a.d = static_cast<int>(q.size(3)), a.e = static_cast<int>(v.size(3));
  a.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(a.d)));
  a.valid = valid_flags(valid, a.b, windows.length);
  a.gains = key_gains(gains, a.b, a.h, windows.length);
  if (extra_k.defined()) {
    a.extra_k = extra_k.const_data_ptr(), a.extra_v = extra_v.const_data_ptr();
    a.extra_k_places = head_places(extra_k), a.extra_v_places = head_places(extra_v);
    a.m = a.g = extra_k.size(2);
    a.extra_gains = key_gains(extra_gains, a.b, a.h, a.m);
  }
  if (allowed.defined()) {
    TORCH_CHECK(allowed.scalar_type() == at::kBool && allowed.size(0) == a.b && allowed.size(2) == a.m,
                "flags of extra keys are [b, h or 1, m] bool");
    a.allowed = static_cast<const bool*>(allowed.const_data_ptr());
    a.allowed_sample = allowed.stride(0), a.allowed_head = allowed.size(1) == 1 ? 0 : allowed.stride(1);
  }
  if (places.defined()) {
    TORCH_CHECK(places.scalar_type() == at::kLong && places.size(1) == windows.blocks && windows.dilation == 1 &&
                    places.size(2) <= kWindowMost,
                "places of extra keys are int64 [h or 1, blocks, g], without dilation, g at most ", kWindowMost);
    a.places = static_cast<const int64_t*>(places.const_data_ptr());
    a.g = places.size(2), a.places_head = places.size(0) == 1 ? 0 : places.stride(0);
  }
  const uint32_t threshold = dropout_threshold(options.dropout.p);
  if (threshold > 0) {
    a.drop = device_drop(options.dropout, q);
    a.drop.row_elements = a.h * a.pattern.rows() * (a.g + a.pattern.width());
  }
  return a;
}

// Launch takes WindowArguments.
template <class Launch>
WindowAttentionForward window_attention_forward_device(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                       const ExtraKeys& extra, const RelativeKeys& relative,
                                                       const WindowAttentionOptions& options, const Launch& launch) {
  const WindowOperands given(q, k, v, extra, options);
  WindowArguments a = window_arguments(given, relative, options);
  WindowAttentionForward result{rows_of_heads(q, a.pattern.n, a.e),
                                at::empty({a.b, a.h, int64_t{a.pattern.n}, 1}, q.options().dtype(at::kFloat))};
  a.out = result.out.mutable_data_ptr(), a.log_sum = written_floats(result.log_sum);
  if (a.b * a.h > 0) launch(a);
  return result;
}

// Launch takes WindowArguments.
template <class Launch>
WindowAttentionGradients window_attention_backward_device(const at::Tensor& out_gradient,
                                                          const at::Tensor& log_sum_gradient, const at::Tensor& q,
                                                          const at::Tensor& k, const at::Tensor& v,
                                                          const ExtraKeys& extra, const RelativeKeys& relative,
                                                          const WindowAttentionForward& forward,
                                                          const WindowAttentionOptions& options, const Launch& launch) {
  const WindowOperands given(q, k, v, extra, options);
  WindowArguments a = window_arguments(given, relative, options);
  const at::Tensor gradient = out_gradient.defined() ? readable_heads(out_gradient) : at::zeros_like(forward.out);
  const at::Tensor log_slopes = log_sum_gradient.defined() ? log_sum_gradient.contiguous() : at::Tensor();
  WindowAttentionGradients result{rows_of_heads(q, a.pattern.n, a.d),
                                  rows_of_heads(q, a.pattern.n, a.d),
                                  rows_of_heads(q, a.pattern.n, a.e),
                                  {},
                                  {},
                                  {},
                                  {}};
  const at::Tensor delta = at::empty_like(forward.log_sum);
  a.out = forward.out.mutable_data_ptr(), a.log_sum = written_floats(forward.log_sum);
  TORCH_CHECK(gradient.scalar_type() == q.scalar_type(), "a gradient of another type than its heads");
  a.gradient = gradient.const_data_ptr(), a.gradient_places = head_places(gradient);
  a.log_sum_gradient = read_floats(log_slopes), a.delta = written_floats(delta);
  a.dq = result.q.mutable_data_ptr(), a.dk = result.k.mutable_data_ptr(), a.dv = result.v.mutable_data_ptr();
  at::Tensor extra_sums;
  if (a.m > 0) {
    const RowDivision division = row_division(int64_t{kTileSide} * a.pattern.row_tiles(), a.b * a.h * tiles_of(a.g));
    a.parts = a.pattern.by_block ? a.pattern.blocks : division.parts;
    a.part_tiles = a.pattern.by_block ? a.pattern.tiles_of_part() : static_cast<int>(division.part_tiles);
    extra_sums = at::empty({a.b, a.h, a.parts, a.g, 2 * window_width(a.d, a.e)}, delta.options());
    result.extra_k = rows_of_heads(q, a.m, a.d), result.extra_v = rows_of_heads(q, a.m, a.e);
    a.extra_sums = written_floats(extra_sums);
    a.extra_dk = result.extra_k.mutable_data_ptr(), a.extra_dv = result.extra_v.mutable_data_ptr();
  }
  if (a.b * a.h > 0) launch(a);
  return result;
}

}  // namespace xformer::kernels
