#include "kernels/token_convolution/token_convolution.h"

#include <ATen/Dispatch.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/cpu/heads.h"
#include "kernels/cpu/lanes_512.h"
#include "kernels/cpu/needed_rows.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/units.h"
#include "kernels/cpu/valid_rows.h"
#include "kernels/fused.h"
#include "kernels/token_convolution/cpu.h"
#include "kernels/token_convolution/device.h"
#include "tensor/op_counter.h"

namespace xformer::kernels {

namespace {

// The rows of one sample's head.
template <class Stored>
struct HeadRows {
  const Heads<const Stored>& all;
  const ValidRows& valid;
  int64_t b, h, d, end;  // the last: one behind the last valid row

  [[nodiscard]] bool valid_at(int64_t row) const { return row >= 0 && row < end && valid.at(b, row); }
  [[nodiscard]] bool all_valid(int64_t first, int64_t count) const {
    return first >= 0 && first + count <= end && valid.all(b, first, first + count);
  }
  [[nodiscard]] const Stored* at(int64_t row) const { return all.at(b, h, row); }
};

// Rows first .. first + count - 1, with zeros for those that are no token or not valid, side by side in `room`: as they
// are stored, or to compute with.
template <class Number, class Stored>
Rows<const Number> laid_out(const HeadRows<Stored>& x, int64_t first, int64_t count, std::vector<Number>& room) {
  const auto copy = [&](int64_t row, int64_t rows, Number* to) {
    if constexpr (std::is_same_v<Number, Stored>)
      for (int64_t i = 0; i < rows; ++i) std::copy_n(x.at(row + i), x.d, to + i * x.d);
    else take_rows(x.at(row), x.all.stride, rows, x.d, to);
  };
  Number* const to = grown(room, count * x.d);
  if (x.all_valid(first, count)) copy(first, count, to);
  else
    for (int64_t i = 0; i < count; ++i)
      if (x.valid_at(first + i)) copy(first + i, 1, to + i * x.d);
      else std::fill_n(to + i * x.d, x.d, Number(0));
  return {to, x.d};
}
// As they are stored, where they lie if all of them can be read there.
template <class Stored>
Rows<const Stored> window(const HeadRows<Stored>& x, int64_t first, int64_t count, std::vector<Stored>& room) {
  if (!x.all_valid(first, count)) return laid_out(x, first, count, room);
  fetch_next_rows(x.at(first), x.all.stride, count, x.d);
  return {x.at(first), x.all.stride};
}

// Kernels [h,T] each between the zeros that convolve_rows wants.
template <class Value>
class Kernels {
 public:
  explicit Kernels(const at::Tensor& w)
      : padded_(at::constant_pad_nd(w, {kPairedRows, kPairedRows}).contiguous()), rounded_(padded_.to(at::kBFloat16)) {}
  [[nodiscard]] const Value* of(int64_t head) const { return padded_.const_data_ptr<Value>() + place(head); }
  [[nodiscard]] const c10::BFloat16* rounded(int64_t head) const {
    return rounded_.const_data_ptr<c10::BFloat16>() + place(head);
  }

 private:
  [[nodiscard]] int64_t place(int64_t head) const { return head * padded_.size(1) + kPairedRows; }
  at::Tensor padded_, rounded_;
};

// One behind the last valid token, summed over samples.
int64_t rows_seen(const ValidRows& valid, int64_t samples) {
  int64_t result = 0;
  for (int64_t b = 0; b < samples; ++b) result += valid.end(b);
  return result;
}

// Zeros in the rows of one sample and head that are not valid; what lies behind the last one is cleared for all heads
// at once, when it is the first's turn. `x` is new_heads().
template <class Stored>
void clear_padding(const Heads<Stored>& x, const HeadRows<Stored>& rows, int64_t n, int64_t heads) {
  for (int64_t i = 0; i < rows.end; ++i)
    if (!rows.valid.at(rows.b, i)) std::fill_n(x.at(rows.b, rows.h, i), rows.d, Stored(0));
  clear_heads(x, heads, rows.b, rows.h, rows.end, n, rows.d);
}

// Rows 0 .. end - 1 of `out` by tiles, in which they and what they are made of stay in the cache between sums and
// rounding: work(first row, rows, where to).
template <class Stored, class Work>
void for_tiles(const Heads<Stored>& out, int64_t b, int64_t h, int64_t end, int64_t d,
               std::vector<Computed<Stored>>& room, const Work& work) {
  constexpr int64_t kTile = 120;
  for (int64_t first = 0; first < end; first += kTile) {
    const int64_t rows = std::min(kTile, end - first);
    const auto into = rows_for(out.at(b, h, first), out.stride, rows, d, room);
    work(first, rows, Rows<Computed<Stored>>{into.data, into.stride});
    store_rows(into, rows, d, out.at(b, h, first), out.stride);
  }
}

// x [b,h,n,d] with zeros in rows that are not valid; x itself where all are.
at::Tensor valid_alone(const at::Tensor& x, const at::Tensor& key_valid) {
  if (!key_valid.defined()) return x;
  const at::Tensor rows = x.transpose(1, 2).contiguous(), result = at::empty_like(rows);  // [b,n,h,d]
  const int64_t count = rows.size(0) * rows.size(1), at_once = 256;
  const int64_t bytes = rows.size(2) * rows.size(3) * rows.element_size();  // of a row
  const NeededRows valid(key_valid, count);
  const auto* const from = static_cast<const char*>(rows.const_data_ptr());
  auto* const to = static_cast<char*>(result.mutable_data_ptr());
  for_units((count + at_once - 1) / at_once, at_once * bytes, [&](int64_t unit, int64_t /*worker*/) {
    const int64_t begin = unit * at_once;
    valid.for_runs(begin, std::min(at_once, count - begin), [&](int64_t first, int64_t some, Needed which) {
      if (which != Needed::kNone) std::copy_n(from + first * bytes, some * bytes, to + first * bytes);
      if (which != Needed::kAll) valid.clear(first, some, bytes, to + first * bytes);
    });
  });
  return result.transpose(1, 2);
}

// What a worker computes in.
template <class Stored>
struct ConvolutionRoom {
  std::vector<Stored> stored, slopes, pairs;
  std::vector<Computed<Stored>> x, slope, base, out;
};

// Rows first .. first + rows - 1 of x convolved, with `base` added unless it is nullptr.
template <class Stored, class Value = Computed<Stored>>
void convolve_tile(const HeadRows<Stored>& x, const HeadRows<Stored>* base, const Kernels<Value>& kernels, int64_t taps,
                   int64_t first, int64_t rows, Rows<Value> into, ConvolutionRoom<Stored>& room) {
  const int64_t begin = first - taps / 2, count = (rows + taps - 1 + kPairedRows + 1) / 2 * 2, d = x.d;
  if constexpr (kConverts<Stored>)
    if (has_bf16_512()) {
      const Rows<const Stored> seen = window(x, begin, count, room.stored);
      Stored* const pairs = grown(room.pairs, count * d);
      pack_pairs(count, d, seen.data, seen.stride, pairs, d);
      const Stored* const added = base == nullptr ? nullptr : base->at(first);
      return by_512::convolve_rows(pairs, rows, d, kernels.rounded(x.h), taps,
                                   {added, base == nullptr ? 0 : base->all.stride}, into);
    }
  TileRows<const Value> added{nullptr, 0};
  if (base != nullptr) added = loaded_rows(base->at(first), base->all.stride, rows, d, room.base);
  convolve_rows(laid_out(x, begin, count, room.x), rows, d, kernels.of(x.h), taps,
                Rows<const Value>{added.data, added.stride}, into);
}

// Adds to sums [taps] what these rows of slopes give to the gradient of a kernel.
template <class Stored, class Value = Computed<Stored>>
void correlate_tile(const HeadRows<Stored>& slopes, const HeadRows<Stored>& x, int64_t taps, int64_t first,
                    int64_t rows, Value* sums, ConvolutionRoom<Stored>& room) {
  const int64_t begin = first - taps / 2, count = rows + taps - 1;
  if constexpr (kConverts<Stored>)
    if (has_bf16_512())
      return by_512::correlate_rows(window(slopes, first, rows, room.slopes),
                                    window(x, begin, count + by_512::kCorrelatedTaps, room.stored), rows, x.d, taps,
                                    sums);
  correlate_rows(laid_out(slopes, first, rows, room.slope), laid_out(x, begin, count, room.x), rows, x.d, taps, sums);
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
    std::vector<ConvolutionRoom<scalar_t>> rooms(static_cast<size_t>(workers_for(units)));
    for_units(units, n * d * taps, [&](int64_t unit, int64_t worker) {
      const int64_t b = unit / heads, h = unit % heads, end = valid.end(b);
      ConvolutionRoom<scalar_t>& room = rooms[static_cast<size_t>(worker)];
      const HeadRows<scalar_t> own{tokens, valid, b, h, d, end}, added{bases, valid, b, h, d, end};
      for_tiles(out, b, h, end, d, room.out, [&](int64_t first, int64_t rows, Rows<Value> into) {
        convolve_tile(own, &added, kernels, taps, first, rows, into, room);
      });
      clear_padding(out, own, n, heads);
    });
  });
  add_executed_flops(2 * heads * rows_seen(valid, x.size(0)) * d * taps);
  return result;
}

ConvolutionGradients convolve_backward(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& w,
                                       const at::Tensor& key_valid) {
  const int64_t heads = x.size(1), n = x.size(2), d = x.size(3), taps = w.size(1);
  const ValidRows valid(key_valid, n);
  const int64_t units = x.size(0) * heads;
  ConvolutionGradients result{valid_alone(gradient, key_valid), new_heads(x, n, d), {}};
  const at::Tensor shares = at::zeros({x.size(0), heads, taps}, w.options());  // of the kernel's gradient, per sample
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "convolve_tokens_backward", [&] {
    using Value = Computed<scalar_t>;
    const auto tokens = reading<scalar_t>(x), slopes = reading<scalar_t>(gradient);
    const auto out = writing<scalar_t>(result.x);
    const Kernels<Value> kernels(w.flip(1));
    Value* const share = shares.mutable_data_ptr<Value>();
    std::vector<ConvolutionRoom<scalar_t>> rooms(static_cast<size_t>(workers_for(units)));
    for_units(units, n * d * taps, [&](int64_t unit, int64_t worker) {
      const int64_t b = unit / heads, h = unit % heads, end = valid.end(b);
      ConvolutionRoom<scalar_t>& room = rooms[static_cast<size_t>(worker)];
      const HeadRows<scalar_t> own{tokens, valid, b, h, d, end}, slope{slopes, valid, b, h, d, end};
      for_tiles(out, b, h, end, d, room.out, [&](int64_t first, int64_t rows, Rows<Value> into) {
        convolve_tile<scalar_t>(slope, nullptr, kernels, taps, first, rows, into, room);
        correlate_tile(slope, own, taps, first, rows, share + unit * taps, room);
      });
      clear_padding(out, own, n, heads);
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
