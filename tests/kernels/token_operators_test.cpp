// Operators along the sequence (projection, convolution, pooling, mean) against their references.
#include "core/random.h"
#include "fused_support.h"
#include "kernels/landmark_weights/landmark_weights.h"
#include "kernels/pooling/pooling.h"
#include "kernels/pseudo_inverse/pseudo_inverse.h"
#include "kernels/token_convolution/token_convolution.h"
#include "kernels/token_mean/token_mean.h"
#include "kernels/token_projection/token_projection.h"

namespace xformer::kernels {

namespace {

// Sample 0 whole, the others prefixes, or with holes; the last may be empty.
SequenceMask mask_of(int64_t b, int64_t n, bool holes) {
  Stream numbers(static_cast<uint64_t>(7 * b + n));
  at::Tensor valid = at::zeros({b, n}, at::kBool);
  for (int64_t row = 0; row < b; ++row) {
    const auto length = row == 0 ? n : static_cast<int64_t>(numbers.next_below(static_cast<uint64_t>(n + 1)));
    for (int64_t i = 0; i < length; ++i) valid[row][i] = !holes || row == 0 || numbers.next_below(4) > 0;
  }
  return {valid, false};
}

// [b,h,n,2,d] packed, of which x and y are views with neighbouring rows.
at::Tensor packed(int64_t b, int64_t h, int64_t n, int64_t d, at::ScalarType type) {
  return random_tensor("packed", {b, n, h, 2, d}, type);
}

}  // namespace

TEST_CASE("project_tokens equals its reference, with gradients") {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    for (const auto& [b, h, n, longest, d, rows, heads] :
         std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t>>{
             {1, 1, 1, 1, 1, 1, 1}, {3, 2, 29, 40, 5, 7, 2}, {4, 3, 300, 300, 8, 16, 1}, {2, 2, 513, 600, 4, 9, 2}}) {
      for (const int kind : {0, 1, 2}) {
        const SequenceMask mask = kind == 0 ? SequenceMask{} : mask_of(b, n, kind == 2);
        CAPTURE(b, h, n, kind);
        const auto with = [&, mask](auto* operation, bool views) {
          return [=](const Tensors& x) {
            const TokenMixtures mixtures =
                views ? operation(x[0], x[1].select(3, 0).transpose(1, 2), x[1].select(3, 1).transpose(1, 2), mask)
                      : operation(x[0], x[1], x[2], mask);
            return Tensors{mixtures.x, mixtures.y};
          };
        };
        const at::Tensor table = random_tensor("table", {heads, rows, longest}, type);
        const Tensors apart{table, random_tensor("x", {b, h, n, d}, type), random_tensor("y", {b, h, n, d}, type)};
        const double tolerance = type == at::kDouble ? 1e-12 : 2e-5;
        CHECK(worst_difference(with(&project_tokens, false), with(&project_tokens_reference, false), apart) <
              tolerance);
        CHECK(worst_difference(with(&project_tokens, true), with(&project_tokens_reference, true),
                               {table, packed(b, h, n, d, type)}) < tolerance);
        const auto alone = [&, mask](auto* operation) {
          return [=](const Tensors& x) { return Tensors{operation(x[0], x[1], at::Tensor(), mask).x}; };
        };
        CHECK(worst_difference(alone(&project_tokens), alone(&project_tokens_reference), {table, apart[1]}) <
              tolerance);
      }
    }
  }
}

TEST_CASE("convolve_tokens equals its reference, with gradients") {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    for (const auto& [b, h, n, d, taps] : std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>>{
             {1, 1, 1, 1, 1}, {2, 2, 7, 3, 35}, {3, 2, 130, 32, 35}, {2, 1, 64, 40, 5}}) {
      for (const int kind : {0, 1, 2}) {
        const SequenceMask mask = kind == 0 ? SequenceMask{} : mask_of(b, n, kind == 2);
        CAPTURE(b, h, n, taps, kind);
        const auto with = [&, mask](auto* operation) {
          return [=](const Tensors& x) { return Tensors{operation(x[0], x[1], x[2], mask)}; };
        };
        CHECK(worst_difference(with(&convolve_tokens), with(&convolve_tokens_reference),
                               {random_tensor("base", {b, h, n, d}, type), random_tensor("x", {b, h, n, d}, type),
                                random_tensor("w", {h, taps}, type)}) < (type == at::kDouble ? 1e-12 : 2e-5));
      }
    }
  }
}

TEST_CASE("convolve_tokens is the sum that its header states") {
  const at::Tensor x = random_tensor("x", {1, 2, 9, 3}), w = random_tensor("w", {2, 5}), base = at::ones_like(x);
  const at::Tensor got = convolve_tokens(base, x, w, {});
  for (int64_t h = 0; h < 2; ++h)
    for (int64_t i = 0; i < 9; ++i) {
      at::Tensor sum = at::ones({3}, at::kDouble);
      for (int64_t t = 0; t < 5; ++t)
        if (i + t - 2 >= 0 && i + t - 2 < 9) sum = sum + w[h][t] * x[0][h][i + t - 2];
      CHECK(difference(got[0][h][i], sum) < 1e-14);
    }
}

TEST_CASE("convolve_tokens is zero where the mask says so") {
  const SequenceMask mask = mask_of(3, 50, true);
  const at::Tensor base = at::ones({3, 2, 50, 40}), x = random_tensor("x", {3, 2, 50, 40}, at::kFloat);
  const at::Tensor padded = mask.key_valid.logical_not().view({3, 1, 50, 1});
  for (const at::Tensor& got : {convolve_tokens(base, x, at::ones({2, 35}), mask),
                                convolve_tokens_reference(base, x, at::ones({2, 35}), mask)}) {
    CHECK(got.masked_select(padded).abs().max().item<double>() == 0);
    CHECK(got.masked_select(padded.logical_not()).abs().min().item<double>() > 0);
  }
}

TEST_CASE("token_mean equals its reference, with gradients, and reads nothing that does not count") {
  for (const at::ScalarType type : {at::kDouble, at::kFloat})
    for (const auto& [b, n, d, pinned] : std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t>>{
             {1, 1, 1, 0}, {3, 5, 7, 2}, {2, 511, 64, 0}, {2, 512, 70, 1}, {3, 1500, 65, 600}})
      for (const int kind : {0, 1, 2, 3})
        for (const bool padded : {false, true}) {
          at::Tensor valid = kind == 0 ? at::Tensor() : mask_of(b, n, kind >= 2).key_valid;
          if (kind == 3) valid[0].fill_(false);
          const TokenMeanOptions options{valid, pinned, padded};
          CAPTURE(b, n, d, pinned, kind, padded);
          const auto with = [&](auto* operation) {
            return [=](const Tensors& x) { return Tensors{operation(x[0], options)}; };
          };
          const Tensors x{random_tensor("x", {b, n, d}, type)};
          CHECK(worst_difference(with(&token_mean), with(&token_mean_reference), x) <
                (type == at::kDouble ? 1e-13 : 2e-6));
          at::Tensor counts = valid.defined() ? valid.clone() : at::ones({b, n}, at::kBool);
          counts.narrow(1, 0, pinned).fill_(false);
          const Tensors clean = run_with_gradients(with(&token_mean), x),
                        lost = run_with_gradients(with(&token_mean),
                                                  {x[0].masked_fill(counts.logical_not().unsqueeze(-1), NAN)});
          for (size_t i = 0; i < clean.size(); ++i) CHECK(at::equal(clean[i], lost[i]));
        }
}

TEST_CASE("pseudo_inverse equals its reference, with gradients") {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    for (const auto& [b, h, m] :
         std::vector<std::tuple<int64_t, int64_t, int64_t>>{{1, 1, 1}, {2, 3, 2}, {3, 2, 17}, {4, 2, 64}}) {
      for (const int kind : {0, 1, 2}) {
        for (const int64_t iterations : {1, 6}) {
          const SequenceMask mask = kind == 0 ? SequenceMask{} : mask_of(b, m, kind == 2);
          CAPTURE(b, h, m, kind, iterations);
          const auto with = [&, mask, iterations](auto* operation) {
            // Rows that sum to one, as those of attention; near enough to the unit matrix to have an inverse.
            return [=](const Tensors& x) {
              const at::Tensor logits = x[0] + 3 * at::eye(x[0].size(2), x[0].options());
              return Tensors{operation(at::softmax(logits, -1), mask, iterations)};
            };
          };
          CHECK(worst_difference(with(&pseudo_inverse), with(&pseudo_inverse_reference),
                                 {random_tensor("a", {b, h, m, m}, type)}) < (type == at::kDouble ? 1e-11 : 1e-4));
        }
      }
    }
  }
}

TEST_CASE("landmark_weights equal softmax of their products, with gradients, zero where no landmark is") {
  for (const at::ScalarType type : {at::kDouble, at::kFloat})
    for (const int64_t m : {1, 2, 17, 64, 70})
      for (const int kind : {0, 1, 2}) {
        CAPTURE(m, kind);
        const SequenceMask mask = kind == 0 ? SequenceMask{} : mask_of(4, m, kind == 2);
        const auto ours = [&](const Tensors& x) { return Tensors{landmark_weights(x[0], x[1], 0.3, mask)}; };
        const auto reference = [&](const Tensors& x) {
          const at::Tensor scores = at::matmul(x[0] * 0.3, x[1].transpose(2, 3));
          return Tensors{mask.zero_padding(masked_softmax(scores, mask))};
        };
        // Large scores, and rows between those of other heads.
        const Tensors x{random_tensor("q", {4, m, 2, 5}, type).transpose(1, 2) * 20,
                        random_tensor("k", {4, m, 2, 5}, type).transpose(1, 2) * 20};
        CHECK(worst_difference(ours, reference, x) < (type == at::kDouble ? 1e-12 : 1e-4));
      }
}

TEST_CASE("pseudo_inverse is an inverse, of valid landmarks alone, and of zeros zero") {
  const SequenceMask mask{at::tensor({1, 0, 1, 1}).to(at::kBool).view({1, 4}), false};
  const at::Tensor a = at::softmax(random_tensor("a", {1, 1, 4, 4}), -1), kept = at::tensor({0, 2, 3});
  const at::Tensor got = pseudo_inverse(a, mask, 30).index_select(2, kept).index_select(3, kept);
  const at::Tensor small = a.index_select(2, kept).index_select(3, kept);
  CHECK(difference(at::matmul(small, got), at::eye(3, at::kDouble).view({1, 1, 3, 3})) < 1e-10);
  CHECK(pseudo_inverse(a, mask, 30).select(2, 1).abs().max().item<double>() == 0);
  // The largest sum is shared by all columns: so is its gradient.
  const auto with = [](auto* operation) {
    return [=](const Tensors& x) { return Tensors{operation(x[0], SequenceMask{}, 2)}; };
  };
  for (const at::Tensor& even : {at::full({1, 1, 3, 3}, 1.0 / 3, at::kDouble), at::zeros({1, 1, 3, 3}, at::kDouble)})
    CHECK(worst_difference(with(&pseudo_inverse), with(&pseudo_inverse_reference), {even}) < 1e-12);
}

TEST_CASE("pool_beside pools and passes on, and adds the gradients of both, or of the one that is used") {
  for (const int64_t n : {1, 2, 7, 30, 100})
    for (const int64_t scale : {1, 2, 5})
      for (const int kind : {0, 1, 2})
        for (const std::vector<size_t>& used : std::vector<std::vector<size_t>>{{0, 1}, {0}, {1}}) {
          CAPTURE(n, scale, kind, used);
          const SequenceMask mask = kind == 0 ? SequenceMask{} : mask_of(3, n, kind == 2);
          const auto some = [&](const Tensors& all) {
            Tensors result;
            for (const size_t i : used) result.push_back(all[i] * static_cast<double>(2 + i));
            return result;
          };
          const auto run = [&](const Tensors& x) {
            const PooledBeside made = pool_beside(x[0], mask, scale);
            return some({made.pooled, made.x});
          };
          const auto reference = [&](const Tensors& x) {
            return some({pool_heads_reference(x[0], mask, {{scale, {0, 1, 2, 3}}}).front(), x[0]});
          };
          // Heads as a projection leaves them, between those of others.
          const Tensors inputs{random_tensor("x", {3, n, 4, 5}).transpose(1, 2)};
          CHECK(worst_difference(run, reference, inputs) < 1e-13);
          CHECK(worst_difference(run, reference, {inputs[0].to(at::kFloat)}) < 1e-5);
        }
}

TEST_CASE("pool_beside adds to a gradient that somebody else has in a copy") {
  const at::Tensor x = random_tensor("x", {2, 6, 4, 5}).transpose(1, 2).requires_grad_();
  const at::Tensor pooled = random_tensor("pooled", {2, 4, 3, 5}), rows = random_tensor("rows", {2, 6, 4, 5});
  const at::Tensor past = at::empty_strided({2, 4, 6, 5}, {120, 5, 20, 1}, rows.options()).copy_(rows.transpose(1, 2)),
                   before = past.clone(), wanted = before + pooled.repeat_interleave(2, 2) / 2;
  const auto found = [&](const PooledBeside& made, const at::Tensor& of_x) {
    return torch::autograd::grad({made.pooled, made.x}, {x}, {pooled, of_x})[0];
  };
  CHECK(at::allclose(found(pool_beside(x, {}, 2), past), wanted, 0, 1e-14));
  CHECK(at::equal(past, before));
  // A view that nobody else has, of memory that somebody does.
  const at::Tensor kept = rows.clone();
  const PooledBeside made = pool_beside(x, {}, 2);
  made.x.register_hook([&](const at::Tensor&) { return rows.transpose(1, 2); });
  CHECK(at::allclose(found(made, past), wanted, 0, 1e-14));
  CHECK(at::equal(rows, kept));
}

TEST_CASE("pool_heads and repeat_heads equal their references, with gradients") {
  const std::vector<std::vector<HeadGroup>> plans{
      {{2, {0, 1}}}, {{1, {0}}, {2, {1}}}, {{1, {1, 3}}, {3, {0}}, {5, {2}}}, {{2, {0, 1, 3}}, {4, {2}}}};
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    for (const auto& groups : plans) {
      for (const int64_t n : {1, 2, 7, 30}) {
        for (const int kind : {0, 1, 2}) {
          for (const int64_t pinned : {0, 1}) {
            int64_t h = 0;
            for (const HeadGroup& group : groups) h += static_cast<int64_t>(group.heads.size());
            const SequenceMask mask = kind == 0 ? SequenceMask{} : mask_of(3, n, kind == 2);
            const double tolerance = type == at::kDouble ? 1e-13 : 1e-5;
            CAPTURE(n, h, kind, pinned);
            CHECK(worst_difference([&](const Tensors& x) { return pool_heads(x[0], mask, groups, pinned); },
                                   [&](const Tensors& x) { return pool_heads_reference(x[0], mask, groups, pinned); },
                                   {random_tensor("x", {3, h, n, 5}, type)}) < tolerance);
            Tensors pooled;
            for (const HeadGroup& group : groups)
              pooled.push_back(random_tensor(
                  "pooled" + std::to_string(pooled.size()),
                  {3, static_cast<int64_t>(group.heads.size()), pooled_len(n, group.scale, pinned), 5}, type));
            CHECK(worst_difference(
                      [&](const Tensors& x) { return Tensors{repeat_heads(x, n, groups, pinned)}; },
                      [&](const Tensors& x) { return Tensors{repeat_heads_reference(x, n, groups, pinned)}; },
                      pooled) < tolerance);
          }
        }
      }
    }
  }
}

}  // namespace xformer::kernels
