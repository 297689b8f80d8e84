#include "kernels/batched_product/batched_product.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "kernels/cpu/blas.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/units.h"
#include "kernels/fused.h"

namespace xformer::kernels {

namespace {

// Rows and columns of a result that a thread takes at a time.
constexpr int64_t kProductTile = 256;
// What LibTorch's products of batches lose nothing of (measured, one thread, Xeon with AVX-512, times of at::matmul
// over ours, forward pass and both passes together; the first on two threads of an AMD EPYC of Zen 5 too, both passes
// together):
//   rows x columns x inner      MKL by AVX-512    MKL by AVX2
//   32 x 32 x 32                 0.8, 1.0          1.0, 1.0     few multiply-adds: kLeastProduct
//                                    -            1.7          on the EPYC
//   4 x 512 x 32                 1.1, 1.0          0.3, 1.0     a short side: kLeastSide
//   2,048 x 2,048 x 16           0.5, 0.6          0.7, 0.8
//   1,024 x 1,024 x 32           0.6, 0.9          0.9, 1.2     much to read or write: kLargest
//   512 x 512 x 32               1.0, 0.8          1.0, 1.2
//   1,024 x 128 x 32             1.1, 1.0          2.0, 1.5
//   64 x 32 x 1,024              1.1, 1.1          1.4, 1.2
//   32 x 33 x 1,024              1.6, 1.2          1.9, 1.5
//   512 x 32 x 512, shared       1.7, 1.5          2.7, 1.5
constexpr int64_t kLeastSide = 32, kLeastProduct = int64_t{1} << 16, kLargest = int64_t{1} << 17;

bool has_rows(const at::Tensor& x) {
  return (x.size(-1) == 1 || x.stride(-1) == 1) && (x.size(-2) == 1 || x.stride(-2) >= x.size(-1));
}

// Matrices that gemm can read, as they lie or as a copy: their rows or their columns are neighbours in memory.
at::Tensor readable(const at::Tensor& x) { return has_rows(x) || has_rows(x.transpose(-1, -2)) ? x : x.contiguous(); }

// Where matrix `number` begins, counted through `sizes`; what has one matrix in a dimension has it for all.
int64_t place(const at::Tensor& x, const std::vector<int64_t>& sizes, int64_t number) {
  int64_t result = 0;
  for (size_t i = sizes.size(); i-- > 0; number /= sizes[i]) {
    const auto dim = static_cast<int64_t>(i);
    if (x.size(dim) > 1) result += number % sizes[i] * x.stride(dim);
  }
  return result;
}

int64_t count_of(const std::vector<int64_t>& sizes) {
  int64_t result = 1;
  for (const int64_t size : sizes) result *= size;
  return result;
}

// Part of the matrix of x that begins `from` elements behind its first, at this row and column.
template <class Value>
Operand<Value> part(const at::Tensor& x, int64_t from, int64_t row, int64_t column) {
  const bool transposed = !has_rows(x);
  const int64_t stride = transposed ? std::max(x.stride(-1), x.size(-2)) : std::max(x.stride(-2), x.size(-1));
  return {x.const_data_ptr<Value>() + from + (transposed ? column * stride + row : row * stride + column), stride,
          transposed};
}

// out = a b, summed over the dimensions in which out has one matrix where a or b have many, in their order.
void multiply(const at::Tensor& a_in, const at::Tensor& b_in, const at::Tensor& out) {
  if (!has_rows(out)) return multiply(b_in.transpose(-1, -2), a_in.transpose(-1, -2), out.transpose(-1, -2));
  const at::Tensor a = readable(a_in), b = readable(b_in);
  std::vector<int64_t> kept, summed;
  for (int64_t dim = 0; dim < out.dim() - 2; ++dim) {
    kept.push_back(out.size(dim));
    summed.push_back(std::max(a.size(dim), b.size(dim)) / out.size(dim));
  }
  const int64_t rows = out.size(-2), columns = out.size(-1), inner = a.size(-1),
                stride = std::max(out.stride(-2), columns);
  const int64_t across = (columns + kProductTile - 1) / kProductTile,
                tiles = (rows + kProductTile - 1) / kProductTile * across;
  const int64_t units = count_of(kept) * tiles, terms = count_of(summed);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, out.scalar_type(), "batched_product", [&] {
    using Value = Computed<scalar_t>;
    std::vector<std::vector<Value>> rooms(static_cast<size_t>(workers_for(units)));
    for_units(
        units, std::min(rows, kProductTile) * std::min(columns, kProductTile) * inner * terms,
        [&](int64_t unit, int64_t worker) {
          const int64_t matrix = unit / tiles, row = unit % tiles / across * kProductTile,
                        column = unit % across * kProductTile;
          const int64_t height = std::min(kProductTile, rows - row), width = std::min(kProductTile, columns - column);
          const int64_t a_from = place(a, kept, matrix), b_from = place(b, kept, matrix);
          scalar_t* const to = out.mutable_data_ptr<scalar_t>() + place(out, kept, matrix) + row * stride + column;
          const TileRows<Value> into = rows_for(to, stride, height, width, rooms[static_cast<size_t>(worker)]);
          for (int64_t term = 0; term < terms; ++term)
            gemm(height, width, inner, Value(1), part<scalar_t>(a, a_from + place(a, summed, term), row, 0),
                 part<scalar_t>(b, b_from + place(b, summed, term), 0, column), Value(term > 0), into.data,
                 into.stride);
          store_rows(into, height, width, to, stride);
        });
  });
}

// Room for a gradient, in x's order where multiply can write that.
at::Tensor gradient_of(const at::Tensor& x) {
  const at::Tensor result = at::empty_like(x);
  return has_rows(result) || has_rows(result.transpose(-1, -2)) ? result : at::empty(x.sizes(), x.options());
}

at::Tensor multiply_forward(const at::Tensor& a, const at::Tensor& b) {
  std::vector<int64_t> shape;
  for (int64_t dim = 0; dim < a.dim() - 2; ++dim) {
    XF_ASSERT(a.size(dim) == b.size(dim) || a.size(dim) == 1 || b.size(dim) == 1,
              "batched_product of {} and {} matrices in dimension {}", a.size(dim), b.size(dim), dim);
    shape.push_back(std::max(a.size(dim), b.size(dim)));
  }
  shape.push_back(a.size(-2));
  shape.push_back(b.size(-1));
  const at::Tensor result = at::empty(shape, a.options());
  multiply(a, b, result);
  return result;
}

struct FactorGradients {
  at::Tensor a, b;  // undefined where not wanted
};

FactorGradients multiply_backward(const at::Tensor& gradient, const at::Tensor& a, const at::Tensor& b, bool a_wanted,
                                  bool b_wanted) {
  FactorGradients result;
  if (a_wanted) multiply(gradient, b.transpose(-1, -2), result.a = gradient_of(a));
  if (b_wanted) multiply(a.transpose(-1, -2), gradient, result.b = gradient_of(b));
  return result;
}

// Whether tiles are as fast as LibTorch's product, by the shape and the machine alone.
bool worth(const at::Tensor& a, const at::Tensor& b) {
  const int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1);
  if (std::min({m, k, n}) < kLeastSide || a.numel() == 0 || b.numel() == 0) return false;
  if (!blas_has_512()) return true;
  if (m * k * n < kLeastProduct) return false;
  const int64_t largest = std::max({m * k, k * n, m * n});
  // What all share is copied for each by at::matmul.
  const bool shares = a.sizes().slice(0, a.dim() - 2) != b.sizes().slice(0, b.dim() - 2);
  return largest <= kLargest || (shares && largest > m * n);
}

struct BatchedProductCall {
  at::Tensor a, b;
  bool b_wanted;

  static constexpr const char* kName = "batched_product";
  static inline const Operator<multiply_forward> kForward{"batched_product_forward"};
  static inline const Operator<multiply_backward> kBackward{"batched_product_backward"};
  static constexpr bool kTakesBf16 = true;

  [[nodiscard]] variable_list inputs() const { return {a, b}; }
  variable_list forward() { return {kForward(a, b)}; }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool a_wanted) const {
    return tensors_of(kBackward(gradients[0], a, b, a_wanted, b_wanted));
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const { return {at::matmul(in[0], in[1])}; }
};

}  // namespace

at::Tensor batched_product(const at::Tensor& a, const at::Tensor& b) {
  XF_ASSERT(a.dim() == b.dim() && a.dim() >= 3 && a.size(-1) == b.size(-2),
            "batched_product takes [.., m, k] and [.., k, n]");
  // Under autocast to another type than ours products are LibTorch's.
  const bool ours = !autocast_type(a.device().type()) || stores_bf16({a, b});
  return run_fused(BatchedProductCall{a, b, b.requires_grad()}, ours && worth(a, b))[0];
}

}  // namespace xformer::kernels
