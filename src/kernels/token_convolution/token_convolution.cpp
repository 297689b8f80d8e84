#include "kernels/token_convolution/token_convolution.h"

#include <ATen/Dispatch.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/cpu/heads.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/units.h"
#include "kernels/cpu/valid_rows.h"
#include "kernels/fused.h"
#include "kernels/token_convolution/cpu.h"
#include "kernels/token_convolution/device.h"
#include "tensor/op_counter.h"

namespace xformer::kernels {

namespace {

// Rows of one sample and head that are valid, side by side between zeros: row i + half is token i.
template <class Stored, class Value = Computed<Stored>>
void lay_out(const Heads<const Stored>& x, const ValidRows& valid, int64_t b, int64_t h, int64_t d, int64_t half,
             Value* into) {
  const int64_t end = valid.end(b);
  std::fill_n(into, half * d, Value(0));
  take_rows(x.at(b, h), x.stride, end, d, into + half * d);
  if (!valid.all(b, 0, end))
    for (int64_t i = 0; i < end; ++i)
      if (!valid.at(b, i)) std::fill_n(into + (half + i) * d, d, Value(0));
  std::fill_n(into + (half + end) * d, (half + kConvolvedRows - 1) * d, Value(0));
}

// Room for `count` of these a worker.
at::Tensor room_for(const at::Tensor& x, int64_t taps, int64_t count) {
  const int64_t rows = x.size(2) + taps + kConvolvedRows;
  return at::empty({workers_for(x.size(0) * x.size(1)), count, rows * x.size(3)}, computed_options(x));
}

// Kernels [h,T] each between the zeros that convolve_rows wants.
template <class Value>
class Kernels {
 public:
  explicit Kernels(const at::Tensor& w)
      : padded_(at::constant_pad_nd(w, {kConvolvedRows - 1, kConvolvedRows - 1}).contiguous()) {}
  [[nodiscard]] const Value* of(int64_t head) const {
    return padded_.const_data_ptr<Value>() + head * padded_.size(1) + kConvolvedRows - 1;
  }

 private:
  at::Tensor padded_;
};

// One behind the last valid token, summed over samples.
int64_t rows_seen(const ValidRows& valid, int64_t samples) {
  int64_t result = 0;
  for (int64_t b = 0; b < samples; ++b) result += valid.end(b);
  return result;
}

// Zeros in the rows of one sample and head that are not valid.
template <class Stored>
void clear_padding(const Heads<Stored>& x, const ValidRows& valid, int64_t b, int64_t h, int64_t n, int64_t d) {
  for (int64_t i = 0; i < n; ++i)
    if (!valid.at(b, i)) std::fill_n(x.at(b, h, i), d, Stored(0));
}

// Rows 0 .. end - 1 of `out` by tiles, in which they stay in the cache between their sums and their rounding:
// work(first row, rows, where to).
template <class Stored, class Work>
void for_tiles(const Heads<Stored>& out, int64_t b, int64_t h, int64_t end, int64_t d,
               std::vector<Computed<Stored>>& room, const Work& work) {
  constexpr int64_t kTile = 128;
  for (int64_t first = 0; first < end; first += kTile) {
    const int64_t rows = std::min(kTile, end - first);
    const auto into = rows_for(out.at(b, h, first), out.stride, rows, d, room);
    work(first, rows, Rows<Computed<Stored>>{into.data, into.stride});
    store_rows(into, rows, d, out.at(b, h, first), out.stride);
  }
}

at::Tensor convolve_forward(const at::Tensor& base, const at::Tensor& x, const at::Tensor& w,
                            const at::Tensor& key_valid) {
  const int64_t heads = x.size(1), n = x.size(2), d = x.size(3), taps = w.size(1);
  const ValidRows valid(key_valid, n);
  at::Tensor result = new_heads(x, n, d);
  const int64_t units = x.size(0) * heads;
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "convolve_tokens", [&] {
    using Value = Computed<scalar_t>;
    const auto tokens = reading<scalar_t>(x), bases = reading<scalar_t>(base);
    const auto out = writing<scalar_t>(result);
    const Kernels<Value> kernels(w);
    const at::Tensor room = room_for(x, taps, 1);
    Value* const scratch = room.mutable_data_ptr<Value>();
    std::vector<std::vector<Value>> base_rooms(static_cast<size_t>(workers_for(units))), out_rooms(base_rooms.size());
    for_units(units, n * d * taps, [&](int64_t unit, int64_t worker) {
      const int64_t b = unit / heads, h = unit % heads, end = valid.end(b);
      Value* const padded = scratch + worker * room.stride(0);
      const auto mine = static_cast<size_t>(worker);
      lay_out(tokens, valid, b, h, d, taps / 2, padded);
      for_tiles(out, b, h, end, d, out_rooms[mine], [&](int64_t first, int64_t rows, Rows<Value> into) {
        const auto added = loaded_rows(bases.at(b, h, first), bases.stride, rows, d, base_rooms[mine]);
        convolve_rows(padded + first * d, rows, d, kernels.of(h), taps, {added.data, added.stride}, into);
      });
      clear_padding(out, valid, b, h, n, d);
    });
  });
  add_executed_flops(2 * heads * rows_seen(valid, x.size(0)) * d * taps);
  return result;
}

ConvolutionGradients convolve_backward(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& w,
                                       const at::Tensor& key_valid) {
  const int64_t heads = x.size(1), n = x.size(2), d = x.size(3), taps = w.size(1), half = taps / 2;
  const ValidRows valid(key_valid, n);
  const int64_t units = x.size(0) * heads;
  // Without a mask the gradient of base is the one that came.
  ConvolutionGradients result{valid.defined() ? new_heads(x, n, d) : gradient, new_heads(x, n, d), {}};
  const at::Tensor shares = at::zeros({x.size(0), heads, taps}, w.options());  // of the kernel's gradient, per sample
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "convolve_tokens_backward", [&] {
    using Value = Computed<scalar_t>;
    const auto tokens = reading<scalar_t>(x), slopes = reading<scalar_t>(gradient);
    const auto out = writing<scalar_t>(result.x);
    const Kernels<Value> kernels(w.flip(1));
    Value* const share = shares.mutable_data_ptr<Value>();
    const at::Tensor room = room_for(x, taps, 2);
    Value* const scratch = room.mutable_data_ptr<Value>();
    std::vector<std::vector<Value>> rooms(static_cast<size_t>(workers_for(units)));
    for_units(units, n * d * taps, [&](int64_t unit, int64_t worker) {
      const int64_t b = unit / heads, h = unit % heads, end = valid.end(b);
      Value *const padded = scratch + worker * room.stride(0), *const slope = padded + room.stride(1);
      lay_out(tokens, valid, b, h, d, half, padded);
      lay_out(slopes, valid, b, h, d, half, slope);
      for_tiles(out, b, h, end, d, rooms[static_cast<size_t>(worker)],
                [&](int64_t first, int64_t rows, Rows<Value> into) {
                  convolve_rows(slope + first * d, rows, d, kernels.of(h), taps, Rows<const Value>{nullptr, 0}, into);
                });
      clear_padding(out, valid, b, h, n, d);
      correlate_rows(slope + half * d, padded, end, d, taps, share + unit * taps);
      if (!valid.defined()) return;
      const auto base = writing<scalar_t>(result.base);
      for (int64_t i = 0; i < n; ++i)
        if (valid.at(b, i)) std::copy_n(slopes.at(b, h, i), d, base.at(b, h, i));
        else std::fill_n(base.at(b, h, i), d, scalar_t(0));
    });
  });
  add_executed_flops(4 * heads * rows_seen(valid, x.size(0)) * d * taps);
  result.w = shares.sum(0);
  return result;
}

struct ConvolveTokensCall {
  at::Tensor base, x, w, key_valid;

  static constexpr const char* kName = "convolve_tokens";
  static inline const Operator<convolve_forward> kForward{"convolve_tokens_forward"};
  static inline const Operator<convolve_backward> kBackward{"convolve_tokens_backward"};
  static constexpr bool kTakesBf16 = true;

  static bool is_parameter(size_t input) { return input == 2; }
  [[nodiscard]] variable_list inputs() const { return {base, x, w}; }
  variable_list forward() {
    x = with_rows(x), w = w.contiguous();
    count_sums(2);
    return {kForward(with_rows(std::exchange(base, {})), x, w, key_valid)};
  }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    count_sums(4);
    return tensors_of(kBackward(with_rows(gradients[0]), x, w, key_valid));
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    return {convolve_tokens_reference(in[0], in[1], in[2], {key_valid, false})};
  }
  // The CPU's kernels count what they do.
  void count_sums(int64_t flops) const {
    if (!x.is_cpu()) add_executed_flops(flops * x.numel() * w.size(1));
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
  const at::Tensor result = base + mixed.permute({2, 0, 3, 1, 4}).flatten(2, 3).narrow(2, 0, n);
  return mask.all_valid() ? result : result * mask.as_factor(x.scalar_type());
}

at::Tensor convolve_tokens(const at::Tensor& base, const at::Tensor& x, const at::Tensor& w, const SequenceMask& mask) {
  XF_ASSERT(w.dim() == 2 && w.size(0) == x.size(1) && w.size(1) % 2 == 1 && base.sizes() == x.sizes(),
            "convolve_tokens takes two [b,h,n,d] and [h,T] with T odd");
  const bool possible = x.is_cpu() || fits_convolution_programs(x, w);
  return run_fused(ConvolveTokensCall{base, x, w, mask.key_valid}, possible)[0];
}

}  // namespace xformer::kernels
