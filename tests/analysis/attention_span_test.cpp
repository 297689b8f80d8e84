// Spans against the definition, written with loops; matrices of weights against softmax's and linear attention's.
#include "analysis/attention_span.h"

#include <ATen/Functions.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "attention/descriptor.h"
#include "scratch.h"

namespace xformer::analysis {

namespace {

LayerTensors tensors_of(int64_t sequences, int64_t heads, int64_t n, int64_t d) {
  const auto numbers = [&](double shift) {
    return at::arange(static_cast<double>(sequences * heads * n * d), at::kDouble)
        .mul(0.7)
        .add(shift)
        .sin()
        .reshape({sequences, heads, n, d})
        .to(at::kFloat);
  };
  return {numbers(0), numbers(1), {}, {}, at::ones({sequences, n}, at::kBool), 0};
}

// sum_i sum_j A_ij |i - j| over valid places, divided by the valid queries.
double by_definition(const LayerTensors& tensors, int64_t sequence, int64_t head, int64_t first) {
  const int64_t n = tensors.q.size(2), d = tensors.q.size(3);
  const auto q = tensors.q.accessor<float, 4>(), k = tensors.k.accessor<float, 4>();
  const auto valid = tensors.valid.accessor<bool, 2>();
  double sum = 0, queries = 0;
  for (int64_t i = first; i < n; ++i) {
    if (!valid[sequence][i]) continue;
    double weighted = 0, norm = 0;
    for (int64_t j = first; j < (tensors.causal ? i + 1 : n); ++j) {
      if (!valid[sequence][j]) continue;
      double score = 0;
      for (int64_t c = 0; c < d; ++c) score += double{q[sequence][head][i][c]} * double{k[sequence][head][j][c]};
      const double weight = std::exp(score / std::sqrt(static_cast<double>(d)));
      weighted += weight * static_cast<double>(std::abs(i - j));
      norm += weight;
    }
    sum += weighted / norm;
    ++queries;
  }
  return sum / queries;
}

// Multiplies values by themselves.
class Squares : public attention::AttentionCore {
 public:
  at::Tensor forward(const at::Tensor&, const at::Tensor&, const at::Tensor& v, const SequenceMask&,
                     attention::Carry&) override {
    return v * v;
  }
  [[nodiscard]] attention::Cost cost(const attention::Shape&) const override { return {}; }
};

std::shared_ptr<attention::AttentionCore> core_of(const std::string& name, bool causal = false) {
  const attention::Resolved resolved = attention::resolve(name);
  attention::BuildContext context;
  context.heads = 3;
  context.head_dim = 4;
  context.max_len = 300;
  context.causal = causal;
  context.shared = std::make_shared<attention::SharedObjects>();
  context.dropout_stream = std::make_shared<kernels::DropoutStream>(1);
  RunPlan plan;
  plan.options = resolve_options({{"attention", name, resolved.options()}}, {});
  auto core = resolved.base->build_core(plan.group("attention"), context);
  core->eval();
  return core;
}

// With the values and the result that a layer would have had.
LayerTensors completed(LayerTensors tensors, attention::AttentionCore& core) {
  tensors.v = tensors.q.cos();
  attention::Carry carry;
  tensors.mixed = core.forward(tensors.q, tensors.k, tensors.v, {tensors.valid, tensors.causal}, carry);
  return tensors;
}

}  // namespace

TEST_CASE("the effective matrix of softmax is its weights, of linear attention the kernel's over their sum") {
  const int64_t n = GENERATE(5, 150);
  const bool causal = GENERATE(false, true);
  LayerTensors tensors = tensors_of(2, 3, n, 4);
  tensors.causal = causal;
  tensors.valid[1].narrow(0, n - 2, 2).fill_(false);
  for (const char* name : {"softmax", "softmax-fused"}) {
    const auto core = core_of(name, causal);
    const at::Tensor matrix = effective_matrix(*core, completed(tensors, *core));
    for (const int64_t first : {int64_t{0}, int64_t{1}})
      CHECK(at::allclose(spans(matrix, tensors.valid, first), spans(tensors, first), 1e-4));
  }
  const auto core = core_of("linear", causal);
  const at::Tensor matrix = effective_matrix(*core, completed(tensors, *core));
  at::Tensor kernel = at::matmul(at::elu(tensors.q) + 1, (at::elu(tensors.k) + 1).transpose(-1, -2)) *
                      tensors.valid.unsqueeze(1).unsqueeze(1);
  if (causal) kernel = kernel.tril();
  const at::Tensor rows = tensors.valid.unsqueeze(1).unsqueeze(-1);
  CHECK(at::allclose(matrix * rows, kernel / kernel.sum(-1, true) * rows, 1e-3, 1e-6));
}

TEST_CASE("every core that is linear in its values has a matrix; another is refused") {
  const LayerTensors tensors = tensors_of(2, 3, 64, 4);
  for (const char* name :
       {"linformer", "nystromformer", "performer", "local-window", "bigbird-itc", "sinkhorn", "mra2"}) {
    CAPTURE(name);
    const auto core = core_of(name);
    CHECK_NOTHROW(effective_matrix(*core, completed(tensors, *core)));
  }
  Squares squares;
  const std::string message = scratch::message_of<UserError>(
      [&] { static_cast<void>(effective_matrix(squares, completed(tensors, squares))); });
  CHECK(message.find("not linear in its values") != std::string::npos);
}

TEST_CASE("a matrix's weights are absolute, over their sum, among the places that count") {
  at::Tensor matrix = at::zeros({1, 1, 3, 3});
  matrix[0][0][0] = at::tensor({1.0, -2.0, 5.0});
  matrix[0][0][1] = at::tensor({3.0, 1.0, 7.0});
  const at::Tensor valid = at::tensor({1, 1, 0}).to(at::kBool).view({1, 3});
  CHECK(spans(matrix, valid, 0).item<double>() == Approx((2.0 / 3 + 3.0 / 4) / 2));
}

TEST_CASE("a span is the mean distance under the weights, over blocks of queries as over all") {
  const int64_t n = GENERATE(5, 128, 300);
  LayerTensors tensors = tensors_of(2, 3, n, 4);
  tensors.causal = GENERATE(false, true);
  tensors.valid[1].narrow(0, n - 2, 2).fill_(false);
  for (const int64_t first : {int64_t{0}, int64_t{1}}) {
    const at::Tensor found = spans(tensors, first);
    for (int64_t sequence = 0; sequence < 2; ++sequence)
      for (int64_t head = 0; head < 3; ++head)
        CHECK(found[sequence][head].item<double>() ==
              Approx(by_definition(tensors, sequence, head, first)).epsilon(1e-6));
  }
}

TEST_CASE("uniform weights reach (n^2 - 1) / (3 n), of what sees no later place (n - 1) / 4, on oneself nowhere") {
  LayerTensors tensors = tensors_of(1, 1, 64, 64);
  tensors.q.zero_();
  CHECK(spans(tensors, 0).item<double>() == Approx((64.0 * 64 - 1) / (3 * 64)));
  tensors.causal = true;
  CHECK(spans(tensors, 0).item<double>() == Approx(63.0 / 4));
  tensors.q = at::eye(64).mul(1e4).reshape({1, 1, 64, 64});
  tensors.k = at::eye(64).reshape({1, 1, 64, 64});
  CHECK(spans(tensors, 0).item<double>() == Approx(0).margin(1e-9));
}

}  // namespace xformer::analysis
