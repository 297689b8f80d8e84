// performer (attention-core 3.12).
#include "attention/support.h"

namespace xformer::attention::performer_test {

using namespace support;

at::Tensor omega_of(const BuiltCore& core) {
  REQUIRE(core.shared->buffers().size() == 1);
  return core.shared->buffers()[0];
}

// sum_f phi_f(q_i) phi_f(k_j) in loops: rows i, columns j, of one head. The key's stabiliser is the largest score of
// valid keys (up to row i if causal).
std::vector<std::vector<double>> kernel(const at::Tensor& q, const at::Tensor& k, const at::Tensor& omega,
                                        const std::vector<bool>& valid, bool causal, double power = 0.25) {
  const int64_t n = q.size(0), d = q.size(1), m = omega.size(0);
  const double scale = std::pow(static_cast<double>(d), -power);
  const auto w = omega.accessor<double, 2>();
  struct Row {
    std::vector<double> scores;
    double half_square = 0, largest = -1e300;
  };
  const auto project = [&](const at::Tensor& x, int64_t i) {
    Row row;
    const auto a = x.accessor<double, 2>();
    for (int64_t c = 0; c < d; ++c) row.half_square += a[i][c] * scale * a[i][c] * scale / 2;
    for (int64_t f = 0; f < m; ++f) {
      double sum = 0;
      for (int64_t c = 0; c < d; ++c) sum += w[f][c] * a[i][c] * scale;
      row.scores.push_back(sum);
      row.largest = std::max(row.largest, sum);
    }
    return row;
  };
  std::vector<Row> keys;
  double largest = -1e300;
  for (int64_t j = 0; j < k.size(0); ++j) {
    keys.push_back(project(k, j));
    if (valid[static_cast<size_t>(j)]) largest = std::max(largest, keys.back().largest);
  }
  std::vector<std::vector<double>> result;
  double running = -1e300;
  for (int64_t i = 0; i < n; ++i) {
    const Row query = project(q, i);
    if (causal && valid[static_cast<size_t>(i)]) running = std::max(running, keys[static_cast<size_t>(i)].largest);
    result.emplace_back();
    for (const Row& key : keys) {
      double sum = 0;
      for (size_t f = 0; f < static_cast<size_t>(m); ++f)
        sum += (std::exp(query.scores[f] - query.half_square - query.largest) + 1e-4) *
               (std::exp(key.scores[f] - key.half_square - (causal ? running : largest)) + 1e-4);
      result.back().push_back(sum);
    }
  }
  return result;
}

at::Tensor reference(const Inputs& in, const SequenceMask& mask, const at::Tensor& omega, double power = 0.25) {
  std::vector<std::vector<std::vector<double>>> kernels;
  for (int64_t b = 0; b < in.q.size(0); ++b)
    for (int64_t h = 0; h < in.q.size(1); ++h) {
      std::vector<bool> valid;
      for (int64_t j = 0; j < in.k.size(2); ++j) valid.push_back(mask.all_valid() || mask.key_valid[b][j].item<bool>());
      kernels.push_back(kernel(in.q[b][h], in.k[b][h], omega, valid, mask.causal, power));
    }
  return dense_attention(in.v, mask, in.q.size(2), [&](int64_t b, int64_t h, int64_t i, int64_t j) {
    return kernels[static_cast<size_t>(b * in.q.size(1) + h)][static_cast<size_t>(i)][static_cast<size_t>(j)];
  });
}

TEST_CASE("performer equals its features in loops, for ragged lengths and length 1") {
  for (const bool causal : {false, true})
    for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{48, 31}, {1, 48}}) {
      INFO("causal " << causal);
      const SequenceMask mask = length_mask(lengths, 48, causal);
      const Inputs in = random_inputs(2, 2, 48, 5);
      const BuiltCore core = make_core("performer", {{"features", 12}}, {.causal = causal});
      CHECK(max_difference(core(in.q, in.k, in.v, mask), valid_rows(reference(in, mask, omega_of(core)), mask)) <
            1e-10);
      const Inputs one = random_inputs(2, 2, 1, 5);
      CHECK(max_difference(core(one.q, one.k, one.v, {{}, causal}), one.v) < 1e-10);
    }
}

TEST_CASE("performer causal sums go on over chunks, with keys that grow and first tokens that are padding") {
  const int64_t n = 150;
  Inputs in = random_inputs(1, 1, n, 3);
  in.k = in.k * at::linspace(0.1, 6, n, at::kDouble).view({1, 1, n, 1});  // the running maximum keeps rising
  SequenceMask mask = length_mask({n - 10}, n, true);
  mask.key_valid.narrow(1, 0, 3).fill_(false);
  const BuiltCore core = make_core("performer", {{"features", 6}}, {.heads = 1, .head_dim = 3, .causal = true});
  CHECK(max_difference(core(in.q, in.k, in.v, mask), valid_rows(reference(in, mask, omega_of(core)), mask)) < 1e-10);
}

TEST_CASE("performer golden number") {
  // d = 1, m = 1, omega = 2: key scores 0 and 2, so c = 2; features e^-2 + 1e-4 and e^-0.5 + 1e-4, the query's factor
  // cancels; values 0 and 1: 0.6066306597 / (0.1354352832 + 0.6066306597) = 0.8174889...
  const BuiltCore core = make_core("performer", {{"features", 1}}, {.heads = 1, .head_dim = 1});
  omega_of(core).fill_(2);
  CHECK(core(column({0.3, -1}), column({0, 1}), column({0, 1}))[0][0][0][0].item<double>() ==
        Approx(0.6066306597 / (0.1354352832 + 0.6066306597)).epsilon(1e-9));
}

TEST_CASE("performer's features estimate the softmax kernel without bias") {
  const int64_t d = 5, m = 10, draws = 3000;
  const at::Tensor q = random_tensor("uq", {d}) / std::pow(d, 0.25), k = random_tensor("uk", {d}) / std::pow(d, 0.25);
  const double expected = std::exp(q.dot(k).item<double>());
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < draws; ++i) {
    const at::Tensor omega =
        omega_of(make_core("performer", {{"features", m}}, {.seed = 100 + static_cast<uint64_t>(i)}));
    const double estimate = (at::exp(at::mv(omega, q + k)).mean() * at::exp(-(q.dot(q) + k.dot(k)) / 2)).item<double>();
    sum += estimate;
    squares += estimate * estimate;
  }
  const double mean = sum / draws, error = std::sqrt((squares / draws - mean * mean) / draws);
  INFO("mean " << mean << " expected " << expected << " standard error " << error);
  CHECK(std::abs(mean - expected) < 3 * error);
}

TEST_CASE("performer's features are orthogonal in blocks of d, of Gaussian length, and no direction is preferred") {
  const int64_t d = 8, m = 20;
  at::Tensor squares = at::zeros({}, at::kDouble), total = at::zeros({d}, at::kDouble);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const at::Tensor omega = omega_of(make_core("performer", {{"features", m}}, {.head_dim = d, .seed = seed}));
    REQUIRE(omega.sizes() == at::IntArrayRef({m, d}));
    for (int64_t start = 0; start < m; start += d) {
      const at::Tensor block = omega.narrow(0, start, std::min(d, m - start));
      const at::Tensor products = at::mm(block, block.t());
      REQUIRE((products - products.diag().diag()).abs().max().item<double>() < 1e-5);
    }
    squares += omega.square().sum();
    total += omega.sum(0);
  }
  // |row|^2 is chi-squared with d degrees: mean d, deviation sqrt(2 d); sums of coordinates have variance of one each.
  const double rows = 200 * m;
  CHECK(std::abs(squares.item<double>() / rows - d) < 4 * std::sqrt(2.0 * d / rows));
  CHECK(total.abs().max().item<double>() / std::sqrt(rows) < 4);
}

TEST_CASE("performer comes closer to softmax as features double, and double_scale to softmax(q k / d)") {
  // Short queries and keys: the variance of an estimate grows as exp(|q' + k'|^2), and N(0, 1) needs far more draws.
  Inputs in = random_inputs(1, 2, 24, 5);
  in.q = in.q / 2;
  in.k = in.k / 2;
  const at::Tensor exact = dense_softmax(in);
  const Inputs cooler{in.q / std::sqrt(std::sqrt(5.0)), in.k / std::sqrt(std::sqrt(5.0)), in.v};
  for (const bool twice : {false, true}) {
    const at::Tensor wanted = twice ? dense_softmax(cooler) : exact;
    double previous = 1e9, first = 0;
    for (int64_t m = 8; m <= 512; m *= 2) {
      double error = 0;
      for (uint64_t seed = 0; seed < 20; ++seed) {
        const BuiltCore core = make_core("performer", {{"features", m}, {"double_scale", twice}}, {.seed = seed});
        error += (core(in.q, in.k, in.v) - wanted).square().mean().sqrt().item<double>() / 20;
      }
      INFO("m " << m << " error " << error << " before " << previous);
      CHECK(error < previous);
      if (m == 8) first = error;
      previous = error;
    }
    CHECK(previous < first / 4);  // 1/8 is expected of sqrt(512/8)
  }
}

TEST_CASE("performer's redraw is a function of seed and step") {
  const auto core = [] { return make_core("performer", {{"features", 10}, {"redraw", 3}}); };
  const BuiltCore never_stopped = core(), resumed = core();
  const at::Tensor first = omega_of(never_stopped).clone();
  after_step(*never_stopped.module, 1);
  after_step(*never_stopped.module, 2);
  CHECK(at::equal(omega_of(never_stopped), first));
  after_step(*never_stopped.module, 3);
  const at::Tensor third = omega_of(never_stopped).clone();
  CHECK_FALSE(at::equal(third, first));
  for (int64_t step = 4; step <= 6; ++step) after_step(*never_stopped.module, step);
  CHECK_FALSE(at::equal(omega_of(never_stopped), third));
  after_step(*resumed.module, 6);
  CHECK(at::equal(omega_of(never_stopped), omega_of(resumed)));
  const BuiltCore fixed = make_core("performer", {{"features", 10}});
  for (int64_t step = 1; step <= 10; ++step) after_step(*fixed.module, step);
  CHECK(at::equal(omega_of(fixed), first));
}

TEST_CASE("performer draws one set of features per layer, shared by the scales of mrs-") {
  const Json options = {{"features", 10}, {"redraw", 1}};
  const BuiltCore layer0 = make_core("mrs-performer", options);
  CHECK(layer0.shared->buffers().size() == 1);
  const BuiltCore layer1 = make_core("mrs-performer", options, {.layer = 1, .shared = layer0.shared});
  REQUIRE(layer0.shared->buffers().size() == 2);
  CHECK_FALSE(at::equal(layer0.shared->buffers()[0], layer0.shared->buffers()[1]));
  // Redrawn once, by its owner: as the undecorated form does.
  const BuiltCore plain = make_core("performer", options);
  after_step(*plain.module, 1);
  after_step(*layer0.module, 1);
  CHECK(at::equal(layer0.shared->buffers()[0], omega_of(plain)));
}

// sum_f phi_f(q_i) phi_f(k_j), phi = relu(omega x / d^(1/4)) + 1e-3; without omega relu(x) + 1e-3.
at::Tensor relu_reference(const Inputs& in, const SequenceMask& mask, const at::Tensor& omega) {
  const auto phi = [&](const at::Tensor& x, int64_t f) {  // of one row
    double sum = omega.defined() ? 0 : x[f].item<double>();
    for (int64_t c = 0; omega.defined() && c < x.size(0); ++c)
      sum += omega[f][c].item<double>() * x[c].item<double>() / std::pow(x.size(0), 0.25);
    return std::max(sum, 0.0) + 1e-3;
  };
  return dense_attention(in.v, mask, in.q.size(2), [&](int64_t b, int64_t h, int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t f = 0; f < (omega.defined() ? omega : in.q[0][0]).size(omega.defined() ? 0 : 1); ++f)
      sum += phi(in.q[b][h][i], f) * phi(in.k[b][h][j], f);
    return sum;
  });
}

TEST_CASE("performer-relu equals its features in loops, with and without projection, for ragged lengths and length 1") {
  for (const std::string kernel : {"relu", "relu-identity"})
    for (const bool causal : {false, true})
      for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{11, 6}, {1, 0}}) {
        INFO(kernel << " causal " << causal);
        const SequenceMask mask = length_mask(lengths, 11, causal);
        const Inputs in = random_inputs(2, 2, 11, 5), one = random_inputs(2, 2, 1, 5);
        const BuiltCore core = make_core("performer-relu", {{"kernel", kernel}, {"features", 7}}, {.causal = causal});
        const at::Tensor omega = kernel == "relu" ? omega_of(core) : at::Tensor();
        CHECK(core.state().size() == (kernel == "relu" ? 1 : 0));
        CHECK(max_difference(core(in.q, in.k, in.v, mask), valid_rows(relu_reference(in, mask, omega), mask)) < 1e-10);
        CHECK(max_difference(core(one.q, one.k, one.v, {{}, causal}), one.v) < 1e-10);
      }
}

TEST_CASE("performer-relu golden numbers") {
  // Features 1e-3 and 2 + 1e-3 of keys -1 and 2: values 0 and 1 weigh 0.001 and 2.001 of 2.002.
  const BuiltCore plain = make_core("performer-relu", {{"kernel", "relu_identity"}}, {.heads = 1, .head_dim = 1});
  CHECK(plain(column({3, -1}), column({-1, 2}), column({0, 1}))[0][0][0][0].item<double>() == Approx(2.001 / 2.002));
  // omega = -1 turns that round: 1.001 and 0.001.
  const BuiltCore projected = make_core("performer-relu", {{"features", 1}}, {.heads = 1, .head_dim = 1});
  omega_of(projected).fill_(-1);
  CHECK(projected(column({3, -1}), column({-1, 2}), column({0, 1}))[0][0][0][0].item<double>() ==
        Approx(0.001 / 1.002));
}

TEST_CASE("performer-relu without projection is linear with the features swapped") {
  // For x >= 0, elu(x) + 1 = x + 1 = relu(x + 0.999) + 0.001: only linear's epsilon is left between them.
  Inputs in = random_inputs(2, 2, 48, 5);
  in.q = in.q.abs(), in.k = in.k.abs();
  const SequenceMask mask = length_mask({48, 31}, 48);
  const BuiltCore swapped = make_core("performer-relu", {{"kernel", "relu-identity"}});
  CHECK(max_difference(swapped(in.q + 0.999, in.k + 0.999, in.v, mask), make_core("linear")(in.q, in.k, in.v, mask)) <
        1e-8);
}

TEST_CASE("performer-relu redraws its features as performer does, and has no parameters of its own") {
  const BuiltCore relu = make_core("performer-relu", {{"features", 10}, {"redraw", 1}}),
                  softmax = make_core("performer", {{"features", 10}, {"redraw", 1}});
  CHECK(at::equal(omega_of(relu), omega_of(softmax)));
  const at::Tensor first = omega_of(relu).clone();
  after_step(*relu.module, 1);
  after_step(*softmax.module, 1);
  CHECK_FALSE(at::equal(omega_of(relu), first));
  CHECK(at::equal(omega_of(relu), omega_of(softmax)));
  CHECK(make_core("performer-relu", {{"kernel", "relu-identity"}, {"redraw", 1}}).state().empty());
}

}  // namespace xformer::attention::performer_test
