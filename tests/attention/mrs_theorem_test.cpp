// MrsFormer supplement B, theorem 1: how far multi-resolution attention is from attention, and how far the printed
// bound is from true.
//
// A [n,n] with |A_ij - A_i'j'| <= delta between neighbours, Abar its means over blocks of s x s'. Each block's values
// lie within (s + s' - 2) delta of each other, so by Popoviciu their variance is at most ((s + s' - 2) delta)^2 / 4,
// and the sum of squares over a block is s s' times that; over the n^2 / (s s') blocks together
//   |A - Abar|_F <= (s + s' - 2) n delta / 2.
// The supplement leaves the factor s s' out and prints a bound smaller by sqrt(s s').
#include <algorithm>
#include <cmath>

#include "attention/support.h"
#include "tensor/sequence_mask.h"

namespace xformer::attention::mrs_theorem_test {

using namespace support;

namespace {

// Means over blocks, spread over the blocks again.
at::Tensor block_means(const at::Tensor& a, int64_t s, int64_t t) {
  const int64_t n = a.size(0);
  const at::Tensor means = a.view({n / s, s, n / t, t}).mean(at::IntArrayRef{1, 3});
  return means.repeat_interleave(s, 0).repeat_interleave(t, 1);
}

// Largest difference of neighbours in a row or a column.
double roughness(const at::Tensor& a) {
  return std::max(a.diff(1, 0).abs().max().item<double>(), a.diff(1, 1).abs().max().item<double>());
}

double frobenius(const at::Tensor& a) { return a.norm().item<double>(); }

double spectral(const at::Tensor& a) { return at::linalg_matrix_norm(a, 2).item<double>(); }

// Row-stochastic and smooth: weights of attention over slowly turning queries and keys.
at::Tensor smooth_attention(int64_t n, double turns, const std::string& name) {
  const at::Tensor phase = at::arange(n, at::kDouble) * (2 * M_PI * turns / static_cast<double>(n));
  const at::Tensor at_point = at::stack({phase.sin(), phase.cos()}, 1);
  const at::Tensor mixing = random_tensor(name, {2, 2}) * 2;
  return at::softmax(at_point.mm(mixing).mm(at_point.t()), 1);
}

}  // namespace

TEST_CASE("the corrected bound of MrsFormer's theorem holds, and attention at a lower resolution is that near") {
  for (const int64_t n : {24, 64, 96})
    for (const auto& [s, t] :
         std::vector<std::pair<int64_t, int64_t>>{{2, 2}, {4, 4}, {8, 8}, {2, 4}, {8, 2}, {3, 3}}) {
      if (n % s != 0 || n % t != 0) continue;
      for (int trial = 0; trial < 5; ++trial) {
        INFO("n " << n << ", s " << s << ", s' " << t << ", trial " << trial);
        const at::Tensor a = smooth_attention(n, 1 + trial, "mixing" + std::to_string(trial));
        const at::Tensor means = block_means(a, s, t);
        const double bound = static_cast<double>((s + t - 2) * n) * roughness(a) / 2;
        CHECK(frobenius(a - means) <= bound);
        const at::Tensor v = random_tensor("v", {n, 7});
        CHECK(frobenius(a.mm(v) - means.mm(v)) <= frobenius(a - means) * spectral(v) * (1 + 1e-12));
      }
    }
}

TEST_CASE("the heads' own pooling and repeating are the theorem's block means") {
  const int64_t n = 24, s = 4;
  const at::Tensor a = smooth_attention(n, 2, "mixing"), v = random_tensor("v", {n, 5});
  // H = repeat_s(mean-block(A) (s V pooled)): V's rows are summed over a group, A's entries averaged over a block.
  const at::Tensor pooled = pool_tokens(v.view({1, 1, n, 5}), {}, s);
  const at::Tensor coarse = a.view({n / s, s, n / s, s}).mean(at::IntArrayRef{1, 3});
  const at::Tensor head = repeat_tokens(at::matmul(coarse, pooled * s), n, s);
  CHECK(max_difference(head[0][0], block_means(a, s, s).mm(v)) < 1e-12);
}

TEST_CASE("the bound as printed fails") {
  // Row-stochastic: n = 64, s = s' = 2, A_ij = 1/n + delta g((i + j) mod 32), g the triangle wave 0, 8, 0, -8 of slope
  // one.
  const int64_t n = 64;
  const double delta = 0.999 / 512;
  at::Tensor a = at::empty({n, n}, at::kDouble);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) {
      const double place = static_cast<double>((i + j) % 32);
      const double wave = place < 8 ? place : place < 24 ? 16 - place : place - 32;
      a[i][j] = 1 / static_cast<double>(n) + delta * wave;
    }
  REQUIRE(a.min().item<double>() >= 0);
  REQUIRE(max_difference(a.sum(1), at::ones({n}, at::kDouble)) < 1e-12);
  REQUIRE(roughness(a) == Approx(delta));
  const double distance = frobenius(a - block_means(a, 2, 2));
  const double corrected = 2 * n * delta / 2, printed = corrected / 2;
  CHECK(distance == Approx(0.0883).margin(5e-5));
  CHECK(printed == Approx(0.0624).margin(5e-5));
  CHECK(distance > printed);
  CHECK(distance <= corrected);
}

}  // namespace xformer::attention::mrs_theorem_test
