// Products against their definition in double: shapes, transposed and strided factors, alpha and beta, every type.
#include <c10/util/BFloat16.h>

#include <sys/prctl.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/tile_product.h"
#include "kernels/policy_scope.h"
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
template <class Value, class Result, class Product>
int64_t wrong(const Product& product, const Shape& s, bool a_turned, bool b_turned, double alpha, double beta,
              int64_t gap) {
  const Matrix<Value> a(a_turned ? s.inner : s.rows, a_turned ? s.rows : s.inner, gap, 1);
  const Matrix<Value> b(b_turned ? s.columns : s.inner, b_turned ? s.inner : s.columns, gap, 2);
  Matrix<Result> c(s.rows, s.columns, gap, 3);
  const Matrix<Result> before = c;
  if (beta == 0)
    for (int64_t i = 0; i < s.rows; ++i)
      for (int64_t j = 0; j < s.columns; ++j) c.at(i, j) = static_cast<Result>(NAN);
  product(s.rows, s.columns, s.inner, static_cast<Result>(alpha), Operand<Value>{a.data.data(), a.stride, a_turned},
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

const auto kProduct = [](auto... arguments) { gemm(arguments...); };

template <class Value, class Result, class Product>
void check_all(const Product& product) {
  for (const Shape& s : kShapes)
    for (const auto& [a_turned, b_turned] : {std::pair{false, false}, {false, true}, {true, false}, {true, true}})
      for (const auto& [alpha, beta] :
           {std::pair{1.0, 0.0}, {1.0, 1.0}, {0.25, 0.0}, {-1.0, 1.0}, {2.0, -7.0}, {0.0, 1.0}, {0.0, 0.0}})
        for (const int64_t gap : {0, 5}) {
          INFO(s.rows << " x " << s.columns << " x " << s.inner << (a_turned ? " a^T" : "") << (b_turned ? " b^T" : "")
                      << " alpha " << alpha << " beta " << beta << " gap " << gap);
          CHECK(wrong<Value, Result>(product, s, a_turned, b_turned, alpha, beta, gap) == 0);
        }
}

template <class Product>
void check_types(const Product& product) {
  SECTION("float") { check_all<float, float>(product); }
  SECTION("float by LibTorch's BLAS") {
    const PolicyScope scope(Policy::kBlas);
    check_all<float, float>(product);
  }
  SECTION("double") { check_all<double, double>(product); }
  SECTION("bf16 factors") { check_all<c10::BFloat16, float>(product); }
}

TEST_CASE("products are their definition for every shape, order, stride, alpha and beta") { check_types(kProduct); }

TEST_CASE("products by a factor that was packed are their definition, too") {
  const auto product = []<class Value>(int64_t rows, int64_t columns, int64_t inner, auto alpha, Operand<Value> a,
                                       Operand<Value> b, auto beta, auto* c, int64_t stride) {
    PackedFactor<Value> factor;
    factor.pack(64, 1, 1, 3, {b.data, b.stride});  // what it was packed from before leaves nothing
    factor.pack(std::max<int64_t>(rows, 32), inner, columns, alpha, b);
    gemm(rows, a, factor, beta, c, stride);
  };
  check_types(product);
}

TEST_CASE("a packed factor serves products of any number of rows, with the bits of products by what it was made from") {
  const Matrix<float> a(300, 70, 0, 1), b(70, 90, 3, 2);
  std::vector<float> x(a.data), y(b.data);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 1 / (x[i] + 0.3F);
  for (float& one : y) one = std::isnan(one) ? one : 1 / (one + 0.7F);
  PackedFactor<float> factor;
  factor.pack(300, 70, 90, 0.3F, {y.data(), b.stride});
  for (const int64_t rows : {1, 3, 17, 31, 300}) {
    std::vector<float> one(static_cast<size_t>(rows * 90), NAN), other(one);
    gemm(rows, 90, 70, 0.3F, Operand<float>{x.data(), 70}, Operand<float>{y.data(), b.stride}, 0.0F, one.data(), 90);
    gemm(rows, Operand<float>{x.data(), 70}, factor, 0.0F, other.data(), 90);
    CHECK(std::equal(one.begin(), one.end(), other.begin(), other.end()));
  }
}

TEST_CASE("a factor that is rounded as it is laid out makes the bits of one that was rounded before") {
  using c10::BFloat16;
  for (const Shape& s : kShapes)
    for (const auto& [a_turned, b_turned] : {std::pair{false, false}, {true, false}, {true, true}})
      for (const float beta : {0.0F, 1.0F}) {
        const int64_t b_rows = b_turned ? s.columns : s.inner, b_width = b_turned ? s.inner : s.columns;
        const Matrix<BFloat16> a(a_turned ? s.inner : s.rows, a_turned ? s.rows : s.inner, 2, 1);
        std::vector<float> b(static_cast<size_t>(b_rows * (b_width + 3)), NAN);  // with gaps that must not be read
        std::vector<BFloat16> rounded(b.size());
        for (int64_t i = 0; i < b_rows; ++i)
          for (int64_t j = 0; j < b_width; ++j) {
            const auto at = static_cast<size_t>(i * (b_width + 3) + j);
            b[at] = 1 / (0.7F + static_cast<float>((i * 7 + j * 3) % 11)), rounded[at] = BFloat16(b[at]);
          }
        std::vector<float> got(static_cast<size_t>(s.rows * s.columns), 0.5F), meant = got, packed = got;
        gemm_rounding(s.rows, s.columns, s.inner, Operand<BFloat16>{a.data.data(), a.stride, a_turned},
                      {b.data(), b_width + 3, b_turned}, beta, got.data(), s.columns);
        gemm(s.rows, s.columns, s.inner, 1.0F, Operand<BFloat16>{a.data.data(), a.stride, a_turned},
             Operand<BFloat16>{rounded.data(), b_width + 3, b_turned}, beta, meant.data(), s.columns);
        PackedFactor<BFloat16> factor;
        factor.pack(s.rows, s.inner, s.columns, 1.0F, Operand<float>{b.data(), b_width + 3, b_turned});
        std::fill(b.begin(), b.end(), NAN);  // it need not stay
        const PackedFactor<BFloat16> moved(std::move(factor));
        gemm(s.rows, Operand<BFloat16>{a.data.data(), a.stride, a_turned}, moved, beta, packed.data(), s.columns);
        INFO(s.rows << " x " << s.columns << " x " << s.inner << (a_turned ? " a^T" : "") << (b_turned ? " b^T" : ""));
        CHECK(got == meant);
        CHECK(packed == meant);
      }
}

TEST_CASE("products of bf16 in pairs are their definition where there is AVX-512") {
  if (tile_products().name.find("avx512") == std::string::npos) {
    WARN("skipped: " << tile_products().name);
    SUCCEED();
    return;
  }
  check_all<c10::BFloat16, float>([](auto... arguments) { gemm_by_pairs(arguments...); });
}

TEST_CASE("a first factor of odd rows with a zero behind each is not copied, and what stood there says nothing") {
  constexpr int64_t kRows = 5, kStride = 16, kColumns = 9;
  for (const int64_t inner : {1, 7, 8, 15, 16}) {
    CAPTURE(inner);
    std::vector<c10::BFloat16> a(kRows * kStride, std::numeric_limits<c10::BFloat16>::quiet_NaN()),
        b(static_cast<size_t>(inner * kColumns), c10::BFloat16(0.5F));
    for (int64_t i = 0; i < kRows; ++i) std::fill_n(a.data() + i * kStride, inner, c10::BFloat16(2.0F));
    const Operand<c10::BFloat16> rows = with_zero_behind(a.data(), kRows, inner, kStride);
    CHECK(rows.zero_behind == (inner % 2 == 1));
    std::vector<float> c(kRows * kColumns);
    gemm(kRows, kColumns, inner, 1, rows, {b.data(), kColumns}, 0, c.data(), kColumns);
    CHECK(c == std::vector<float>(c.size(), static_cast<float>(inner)));
  }
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
  // Also by pairs, whose alpha comes last.
  const Operand<c10::BFloat16> nothing{nullptr, 2};
  gemm_by_pairs(2, 2, 0, 4.0F, nothing, nothing, 0.5F, c.data(), 2);
  CHECK(c == std::vector<float>{1, 2, 3, 4});
  product(2, 2, 0, 0);
  CHECK(c == std::vector<float>{0, 0, 0, 0});
}

TEST_CASE("products count their FLOPs once, whatever they are made of") {
  const OpCounter counter;
  static_cast<void>(wrong<float, float>(kProduct, {3, 5, 7}, false, true, 1, 0, 0));
  CHECK(counter.counts().flops == 2 * 3 * 5 * 7);
  static_cast<void>(wrong<c10::BFloat16, float>(kProduct, {3, 5, 7}, true, false, 1, 1, 0));
  CHECK(counter.counts().flops == 2 * 2 * 3 * 5 * 7);
}

TEST_CASE("lengths that change need code for few shapes, which is made once and by any thread") {
  if (!tile_products().available) {
    WARN("skipped: " << tile_products().note);
    SUCCEED();
    return;
  }
  const std::vector<float> numbers(700 * 64, 1);
  std::vector<float> c(64 * 64);
  const auto all = [&] {
    for (int64_t n = 1; n <= 700; ++n)
      gemm(64, 64, n, 1, Operand<float>{numbers.data(), 700}, Operand<float>{numbers.data(), 64}, 0, c.data(), 64);
  };
  const int64_t before = tile_products_made();
  all();
  const int64_t made = tile_products_made() - before;
  CHECK((made > 0 && made <= 2 * 64));  // 1 to 48, multiples of 16 up to 256: into c, and on top of it
  all();
  CHECK(tile_products_made() == before + made);

  std::vector<std::vector<TileProduct>> found(4);
  std::vector<std::thread> threads;
  for (auto& mine : found)
    threads.emplace_back([&mine] {
      for (int32_t i = 0; i < 1500; ++i) mine.push_back(tile_product({1 + i % 2, 1 + i / 2 % 2, 1, 1000 + i, 2, 2}));
    });
  for (std::thread& thread : threads) thread.join();
  CHECK((found[1] == found[0] && found[2] == found[0] && found[3] == found[0]));
  CHECK(std::set<TileProduct>(found[0].begin(), found[0].end()).size() == 1500);
}

TEST_CASE("what multiplied is told, and --kernels=blas keeps to LibTorch's BLAS") {
  const auto told = [](Policy wanted) {
    const PolicyScope scope(wanted);
    reset_products();
    static_cast<void>(wrong<float, float>(kProduct, {3, 5, 7}, false, false, 1, 0, 0));
    return products_run();
  };
  CHECK(told(Policy::kAuto) == (tile_products().available ? tile_products().name : "mkl"));
  CHECK(told(Policy::kBlas) == "mkl");
  if (tile_products().unit) {
    reset_products();
    static_cast<void>(wrong<c10::BFloat16, float>(kProduct, {5, 5, 7}, false, false, 1, 0, 0));
    CHECK(products_run() == "amx-bf16");
  }
  reset_products();
  CHECK(products_run().empty());
}

// Started by the next test in a process of its own.
TEST_CASE("child: what this process multiplies with", "[.child]") {
  constexpr int kRefuseNewCode = 65;  // PR_SET_MDWE of Linux 6.3
  if (std::getenv("NO_NEW_CODE") != nullptr && ::prctl(kRefuseNewCode, 1, 0, 0, 0) != 0) {
    std::puts("too old a kernel");
    return;
  }
  static_cast<void>(wrong<float, float>(kProduct, {40, 50, 60}, false, true, 0.25, 1, 3));
  static_cast<void>(wrong<c10::BFloat16, float>(kProduct, {40, 50, 60}, false, true, 0.25, 1, 3));
  std::printf("ran %s; %s\n", products_run().c_str(), tile_products().note.c_str());
  check_all<float, float>(kProduct);
  check_all<c10::BFloat16, float>(kProduct);
}

std::string child_says(const std::string& environment) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = "env -u LIBXSMM_TARGET " + environment + " '" + self + "' '[.child]' 2>&1";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  std::string text;
  for (int one; (one = std::fgetc(pipe.get())) != EOF;) text += static_cast<char>(one);
  INFO(text);
  CHECK(text.find("All tests passed") != std::string::npos);
  return text;
}

TEST_CASE("LIBXSMM_TARGET and a system without new code decide what multiplies, and every choice multiplies well") {
  if (child_says("").find("ran libxsmm") == std::string::npos) {
    WARN("skipped: no AVX2");
    SUCCEED();
    return;
  }
  CHECK_THAT(child_says("LIBXSMM_TARGET=hsw"), Catch::Contains("ran libxsmm 1.17, avx2; \n"));
  CHECK_THAT(child_says("LIBXSMM_TARGET=snb"), Catch::Contains("ran mkl; \n"));
  CHECK_THAT(child_says("LIBXSMM_TARGET=zen"), Catch::Contains("LIBXSMM_TARGET=zen is no name that is known here"));
  const std::string pairs = child_says("LIBXSMM_TARGET=cpx"), unit = child_says("LIBXSMM_TARGET=spr");
  if (tile_products().pairs) CHECK_THAT(pairs, Catch::Contains("ran libxsmm 1.17, avx512-bf16; \n"));
  else CHECK_THAT(pairs, Catch::Contains("LIBXSMM_TARGET=cpx is more than this processor has"));
  if (tile_products().unit) CHECK_THAT(unit, Catch::Contains("ran libxsmm 1.17, avx512-bf16+amx-bf16; \n"));
  else CHECK_THAT(unit, Catch::Contains("LIBXSMM_TARGET=spr is more than this processor has"));
  const std::string refused = child_says("NO_NEW_CODE=1");
  if (refused.find("too old a kernel") != std::string::npos) {
    WARN("skipped: a kernel without PR_SET_MDWE");
    return;
  }
  CHECK_THAT(refused, Catch::Contains("ran mkl; products go through LibTorch's BLAS"));
}

}  // namespace xformer::kernels::gemm_test
