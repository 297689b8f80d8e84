// Products against their definition in double: shapes, transposed and strided factors, alpha and beta, every type.
#include <c10/util/BFloat16.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/cpu/gemm.h"
#include "tensor/op_counter.h"

namespace xformer::kernels::gemm_test {

struct Shape {
  int64_t rows, columns, inner;
};

// Small whole numbers and halves: exact in bf16 and, in their sums, in every type, so that no error is allowed.
float number(int64_t i) { return static_cast<float>(i * 7919 % 31 - 15) / 2; }

// A matrix [rows, columns] whose rows lie `gap` further apart than they must; what lies between must not be read.
template <class Value>
struct Matrix {
  int64_t rows, columns, stride;
  std::vector<Value> data;

  Matrix(int64_t r, int64_t c, int64_t gap, int64_t salt)
      : rows(r), columns(c), stride(c + gap), data(static_cast<size_t>(r * (c + gap)), static_cast<Value>(NAN)) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) at(i, j) = static_cast<Value>(number((i * columns + j) * 3 + salt));
  }
  Value& at(int64_t i, int64_t j) { return data[static_cast<size_t>(i * stride + j)]; }
  [[nodiscard]] double get(int64_t i, int64_t j) const {
    return static_cast<double>(data[static_cast<size_t>(i * stride + j)]);
  }
};

// The number of elements of c that are not what the definition says, or lie between its rows and were written.
template <class Value, class Result>
int64_t wrong(const Shape& s, bool a_turned, bool b_turned, double alpha, double beta, int64_t gap) {
  const Matrix<Value> a(a_turned ? s.inner : s.rows, a_turned ? s.rows : s.inner, gap, 1);
  const Matrix<Value> b(b_turned ? s.columns : s.inner, b_turned ? s.inner : s.columns, gap, 2);
  Matrix<Result> c(s.rows, s.columns, gap, 3);
  const Matrix<Result> before = c;
  if (beta == 0)
    for (int64_t i = 0; i < s.rows; ++i)
      for (int64_t j = 0; j < s.columns; ++j) c.at(i, j) = static_cast<Result>(NAN);
  gemm(s.rows, s.columns, s.inner, static_cast<Result>(alpha), Operand<Value>{a.data.data(), a.stride, a_turned},
       Operand<Value>{b.data.data(), b.stride, b_turned}, static_cast<Result>(beta), c.data.data(), c.stride);
  int64_t count = 0;
  for (int64_t i = 0; i < s.rows; ++i) {
    for (int64_t j = 0; j < s.columns; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < s.inner; ++k)
        sum += (a_turned ? a.get(k, i) : a.get(i, k)) * (b_turned ? b.get(j, k) : b.get(k, j));
      count += c.get(i, j) != alpha * sum + (beta == 0 ? 0 : beta * before.get(i, j));
    }
    for (int64_t j = s.columns; j < c.stride; ++j) count += !std::isnan(c.get(i, j));
  }
  return count;
}

const std::vector<Shape> kShapes{{1, 1, 1},      {3, 5, 7},     {16, 16, 16},  {64, 256, 32}, {64, 32, 256},
                                 {17, 33, 65},   {1, 64, 32},   {64, 1, 32},   {64, 64, 1},   {100, 19, 31},
                                 {256, 192, 64}, {31, 2, 2048}, {2, 300, 129}, {129, 127, 1}, {33, 64, 515},
                                 {2048, 16, 3},  {5, 2050, 8}};

template <class Value, class Result>
void check_all() {
  for (const Shape& s : kShapes)
    for (const auto& [a_turned, b_turned] : {std::pair{false, false}, {false, true}, {true, false}, {true, true}})
      for (const auto& [alpha, beta] :
           {std::pair{1.0, 0.0}, {1.0, 1.0}, {0.25, 0.0}, {-1.0, 1.0}, {2.0, -7.0}, {0.0, 1.0}, {0.0, 0.0}})
        for (const int64_t gap : {0, 5}) {
          INFO(s.rows << " x " << s.columns << " x " << s.inner << (a_turned ? " a^T" : "") << (b_turned ? " b^T" : "")
                      << " alpha " << alpha << " beta " << beta << " gap " << gap);
          CHECK(wrong<Value, Result>(s, a_turned, b_turned, alpha, beta, gap) == 0);
        }
}

TEST_CASE("products are their definition for every shape, order, stride, alpha and beta") {
  SECTION("float") { check_all<float, float>(); }
  SECTION("double") { check_all<double, double>(); }
  SECTION("bf16 factors") { check_all<c10::BFloat16, float>(); }
}

TEST_CASE("a product without rows or columns touches nothing, and one without terms is beta c") {
  std::vector<float> c{1, 2, 3, 4};
  const std::vector<float> none{NAN};
  const auto product = [&](int64_t rows, int64_t columns, int64_t inner, float beta) {
    gemm(rows, columns, inner, 1.0F, Operand<float>{none.data(), 2}, Operand<float>{none.data(), 2}, beta, c.data(), 2);
  };
  product(0, 2, 2, 0), product(2, 0, 2, 0);
  CHECK(c == std::vector<float>{1, 2, 3, 4});
  product(2, 2, 0, 1);
  CHECK(c == std::vector<float>{1, 2, 3, 4});
  product(2, 2, 0, 2);
  CHECK(c == std::vector<float>{2, 4, 6, 8});
  product(2, 2, 0, 0);
  CHECK(c == std::vector<float>{0, 0, 0, 0});
}

TEST_CASE("products count their FLOPs once, whatever they are made of") {
  const OpCounter counter;
  static_cast<void>(wrong<float, float>({3, 5, 7}, false, true, 1, 0, 0));
  CHECK(counter.counts().flops == 2 * 3 * 5 * 7);
  static_cast<void>(wrong<c10::BFloat16, float>({3, 5, 7}, true, false, 1, 1, 0));
  CHECK(counter.counts().flops == 2 * 2 * 3 * 5 * 7);
}

}  // namespace xformer::kernels::gemm_test
