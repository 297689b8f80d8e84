// nystromformer (attention-core 3.13).
#include "attention/support.h"

namespace xformer::attention::nystromformer_test {

using namespace support;

// softmax of scores[i][j] over the columns that `allowed` names; zero rows where `rows` says so.
at::Tensor softmax_in_loops(const at::Tensor& scores, const std::vector<bool>& allowed, const std::vector<bool>& rows) {
  at::Tensor result = at::zeros_like(scores);
  for (int64_t i = 0; i < scores.size(0); ++i) {
    double sum = 0;
    for (int64_t j = 0; j < scores.size(1); ++j)
      if (allowed[static_cast<size_t>(j)] && rows[static_cast<size_t>(i)]) sum += std::exp(scores[i][j].item<double>());
    for (int64_t j = 0; j < scores.size(1); ++j)
      if (allowed[static_cast<size_t>(j)] && rows[static_cast<size_t>(i)])
        result[i][j] = std::exp(scores[i][j].item<double>()) / sum;
  }
  return result;
}

// One matrix at a time, with m segments of ceil(n / m) tokens, the last ones perhaps empty. kernel [h,c].
at::Tensor reference(const Inputs& in, const SequenceMask& mask, int64_t m, const at::Tensor& kernel,
                     int64_t iterations = 6) {
  const int64_t b = in.q.size(0), h = in.q.size(1), n = in.q.size(2), d = in.q.size(3), segment = (n + m - 1) / m;
  at::Tensor out = at::zeros_like(in.q);
  for (int64_t s = 0; s < b; ++s)
    for (int64_t g = 0; g < h; ++g) {
      const at::Tensor q = in.q[s][g] / std::pow(d, 0.25), k = in.k[s][g] / std::pow(d, 0.25), v = in.v[s][g];
      std::vector<bool> valid, landmark(static_cast<size_t>(m), false), all(static_cast<size_t>(n), true);
      at::Tensor short_q = at::zeros({m, d}, at::kDouble), short_k = short_q.clone(),
                 count = at::zeros({m}, at::kDouble);
      for (int64_t i = 0; i < n; ++i) {
        valid.push_back(mask.all_valid() || mask.key_valid[s][i].item<bool>());
        if (!valid.back()) continue;
        landmark[static_cast<size_t>(i / segment)] = true;
        short_q[i / segment] += q[i];
        short_k[i / segment] += k[i];
        count[i / segment] += 1;
      }
      short_q /= count.clamp_min(1).unsqueeze(1);
      short_k /= count.clamp_min(1).unsqueeze(1);
      const at::Tensor f1 = softmax_in_loops(at::mm(q, short_k.t()), landmark, all);
      const at::Tensor f2 = softmax_in_loops(at::mm(short_q, short_k.t()), landmark, landmark);
      const at::Tensor f3 = softmax_in_loops(at::mm(short_q, k.t()), valid, landmark);
      const double norms = f2.sum(0).max().item<double>() * f2.sum(1).max().item<double>();
      at::Tensor z = f2.t() / (norms == 0 ? 1 : norms);
      const at::Tensor one = at::eye(m, at::kDouble);
      for (int64_t i = 0; i < iterations; ++i) {
        const at::Tensor p = at::mm(f2, z);
        z = at::mm(z, 13 * one - at::mm(p, 15 * one - at::mm(p, 7 * one - p))) / 4;
      }
      out[s][g] += at::mm(at::mm(f1, z), at::mm(f3, v));
      for (int64_t i = 0; i < n; ++i)
        for (int64_t c = 0; c < kernel.size(1); ++c) {
          const int64_t j = i + c - kernel.size(1) / 2;
          if (j >= 0 && j < n && valid[static_cast<size_t>(j)]) out[s][g][i] += kernel[g][c] * v[j];
        }
    }
  return out;
}

at::Tensor kernel_of(const BuiltCore& core) { return core.module->parameters()[0].data(); }

at::Tensor kernel_rows(const BuiltCore& core) { return kernel_of(core).squeeze(3).squeeze(1); }  // [h,c]

const at::Tensor kNone = at::zeros({2, 0}, at::kDouble);

TEST_CASE("nystromformer equals its equations in loops, for ragged lengths, empty segments and length 1") {
  // 12 and 14 tokens to 4 and 3 segments; 13 to 6 of 3 tokens, the last of them beyond the end.
  for (const auto& [n, m] : std::vector<std::pair<int64_t, int64_t>>{{12, 4}, {14, 3}, {13, 6}, {1, 1}})
    for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{n, (n + 1) / 2}, {1, 0}}) {
      INFO(n << " tokens, " << m << " landmarks, " << lengths[1] << " valid");
      const Inputs in = random_inputs(2, 2, n, 5);
      const SequenceMask mask = length_mask(lengths, n);
      const BuiltCore core = make_core("nystromformer", {{"landmarks", m}, {"conv_kernel", 3}});
      const at::Tensor wanted = reference(in, mask, m, kernel_rows(core));
      // With one segment per token the core takes softmax itself, which the iteration only approaches.
      CHECK(max_difference(valid_rows(core(in.q, in.k, in.v, mask), mask), valid_rows(wanted, mask)) < 1e-10);
      CHECK(max_difference(core(in.q, in.k, in.v), reference(in, {}, m, kernel_rows(core))) < 1e-10);
    }
}

TEST_CASE("nystromformer with as many landmarks as tokens is softmax plus the convolution") {
  const Inputs in = random_inputs(2, 2, 12, 5);
  const SequenceMask mask = length_mask({12, 7}, 12);
  for (const int64_t m : {12, 99}) {
    const BuiltCore core = make_core("nystromformer", {{"landmarks", m}, {"conv_kernel", 0}});
    CHECK(core.parameters().empty());
    const auto same = [&](const at::Tensor& got, const at::Tensor& wanted) {
      return max_difference(valid_rows(got, mask), valid_rows(wanted, mask)) < 1e-10;
    };
    CHECK(same(core(in.q, in.k, in.v, mask), dense_softmax(in, mask)));
    const BuiltCore with = make_core("nystromformer", {{"landmarks", m}, {"conv_kernel", 5}});
    const at::Tensor conv = reference(in, mask, 3, kernel_rows(with)) - reference(in, mask, 3, kNone);
    CHECK(same(with(in.q, in.k, in.v, mask), dense_softmax(in, mask) + conv));
  }
}

TEST_CASE("nystromformer comes to softmax as it iterates, where queries and keys are constant within segments") {
  const Inputs small = random_inputs(2, 2, 8, 5);
  const auto spread = [](const at::Tensor& x) { return x.repeat_interleave(3, 2); };
  const Inputs in{spread(small.q), spread(small.k), random_tensor("values", {2, 2, 24, 5})};
  const auto error = [&](int64_t iterations) {
    const BuiltCore core =
        make_core("nystromformer", {{"landmarks", 8}, {"conv_kernel", 0}, {"inverse_iterations", iterations}});
    return max_difference(core(in.q, in.k, in.v), dense_softmax(in));
  };
  const double six = error(6), twelve = error(12), many = error(30);
  INFO("errors " << six << " " << twelve << " " << many);
  CHECK(six > 1e-4);
  CHECK(twelve < six / 2);
  CHECK(many < 1e-10);
}

TEST_CASE("nystromformer's empty segments are no landmarks") {
  // Padding that leaves the length of segments alone: 8 of 16 tokens in segments of 4, against 8 alone.
  const Inputs in = random_inputs(1, 2, 16, 5);
  const auto first = [](const at::Tensor& x) { return x.narrow(2, 0, 8); };
  const at::Tensor padded = make_core("nystromformer", {{"landmarks", 4}})(in.q, in.k, in.v, length_mask({8}, 16));
  const at::Tensor alone = make_core("nystromformer", {{"landmarks", 2}})(first(in.q), first(in.k), first(in.v));
  CHECK(max_difference(first(padded), alone) < 1e-10);
}

TEST_CASE("nystromformer's convolution goes on over blocks, with a kernel longer than a block and than the sequence") {
  for (const int64_t n : {1, 31, 33, 70})
    for (const int64_t size : {1, 5, 41}) {
      INFO(n << " tokens, kernel of " << size);
      const Inputs in = random_inputs(1, 2, n, 3);
      const SequenceMask mask = length_mask({n}, n);
      const BuiltCore core = make_core("nystromformer", {{"landmarks", 1}, {"conv_kernel", size}}, {.head_dim = 3});
      CHECK(max_difference(core(in.q, in.k, in.v, mask), reference(in, mask, 1, kernel_rows(core))) < 1e-10);
    }
}

TEST_CASE("nystromformer with a delta as kernel adds the values") {
  const Inputs in = random_inputs(2, 2, 20, 5);
  const BuiltCore without = make_core("nystromformer", {{"landmarks", 4}, {"conv_kernel", 0}}),
                  with = make_core("nystromformer", {{"landmarks", 4}, {"conv_kernel", 7}});
  kernel_of(with).zero_().select(2, 3).fill_(1);
  CHECK(max_difference(with(in.q, in.k, in.v), without(in.q, in.k, in.v) + in.v) < 1e-12);
}

TEST_CASE("nystromformer golden number") {
  // One landmark: F1 = F2 = 1, and every row is softmax of the mean query, here 1: weights 1/4 and 3/4 of 0 and 4.
  const BuiltCore core = make_core("nystrom", {{"landmarks", 1}, {"conv_kernel", 0}}, {.heads = 1, .head_dim = 1});
  const at::Tensor out = core(column({0, 2}), column({0, std::log(3.0)}), column({0, 4}));
  for (int64_t i = 0; i < 2; ++i) CHECK(out[0][0][i][0].item<double>() == Approx(3));
}

TEST_CASE("nystromformer has the parameters of attention-core 7 and refuses a kernel without a middle") {
  int64_t count = 0;
  for (const auto& [key, value] : make_mixer("nystromformer", {}, {.head_dim = 32, .max_len = 2048}).parameters())
    count += value.numel();
  CHECK(count == 16640 + 2 * 35);
  CHECK_THROWS_AS(make_core("nystromformer", {{"conv_kernel", 4}}), UserError);
}

}  // namespace xformer::attention::nystromformer_test
