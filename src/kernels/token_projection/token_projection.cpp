#include "kernels/token_projection/token_projection.h"

#include <ATen/Dispatch.h>

#include <vector>

#include "core/error.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/heads.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/units.h"
#include "kernels/cpu/valid_rows.h"
#include "kernels/fused.h"
#include "kernels/token_projection/device.h"
#include "tensor/op_counter.h"

namespace xformer::kernels {

namespace {

constexpr int64_t kSlab = 256;  // columns of the projection's gradient that stay in the cache over all samples

struct ProjectionSizes {
  int64_t b, h, n, width;        // width of a result's row: d, or 2 d with y
  int64_t rows, columns, heads;  // of the projection
};

ProjectionSizes sizes_of(const at::Tensor& projection, const at::Tensor& x, const at::Tensor& y) {
  return {x.size(0),          x.size(1),          x.size(2),         x.size(3) * (y.defined() ? 2 : 1),
          projection.size(1), projection.size(2), projection.size(0)};
}

// The tokens of one sample and head as one or two matrices with d columns each, or one with 2 d where y's rows lie
// behind x's; zero where the mask has holes.
template <class Value>
class Tokens {
 public:
  Tokens(const at::Tensor& x, const at::Tensor& y, const ValidRows& valid)
      : x_(reading<Value>(x)), y_(), valid_(valid), d_(x.size(3)), width_(d_) {
    if (!y.defined()) return;
    y_ = reading<Value>(y);
    joined_ = y_.data == x_.data + d_ && y.strides() == x.strides();
    width_ = 2 * d_;
  }

  struct Part {
    const Value* data;
    int64_t stride, first, width;  // columns first .. first + width - 1 of the result
  };
  [[nodiscard]] std::vector<Part> parts(int64_t b, int64_t h, int64_t end, std::vector<Value>& scratch) const {
    if (!valid_.all(b, 0, end)) {
      scratch.assign(static_cast<size_t>(end * width_), Value(0));
      for (int64_t i = 0; i < end; ++i) {
        if (!valid_.at(b, i)) continue;
        std::copy_n(x_.at(b, h, i), d_, scratch.data() + i * width_);
        if (width_ > d_) std::copy_n(y_.at(b, h, i), d_, scratch.data() + i * width_ + d_);
      }
      return {{scratch.data(), width_, 0, width_}};
    }
    if (joined_ || width_ == d_) return {{x_.at(b, h), x_.stride, 0, width_}};
    return {{x_.at(b, h), x_.stride, 0, d_}, {y_.at(b, h), y_.stride, d_, d_}};
  }

 private:
  Heads<const Value> x_, y_;
  const ValidRows& valid_;
  int64_t d_, width_;
  bool joined_ = false;
};

at::Tensor project_forward(const at::Tensor& projection, const at::Tensor& x, const at::Tensor& y,
                           const at::Tensor& key_valid) {
  const ProjectionSizes s = sizes_of(projection, x, y);
  const ValidRows valid(key_valid, s.n);
  const at::Tensor factors = projection.to(x.scalar_type());
  at::Tensor result = at::empty({s.b, s.h, s.rows, s.width}, x.options());
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "project_tokens", [&] {
    using Value = Computed<scalar_t>;
    const Tokens<scalar_t> tokens(x, y, valid);
    const scalar_t* const table = factors.const_data_ptr<scalar_t>();
    scalar_t* const out = result.mutable_data_ptr<scalar_t>();
    std::vector<std::vector<scalar_t>> scratch(static_cast<size_t>(workers_for(s.b * s.h)));
    std::vector<std::vector<Value>> rooms(scratch.size());
    // Heads outside, so that the workers read the same table at the same time.
    for_units(s.b * s.h, s.rows * s.n * s.width, [&](int64_t unit, int64_t worker) {
      const int64_t h = unit / s.b, b = unit % s.b, end = valid.end(b);
      const Operand<scalar_t> mixing{table + (s.heads == 1 ? 0 : h) * s.rows * s.columns, s.columns};
      scalar_t* const to = out + (b * s.h + h) * s.rows * s.width;
      Value* const into = place_for(to, s.rows * s.width, rooms[static_cast<size_t>(worker)]);
      if (end == 0) std::fill_n(into, s.rows * s.width, Value(0));
      else
        for (const auto& part : tokens.parts(b, h, end, scratch[static_cast<size_t>(worker)]))
          gemm(s.rows, part.width, end, Value(1), mixing, {part.data, part.stride}, Value(0), into + part.first,
               s.width);
      store(into, s.rows * s.width, to);
    });
  });
  return result;
}

ProjectionGradients project_backward(const at::Tensor& x_gradient, const at::Tensor& y_gradient,
                                     const at::Tensor& projection, const at::Tensor& x, const at::Tensor& y,
                                     const at::Tensor& key_valid) {
  const ProjectionSizes s = sizes_of(projection, x, y);
  const at::Tensor gradient = y.defined() ? at::cat({x_gradient, y_gradient}, -1) : x_gradient.contiguous();
  const ValidRows valid(key_valid, s.n);
  const at::Tensor both = at::empty({s.b, s.n, s.h, s.width}, x.options()).transpose(1, 2);  // of x and y
  const at::Tensor table_gradient = at::empty_like(projection), factors = projection.to(x.scalar_type());
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "project_tokens_backward", [&] {
    using Value = Computed<scalar_t>;
    const scalar_t* const table = factors.const_data_ptr<scalar_t>();
    const scalar_t* const slopes = gradient.const_data_ptr<scalar_t>();
    const Heads<scalar_t> tokens_gradient = writing<scalar_t>(both);
    std::vector<std::vector<Value>> rooms(static_cast<size_t>(workers_for(s.b * s.h)));
    for_units(s.b * s.h, s.rows * s.n * s.width, [&](int64_t unit, int64_t worker) {
      const int64_t h = unit / s.b, b = unit % s.b, end = valid.end(b);
      const scalar_t* const mixing = table + (s.heads == 1 ? 0 : h) * s.rows * s.columns;
      // What is rounded on its way out stays in the cache until then.
      const int64_t step = kConverts<scalar_t> ? kSlab : std::max<int64_t>(end, 1);
      for (int64_t first = 0; first < end; first += step) {
        const int64_t count = std::min(step, end - first);
        scalar_t* const to = tokens_gradient.at(b, h, first);
        const TileRows<Value> tile =
            rows_for(to, tokens_gradient.stride, count, s.width, rooms[static_cast<size_t>(worker)]);
        gemm(count, s.width, s.rows, Value(1), {mixing + first, s.columns, true},
             {slopes + (b * s.h + h) * s.rows * s.width, s.width}, Value(0), tile.data, tile.stride);
        store_rows(tile, count, s.width, to, tokens_gradient.stride);
      }
      for (int64_t i = 0; i < end; ++i)
        if (!valid.at(b, i)) std::fill_n(tokens_gradient.at(b, h, i), s.width, scalar_t(0));
      clear_heads(tokens_gradient, s.h, b, h, end, s.n, s.width);
    });

    // A slab of columns of one head's projection, over all samples (and heads, where they share it) in order.
    const Tokens<scalar_t> tokens(x, y, valid);
    Value* const into = table_gradient.mutable_data_ptr<Value>();
    const int64_t slabs = (s.columns + kSlab - 1) / kSlab;
    std::vector<std::vector<scalar_t>> scratch(static_cast<size_t>(workers_for(s.heads * slabs)));
    for_units(s.heads * slabs, s.rows * std::min(kSlab, s.n) * s.width * s.b, [&](int64_t unit, int64_t worker) {
      const int64_t first = unit % slabs * kSlab, width = std::min(kSlab, s.columns - first);
      const int64_t from_head = s.heads == 1 ? 0 : unit / slabs, to_head = s.heads == 1 ? s.h : from_head + 1;
      Value* const slab = into + unit / slabs * s.rows * s.columns + first;
      for (int64_t r = 0; r < s.rows; ++r) std::fill_n(slab + r * s.columns, width, Value(0));
      for (int64_t h = from_head; h < to_head; ++h) {
        for (int64_t b = 0; b < s.b; ++b) {
          const int64_t end = valid.end(b), seen = std::min(first + width, end) - first;
          if (seen <= 0) continue;
          const scalar_t* const slope = slopes + (b * s.h + h) * s.rows * s.width;
          for (const auto& part : tokens.parts(b, h, end, scratch[static_cast<size_t>(worker)]))
            gemm(s.rows, seen, part.width, Value(1), {slope + part.first, s.width},
                 {part.data + first * part.stride, part.stride, true}, Value(1), slab, s.columns);
        }
      }
    });
  });
  const int64_t d = x.size(3);
  return {table_gradient, both.narrow(3, 0, d), y.defined() ? both.narrow(3, d, d) : at::Tensor()};
}

// [b,h,r,2d] of two sides as the halves of it, else as it is.
variable_list halves_of(const at::Tensor& mixtures, bool two) {
  if (!two) return {mixtures};
  const int64_t d = mixtures.size(3) / 2;
  return {mixtures.narrow(3, 0, d), mixtures.narrow(3, d, d)};
}

struct ProjectTokensCall {
  at::Tensor projection, x, y, key_valid;

  static constexpr const char* kName = "project_tokens";
  static inline const Operator<project_forward> kForward{"project_tokens_forward"};
  static inline const Operator<project_backward> kBackward{"project_tokens_backward"};
  static constexpr bool kTakesBf16 = true;
  static bool takes_half(size_t input) { return input > 0; }

  static bool is_parameter(size_t input) { return input == 0; }
  [[nodiscard]] variable_list inputs() const { return {projection, x, y}; }
  variable_list forward() {
    projection = projection.contiguous(), x = with_rows(x);
    if (y.defined()) y = with_rows(y);
    count_products(1);
    return halves_of(kForward(projection, x, y, key_valid), y.defined());
  }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    count_products(2);
    return tensors_of(kBackward(gradients[0], y.defined() ? gradients[1] : at::Tensor(), projection, x, y, key_valid));
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    const TokenMixtures mixtures = project_tokens_reference(in[0], in[1], in[2], {key_valid, false});
    return in[2].defined() ? variable_list{mixtures.x, mixtures.y} : variable_list{mixtures.x};
  }
  // The CPU's products count themselves.
  void count_products(int64_t times) const {
    if (!x.is_cpu()) add_executed_flops(times * 2 * x.numel() * (y.defined() ? 2 : 1) * projection.size(1));
  }
};

}  // namespace

TokenMixtures project_tokens_reference(const at::Tensor& projection, const at::Tensor& x, const at::Tensor& y,
                                       const SequenceMask& mask) {
  const at::Tensor both = y.defined() ? at::cat({x, y}, -1) : x,
                   tokens = mask.all_valid() ? both : both * mask.as_factor(x.scalar_type());
  const int64_t b = x.size(0), h = x.size(1), n = x.size(2), c = both.size(3), rows = projection.size(1);
  const at::Tensor used = projection.narrow(2, 0, n);
  // The batch goes into the columns of one product per head: a batched product would copy the projection for each
  // sample.
  const at::Tensor mixtures = projection.size(0) == 1
                                  ? at::mm(used[0], tokens.permute({2, 0, 1, 3}).reshape({n, b * h * c}))
                                        .view({rows, b, h, c})
                                        .permute({1, 2, 0, 3})
                                  : at::bmm(used, tokens.permute({1, 2, 0, 3}).reshape({h, n, b * c}))
                                        .view({h, rows, b, c})
                                        .permute({2, 0, 1, 3});
  if (!y.defined()) return {mixtures, {}};
  // Split, so that their gradients are put together once, not each into zeros.
  const std::vector<at::Tensor> sides = mixtures.split(c / 2, -1);
  return {sides[0], sides[1]};
}

TokenMixtures project_tokens(const at::Tensor& projection, const at::Tensor& x, const at::Tensor& y,
                             const SequenceMask& mask) {
  XF_ASSERT((!y.defined() || x.sizes() == y.sizes()) && x.size(2) <= projection.size(2) &&
                (projection.size(0) == 1 || projection.size(0) == x.size(1)),
            "project_tokens takes [h or 1, r, N] and [b,h,n,d] with n <= N");
  const bool possible = x.is_cpu() || fits_projection_programs(projection, x);
  const variable_list out = run_fused(ProjectTokensCall{projection, x, y, mask.key_valid}, possible);
  return {out[0], y.defined() ? out[1] : at::Tensor()};
}

}  // namespace xformer::kernels
