#include "kernels/pseudo_inverse/pseudo_inverse.h"

#include <ATen/Dispatch.h>

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "kernels/attention/weight_rows.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/units.h"
#include "kernels/cpu/valid_rows.h"
#include "kernels/fused.h"
#include "kernels/pseudo_inverse/device.h"
#include "tensor/op_counter.h"

namespace xformer::kernels {

namespace {

// Products of [m,m] matrices that lie side by side, all of them in the cache.
template <class Value>
class Square {
 public:
  explicit Square(int64_t m) : m_(m) {}
  [[nodiscard]] int64_t size() const { return m_ * m_; }
  // c = alpha a b + beta c, either factor transposed if so marked.
  void multiply(Value alpha, const Value* a, bool a_transposed, const Value* b, bool b_transposed, Value beta,
                Value* c) const {
    gemm(m_, m_, m_, alpha, {a, m_, a_transposed}, {b, m_, b_transposed}, beta, c, m_);
  }
  void add_to_diagonal(Value value, Value* c) const {
    for (int64_t i = 0; i < m_; ++i) c[i * (m_ + 1)] += value;
  }

 private:
  int64_t m_;
};

// What an iteration has: P = A Z, T = 15 I - P (7 I - P) and U = 13 I - P T; the next Z is Z U / 4.
template <class Value>
struct Iteration {
  Value *z, *p, *t, *u;
  Iteration(Value* from, int64_t size) : z(from), p(from + size), t(from + 2 * size), u(from + 3 * size) {}
};
constexpr int64_t kKept = 4;  // matrices of an iteration

template <class Value>
void forward_one(const Square<Value>& square, const Value* a, Value norm, int64_t m, int64_t iterations, Value* kept,
                 Value* result) {
  pack_transposed(m, m, Value(1), a, m, kept, m);
  for (int64_t i = 0; i < square.size(); ++i) kept[i] /= norm;
  for (int64_t step = 0; step < iterations; ++step) {
    const Iteration<Value> now(kept + step * kKept * square.size(), square.size());
    square.multiply(1, a, false, now.z, false, 0, now.p);
    std::copy_n(now.p, square.size(), now.t);
    square.multiply(1, now.p, false, now.p, false, -7, now.t);
    square.add_to_diagonal(15, now.t);
    square.multiply(-1, now.p, false, now.t, false, 0, now.u);
    square.add_to_diagonal(13, now.u);
    Value* const next = step + 1 < iterations ? kept + (step + 1) * kKept * square.size() : result;
    square.multiply(Value(0.25), now.z, false, now.u, false, 0, next);
  }
}

// slope: of the result, and in the end of the first Z; into: the gradient of A, but for what comes through the first Z.
template <class Value>
void backward_one(const Square<Value>& square, const Value* a, int64_t iterations, Value* kept, Value* scratch,
                  Value* slope, Value* into) {
  const int64_t size = square.size();
  Value *const of_z = scratch, *const of_p = scratch + size, *const of_t = scratch + 2 * size,
               *const of_u = scratch + 3 * size;
  std::fill_n(into, size, Value(0));
  for (int64_t step = iterations - 1; step >= 0; --step) {
    const Iteration<Value> now(kept + step * kKept * size, size);
    square.multiply(Value(0.25), now.z, true, slope, false, 0, of_u);
    square.multiply(Value(0.25), slope, false, now.u, true, 0, of_z);
    square.multiply(-1, now.p, true, of_u, false, 0, of_t);
    std::copy_n(of_t, size, of_p);
    square.multiply(1, of_t, false, now.p, true, -7, of_p);
    square.multiply(1, now.p, true, of_t, false, 1, of_p);
    square.multiply(-1, of_u, false, now.t, true, 1, of_p);
    square.multiply(1, of_p, false, now.z, true, 1, into);
    square.multiply(1, a, true, of_p, false, 1, of_z);
    std::copy_n(of_z, size, slope);
  }
}

template <class Value>
std::vector<Value> column_sums(const Value* a, int64_t m) {
  std::vector<Value> sums(static_cast<size_t>(m), Value(0));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < m; ++j) sums[static_cast<size_t>(j)] += a[i * m + j];
  return sums;
}

// The gradient through Z = A^T / c, where c is the largest of the columns' sums; equal ones share it. `turned`: room
// for a matrix.
template <class Value>
void backward_start(const Value* a, const std::vector<Value>& sums, const Value* slope, int64_t m, Value* turned,
                    Value* into) {
  const Value norm = *std::max_element(sums.begin(), sums.end());
  const Value factor = norm == 0 ? 1 : norm;
  pack_transposed(m, m, Value(1), slope, m, turned, m);
  for (int64_t i = 0; i < m * m; ++i) into[i] += turned[i] / factor;
  if (norm == 0) return;
  const Value of_norm =
      -row_product(turned, a, m * m) / (norm * norm * static_cast<Value>(std::count(sums.begin(), sums.end(), norm)));
  for (int64_t j = 0; j < m; ++j)
    if (sums[static_cast<size_t>(j)] == norm)
      for (int64_t i = 0; i < m; ++i) into[i * m + j] += of_norm;
}

// The valid rows and columns of a landmark matrix [m,m], side by side.
class Corner {
 public:
  Corner(const ValidRows& valid, int64_t b, int64_t m) : m_(m) {
    for (int64_t i = 0; i < m; ++i)
      if (valid.at(b, i)) places_.push_back(i);
  }
  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(places_.size()); }
  template <class Value>
  void take(const Value* whole, Value* into) const {
    for (const int64_t i : places_) {
      if (in_front()) std::copy_n(whole + i * m_, size(), into);
      else
        for (int64_t j = 0; j < size(); ++j) into[j] = whole[i * m_ + place(j)];
      into += size();
    }
  }
  template <class Value>
  void put(const Value* from, Value* whole) const {
    std::fill_n(whole, m_ * m_, Value(0));
    for (const int64_t i : places_) {
      if (in_front()) std::copy_n(from, size(), whole + i * m_);
      else
        for (int64_t j = 0; j < size(); ++j) whole[i * m_ + place(j)] = from[j];
      from += size();
    }
  }

 private:
  [[nodiscard]] int64_t place(int64_t j) const { return places_[static_cast<size_t>(j)]; }
  // Ahead of all others, as most masks have them.
  [[nodiscard]] bool in_front() const { return places_.back() + 1 == size(); }

  int64_t m_;
  std::vector<int64_t> places_;
};

// What the iterations had is [b,h,iterations * kKept,m,m], as far as a corner fills it.
Inverse invert(const at::Tensor& a, const at::Tensor& landmarks_valid, int64_t iterations) {
  const int64_t heads = a.size(1), m = a.size(2), units = a.size(0) * heads;
  const ValidRows valid(landmarks_valid, m);
  const Inverse inverse{at::empty_like(a), at::empty({a.size(0), heads, iterations * kKept, m, m}, a.options())};
  AT_DISPATCH_FLOATING_TYPES(a.scalar_type(), "pseudo_inverse", [&] {
    const scalar_t* const from = a.const_data_ptr<scalar_t>();
    scalar_t* const into = inverse.result.mutable_data_ptr<scalar_t>();
    scalar_t* const kept = inverse.kept.mutable_data_ptr<scalar_t>();
    const at::Tensor room = at::empty({workers_for(units), 2 * m * m}, a.options());
    scalar_t* const scratch = room.mutable_data_ptr<scalar_t>();
    for_units(units, kKept * iterations * m * m * m, [&](int64_t unit, int64_t worker) {
      const Corner corner(valid, unit / heads, m);
      const Square<scalar_t> square(corner.size());
      scalar_t *const matrix = scratch + worker * room.stride(0), *const result = matrix + m * m;
      corner.take(from + unit * m * m, matrix);
      if (corner.size() > 0) {
        const std::vector<scalar_t> sums = column_sums(matrix, corner.size());
        const scalar_t norm = *std::max_element(sums.begin(), sums.end());
        forward_one(square, matrix, norm == 0 ? scalar_t(1) : norm, corner.size(), iterations,
                    kept + unit * iterations * kKept * m * m, result);
      }
      corner.put(result, into + unit * m * m);
    });
  });
  return inverse;
}

at::Tensor invert_backward(const at::Tensor& gradient, const at::Tensor& a, const at::Tensor& kept,
                           const at::Tensor& landmarks_valid, int64_t iterations) {
  const int64_t heads = a.size(1), m = a.size(2), units = a.size(0) * heads;
  const ValidRows valid(landmarks_valid, m);
  const at::Tensor result = at::empty_like(a);
  AT_DISPATCH_FLOATING_TYPES(a.scalar_type(), "pseudo_inverse_backward", [&] {
    const scalar_t *const from = a.const_data_ptr<scalar_t>(), *const slopes = gradient.const_data_ptr<scalar_t>();
    scalar_t* const had = kept.mutable_data_ptr<scalar_t>();
    scalar_t* const into = result.mutable_data_ptr<scalar_t>();
    const at::Tensor room = at::empty({workers_for(units), 7 * m * m}, a.options());
    scalar_t* const scratch = room.mutable_data_ptr<scalar_t>();
    for_units(units, 2 * kKept * iterations * m * m * m, [&](int64_t unit, int64_t worker) {
      const Corner corner(valid, unit / heads, m);
      const Square<scalar_t> square(corner.size());
      scalar_t *const matrix = scratch + worker * room.stride(0), *const slope = matrix + m * m,
                      *const found = slope + m * m;
      corner.take(from + unit * m * m, matrix);
      corner.take(slopes + unit * m * m, slope);
      if (corner.size() > 0) {
        backward_one(square, matrix, iterations, had + unit * iterations * kKept * m * m, found + m * m, slope, found);
        backward_start(matrix, column_sums(matrix, corner.size()), slope, corner.size(), found + m * m, found);
      }
      corner.put(found, into + unit * m * m);
    });
  });
  return result;
}

struct PseudoInverseCall {
  at::Tensor a, landmarks_valid;
  int64_t iterations;
  at::Tensor kept;

  static constexpr const char* kName = "pseudo_inverse";
  static inline const Operator<invert> kForward{"pseudo_inverse_forward"};
  static inline const Operator<invert_backward> kBackward{"pseudo_inverse_backward"};

  [[nodiscard]] variable_list inputs() const { return {a}; }
  variable_list forward() {
    a = a.contiguous();
    count_products(4);
    const Inverse inverse = kForward(a, landmarks_valid, iterations);
    kept = inverse.kept;
    return {inverse.result};
  }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    count_products(11);
    return {kBackward(gradients[0].contiguous(), a, kept, landmarks_valid, iterations)};
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    return {pseudo_inverse_reference(in[0], {landmarks_valid, false}, iterations)};
  }
  // Of each iteration. The CPU's products count themselves.
  void count_products(int64_t products) const {
    if (!a.is_cpu()) add_executed_flops(2 * products * iterations * a.numel() * a.size(2));
  }
};

}  // namespace

at::Tensor pseudo_inverse_reference(const at::Tensor& a, const SequenceMask& mask, int64_t iterations) {
  at::Tensor used = a;
  if (!mask.all_valid()) {
    const at::Tensor rows = mask.as_factor(a.scalar_type());  // [b,1,m,1]
    used = a * rows * rows.transpose(2, 3);
  }
  used = used.flatten(0, 1);
  const at::Tensor norm = used.sum(1, /*keepdim=*/true).amax(2, /*keepdim=*/true);  // [b h,1,1]
  at::Tensor inverse = used.transpose(1, 2) / norm.masked_fill(norm == 0, 1);
  const at::Tensor one = at::eye(used.size(1), used.options());
  for (int64_t i = 0; i < iterations; ++i) {
    const at::Tensor near_one = at::bmm(used, inverse);
    at::Tensor factor = at::baddbmm(15 * one, near_one, 7 * one - near_one, 1, -1);
    factor = at::baddbmm(13 * one, near_one, factor, 1, -1);
    inverse = at::bmm(inverse, factor) / 4;
  }
  return inverse.view(a.sizes());
}

at::Tensor pseudo_inverse(const at::Tensor& a, const SequenceMask& mask, int64_t iterations) {
  XF_ASSERT(a.dim() == 4 && a.size(2) == a.size(3) && iterations >= 1, "pseudo_inverse takes [b,h,m,m]");
  const bool possible = a.is_cpu() || fits_pseudo_inverse_programs(a);
  return run_fused(PseudoInverseCall{a, mask.key_valid, iterations, {}}, possible)[0];
}

}  // namespace xformer::kernels
