// logsparse (attention-third 3).
#include <set>

#include "attention/support.h"
#include "tensor/probe.h"

namespace xformer::attention::logsparse_test {

using namespace support;

struct Pattern {
  std::string name = "exponential";
  int64_t local = 1, restart = 0;
  [[nodiscard]] Json options() const { return {{"pattern", name}, {"local", local}, {"restart", restart}}; }
};

std::vector<Pattern> patterns() {
  return {{}, {"exponential", 3}, {"exponential", 1, 6}, {"exponential", 3, 5}, {"bit-suffix"}};
}

// Distances by their definition, one after the other.
bool distance_is_in(const Pattern& pattern, int64_t distance) {
  if (pattern.restart > 0) distance %= pattern.restart;
  if (distance < pattern.local) return true;
  const int64_t power = distance - pattern.local + 1;
  return (power & (power - 1)) == 0;
}

bool reads(const Pattern& pattern, int64_t i, int64_t j, bool causal) {
  if (causal && j > i) return false;
  if (pattern.name == "exponential") return distance_is_in(pattern, std::abs(i - j));
  if (j == i) return true;
  for (int64_t t = 0; t < 12; ++t) {
    const int64_t size = int64_t{1} << t, block = i / size;
    if (j < i && j == block * size - 1) return true;
    if (j > i && block % 2 == 0 && j == (block + 1) * size) return true;
  }
  return false;
}

int64_t pairs(const Pattern& pattern, int64_t n, bool causal) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) count += reads(pattern, i, j, causal);
  return count;
}

TEST_CASE("logsparse equals softmax over its pattern by brute force, for ragged lengths and length 1") {
  for (const bool causal : {false, true})
    for (const Pattern& pattern : patterns())
      for (const int64_t n : {1, 2, 17, 48}) {
        INFO(pattern.options().dump() << " causal " << causal << " n " << n);
        const Inputs in = random_inputs(2, 2, n, 5);
        const BuiltCore core = make_core("logsparse", pattern.options(), {.causal = causal});
        for (const SequenceMask& mask : ragged_masks(n, causal))
          CHECK(max_difference(core(in.q, in.k, in.v, mask), masked_reference(in, mask, [&](int64_t i, int64_t j) {
                                 return reads(pattern, i, j, causal);
                               })) < 1e-10);
      }
}

TEST_CASE("logsparse has n log2 n + 1 pairs if causal, and bit-suffix 1 + log2 n keys a row if not") {
  const auto counted = [](const Pattern& pattern, int64_t n, bool causal) {
    return make_core("logsparse", pattern.options(), {.causal = causal}).module->cost({3, 2, n, n, 5}).flops_pattern /
           (4 * 3 * 2 * 5);
  };
  for (int64_t a = 1; a < 9; ++a) {
    const int64_t n = int64_t{1} << a;
    CHECK(counted({}, n, true) == static_cast<double>(n * a + 1));
    CHECK(counted({}, n, false) == static_cast<double>(n * (2 * a - 1) + 2));
    CHECK(counted({"bit-suffix"}, n, false) == static_cast<double>(n * (a + 1)));
    CHECK(counted({"bit-suffix"}, n, true) == static_cast<double>(n * a / 2 + n));
  }
  for (const Pattern& pattern : patterns())
    for (const bool causal : {false, true})
      CHECK(counted(pattern, 77, causal) == static_cast<double>(pairs(pattern, 77, causal)));
}

TEST_CASE("log2 n layers of logsparse connect every causal pair, of both patterns") {
  for (const Pattern& pattern : {Pattern{}, Pattern{"bit-suffix"}})
    for (const int64_t n : {16, 64, 256}) {
      at::Tensor step = at::zeros({n, n}, at::kFloat);
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j <= i; ++j) step[i][j] = reads(pattern, i, j, true) ? 1 : 0;
      at::Tensor reached = at::eye(n);
      for (int64_t size = 1; size < n; size *= 2) reached = at::matmul(step, reached).gt(0).to(at::kFloat);
      CHECK(at::equal(reached, at::ones({n, n}).tril()));
    }
}

TEST_CASE("the token at distance 4 has a gradient, the one at distance 3 none") {
  const int64_t n = 30, row = 20;
  Inputs in = random_inputs(1, 2, n, 5);
  in.k.requires_grad_(true), in.v.requires_grad_(true);
  make_core("logsparse")(in.q, in.k, in.v).select(2, row).square().sum().backward();
  const at::Tensor moved = at::cat({in.k.grad(), in.v.grad()}, -1).abs().amax(at::IntArrayRef({0, 1, 3}));
  for (const int64_t distance : {3, 5, 6, 7, 9}) {
    CHECK(moved[row - distance].item<double>() == 0);
    CHECK(moved[row + distance].item<double>() == 0);
  }
  for (const int64_t distance : {1, 2, 4, 8}) {
    CHECK(moved[row - distance].item<double>() > 1e-6);
    CHECK(moved[row + distance].item<double>() > 1e-6);
  }
}

// A mixer with convolutions of width k, its maps by those of `plain`.
BuiltMixer convolved(int64_t k, bool causal) {
  return make_mixer("logsparse", {{"query_kernel", k}}, {.causal = causal});
}

TEST_CASE("a query kernel that is zero but at the row itself is the linear map, and others shift") {
  for (const bool causal : {false, true}) {
    const BuiltMixer plain = make_mixer("logsparse", {}, {.causal = causal}), wide = convolved(3, causal);
    const auto from = plain.module->named_parameters();
    for (const auto& [name, parameter] : wide.parameters()) {
      if (parameter.dim() < 3) {
        parameter.data().copy_(from[name]);
        continue;
      }
      parameter.data().zero_();
      parameter.data().select(2, causal ? 2 : 1).copy_(from[name]);
    }
    const at::Tensor x = random_tensor("x", {2, 21, 10});
    for (const SequenceMask& mask : ragged_masks(21, causal))
      CHECK(max_difference(valid_rows(wide(x, mask), mask), valid_rows(plain(x, mask), mask)) < 1e-10);
  }
}

TEST_CASE("queries and keys of a query kernel are the convolutions that the equation says, padding as zeros") {
  for (const bool causal : {false, true})
    for (const int64_t k : {2, 3, 4}) {
      const BuiltMixer mixer = convolved(k, causal);
      const at::Tensor x = random_tensor("x", {1, 9, 10});
      const SequenceMask mask = length_mask({7}, 9, causal);
      const ProbeRecorder recorder([](const std::string& name) { return name == "q" || name == "k"; });
      (void)mixer(x, mask);
      const int64_t left = causal ? k - 1 : (k - 1) / 2;
      for (const auto& [name, got] : recorder.kept()) {
        const auto parameters = mixer.module->named_parameters();
        const std::string map = name == "q" ? "query" : "key";
        const at::Tensor weight = parameters[map + ".weight"], bias = parameters[map + ".bias"];
        for (int64_t i = 0; i < 7; ++i) {
          at::Tensor meant = bias.clone();
          for (int64_t r = 0; r < k; ++r)
            if (const int64_t from = i - left + r; from >= 0 && from < 7)
              meant = meant + at::mv(weight.select(2, r), x[0][from]);
          CHECK(max_difference(got[0].select(1, i).flatten(), meant) < 1e-10);
        }
      }
    }
}

TEST_CASE("convolved queries see no later token bit for bit, have gradients, and are counted") {
  const BuiltMixer mixer = convolved(3, true);
  const at::Tensor x = random_tensor("x", {1, 40, 10});
  const at::Tensor later = at::cat({x.narrow(1, 0, 17), random_tensor("later", {1, 23, 10}) * 9}, 1);
  CHECK(at::equal(mixer(x, {{}, true}).narrow(1, 0, 17), mixer(later, {{}, true}).narrow(1, 0, 17)));
  mixer(x, {{}, true}).square().sum().backward();
  for (const auto& [name, parameter] : mixer.parameters()) {
    INFO(name);
    CHECK(parameter.grad().isfinite().all().item<bool>());
  }
  CHECK(parameters_of("logsparse") == 16640);
  CHECK(parameters_of("logsparse", {{"query_kernel", 3}}) == 33024);
  const double core = make_core("logsparse").module->cost({3, 2, 40, 40, 5}).flops_executed;
  CHECK(convolved(3, false).module->cost(3, 40).flops_executed == core + (8 + 4 * 2) * 3.0 * 40 * 10 * 10);
}

TEST_CASE("logsparse refuses what does not go together") {
  CHECK_THROWS_WITH(make_core("logsparse", {{"local", 4}, {"restart", 4}}),
                    Catch::Matchers::Contains("attention.restart"));
  CHECK_THROWS_WITH(make_core("mrs-logsparse", {{"query_kernel", 3}}),
                    Catch::Matchers::Contains("attention.query_kernel"));
}

}  // namespace xformer::attention::logsparse_test
