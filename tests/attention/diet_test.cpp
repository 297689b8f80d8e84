// diet-cascade, diet-dilated and diet-dilated-memory (attention-third 6).
#include "attention/support.h"

namespace xformer::attention::diet_test {

using namespace support;

int64_t power(int64_t base, int64_t exponent) { return exponent == 0 ? 1 : base * power(base, exponent - 1); }

// The sets of layer l by their definition, at the defaults.
bool reads(const std::string& name, int64_t layer, int64_t distance) {
  if (name == "diet-cascade") return distance < 4 * power(2, layer);
  const auto dilated = [&](int64_t l) { return distance % power(2, l) == 0 && distance / power(2, l) < 3; };
  if (name == "diet-dilated") return dilated(layer);
  for (int64_t l = 0; l <= layer; ++l)
    if (dilated(l)) return true;
  return false;
}

const std::vector<std::string> kNames{"diet-cascade", "diet-dilated", "diet-dilated-memory"};

TEST_CASE("a diet equals softmax over its sets by brute force, in every layer, for ragged lengths and length 1") {
  for (const std::string& name : kNames)
    for (const bool causal : {false, true})
      for (int64_t layer = 0; layer < 4; ++layer)
        for (const int64_t n : {1, 2, 17, 61}) {
          INFO(name << " layer " << layer << " causal " << causal << " n " << n);
          const Inputs in = random_inputs(2, 2, n, 5);
          const BuiltCore core = make_core(name, {}, {.layer = layer, .causal = causal});
          for (const SequenceMask& mask : ragged_masks(n, causal))
            CHECK(max_difference(core(in.q, in.k, in.v, mask), masked_reference(in, mask, [&](int64_t i, int64_t j) {
                                   return (!causal || j <= i) && reads(name, layer, std::abs(i - j));
                                 })) < 1e-10);
        }
}

TEST_CASE("the pairs of a diet are those of its sets") {
  for (const std::string& name : kNames)
    for (const bool causal : {false, true})
      for (int64_t layer = 0; layer < 4; ++layer) {
        INFO(name << " layer " << layer << " causal " << causal);
        const int64_t n = 77, w = std::min<int64_t>(4 * power(2, layer), n);
        int64_t pairs = 0;
        for (int64_t i = 0; i < n; ++i)
          for (int64_t j = 0; j < n; ++j) pairs += (!causal || j <= i) && reads(name, layer, std::abs(i - j));
        const Cost cost = make_core(name, {}, {.layer = layer, .causal = causal}).module->cost({3, 2, n, n, 5});
        CHECK(cost.flops_pattern == 4.0 * 3 * 2 * 5 * static_cast<double>(pairs));
        if (name == "diet-cascade") CHECK(pairs == (causal ? n * w - w * (w - 1) / 2 : n * (2 * w - 1) - w * (w - 1)));
      }
}

TEST_CASE("dilated layers reach 2 (2^L - 1) tokens without holes") {
  const int64_t n = 40;
  at::Tensor reached = at::eye(n);
  for (int64_t layer = 0; layer < 4; ++layer) {
    at::Tensor step = at::zeros({n, n});
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j <= i; ++j) step[i][j] = reads("diet-dilated", layer, i - j) ? 1 : 0;
    reached = at::matmul(step, reached).gt(0).to(at::kFloat);
    for (int64_t distance = 0; distance < n; ++distance)
      CHECK((reached[n - 1][n - 1 - distance].item<float>() > 0) == (distance <= 2 * (power(2, layer + 1) - 1)));
  }
}

TEST_CASE("memory of enough layers is logsparse, and a cascade that does not grow is local-window") {
  const Inputs in = random_inputs(2, 2, 48, 5);
  for (const bool causal : {false, true}) {
    const SequenceMask mask = length_mask({48, 31}, 48, causal);
    const auto out = [&](const std::string& name, const Json& options, int64_t layer) {
      return make_core(name, options, {.layer = layer, .causal = causal})(in.q, in.k, in.v, mask);
    };
    const at::Tensor sparse = out("logsparse", {}, 0);
    CHECK(max_difference(out("diet-dilated-memory", {}, 6), sparse) < 1e-10);
    CHECK(max_difference(out("diet-dilated-memory", {}, 3), sparse) > 1e-4);
    for (int64_t layer = 0; layer < 3; ++layer)
      CHECK(max_difference(out("diet-cascade", {{"window_growth", 1}, {"first_window", 5}}, layer),
                           out("local-window", {{"window", {4}}}, 0)) < 1e-10);
  }
}

TEST_CASE("a diet has no parameters, in any layer, however far it would reach") {
  for (const std::string& name : kNames) {
    CHECK(parameters_of(name) == 16640);
    const Inputs in = random_inputs(1, 2, 9, 5);
    CHECK(make_core(name, {}, {.layer = 70})(in.q, in.k, in.v).isfinite().all().item<bool>());
  }
}

}  // namespace xformer::attention::diet_test
