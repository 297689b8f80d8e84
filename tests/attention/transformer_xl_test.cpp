// transformer-xl (attention-more 5).
#include <cmath>

#include "attention/support.h"

namespace xformer::attention::transformer_xl_test {

using namespace support;

namespace {

at::Tensor tensor_of(const BuiltMixer& built, const std::string& name) {
  for (const auto& [key, value] : built.state())
    if (key == name) return value.detach();
  FAIL("no tensor " << name);
  return {};
}

// R_t, number by number.
at::Tensor waves(int64_t steps, int64_t width) {
  const at::Tensor result = at::empty({width}, at::kDouble);
  for (int64_t i = 0; i < width; ++i) {
    const int64_t half = (width + 1) / 2, a = i % half;
    const double angle =
        static_cast<double>(steps) * std::pow(10000.0, -2 * static_cast<double>(a) / static_cast<double>(width));
    result[i] = i < half ? std::sin(angle) : std::cos(angle);
  }
  return result;
}

// The equations, a pair at a time, over a whole stream x [b,n,m], of which row i reads key j where `reads` says so.
at::Tensor reference(const BuiltMixer& mixer, const at::Tensor& x, const std::function<bool(int64_t, int64_t)>& reads,
                     int64_t clamp = 0, int64_t heads = 2) {
  const int64_t b = x.size(0), n = x.size(1), m = x.size(2), d = m / heads;
  const auto map = [&](const std::string& name) {
    return at::linear(x, tensor_of(mixer, name + ".weight"), tensor_of(mixer, name + ".bias"));
  };
  const at::Tensor q = map("query"), k = map("key"), v = map("value"), mixed = at::zeros_like(q);
  const at::Tensor of_content = tensor_of(mixer, "shared.relative_content_bias").flatten(),
                   of_place = tensor_of(mixer, "shared.relative_position_bias").flatten();
  for (int64_t i = 0; i < n; ++i)
    for (int64_t s = 0; s < b; ++s)
      for (int64_t h = 0; h < heads; ++h) {
        const auto own = [&](const at::Tensor& row) { return row.narrow(0, h * d, d); };
        double sum = 0;
        at::Tensor row = at::zeros({d}, at::kDouble);
        for (int64_t j = 0; j < n; ++j) {
          if (!reads(i, j)) continue;
          const int64_t t = clamp > 0 ? std::clamp(i - j, -clamp, clamp) : i - j;
          const at::Tensor distance = at::matmul(tensor_of(mixer, "position.weight"), waves(t, m));
          const at::Tensor score = ((own(q[s][i]) + own(of_content)) * own(k[s][j])).sum() +
                                   ((own(q[s][i]) + own(of_place)) * own(distance)).sum();
          const double weight = std::exp(score.item<double>() / std::sqrt(static_cast<double>(d)));
          sum += weight;
          row = row + weight * own(v[s][j]);
        }
        if (sum > 0) own(mixed[s][i]).copy_(row / sum);
      }
  return at::linear(mixed, tensor_of(mixer, "out.weight"), tensor_of(mixer, "out.bias"));
}

BuiltMixer make(const Json& options, bool causal = true, int64_t layer = 0) {
  const BuiltMixer mixer = make_mixer("transformer-xl", options, {.layer = layer, .causal = causal});
  // N(0, 0.02) would hide a bias that is not there.
  for (const char* name : {"shared.relative_content_bias", "shared.relative_position_bias"})
    tensor_of(mixer, name).copy_(random_tensor(name, {2, 5}));
  return mixer;
}

// A stream's segments of `n` places, each with the state that the one before left.
at::Tensor by_segments(const BuiltMixer& mixer, const at::Tensor& x, int64_t n) {
  State state = init_state(*mixer.module, x.size(0));
  std::vector<at::Tensor> parts;
  for (int64_t first = 0; first < x.size(1); first += n) {
    Carry carry = state;
    parts.push_back(mixer.module->forward(x.narrow(1, first, n), {{}, true}, carry));
    for (auto& [name, tensor] : state) tensor = carry.at(name);
  }
  return at::cat(parts, 1);
}

}  // namespace

TEST_CASE("transformer-xl equals its equations, pair by pair, causal and both ways, near and far", "[xl]") {
  for (const int64_t n : {1, 2, 3, 12})
    for (const bool causal : {false, true})
      for (const int64_t clamp : {0, 4}) {
        INFO("n " << n << " causal " << causal << " clamp " << clamp);
        const at::Tensor x = random_tensor("x", {2, n, 10});
        const BuiltMixer mixer = make({{"clamp", clamp}, {"memory", 3}}, causal);
        const auto reads = [&](int64_t i, int64_t j) { return j <= i || !causal; };
        CHECK(max_difference(mixer(x, {{}, causal}), reference(mixer, x, reads, clamp)) < 1e-10);
      }
}

TEST_CASE("segments with a memory are rows of one pass that reads as far back", "[xl]") {
  const int64_t n = 5;
  const at::Tensor x = random_tensor("stream", {2, 4 * n, 10});
  for (const int64_t memory : {0, 1, 3, 5, 8, 20}) {
    INFO("memory " << memory);
    const BuiltMixer mixer = make({{"memory", memory}});
    const at::Tensor out = by_segments(mixer, x, n);
    const auto reads = [&](int64_t i, int64_t j) { return j <= i && j >= i / n * n - memory; };
    CHECK(max_difference(out, reference(mixer, x, reads)) < 1e-10);
    const double from_whole = max_difference(out, mixer(x, {{}, true}));
    if (memory >= 3 * n) CHECK(from_whole < 1e-10);
    else CHECK(from_whole > 1e-3);
  }
}

TEST_CASE("a memory of nothing is relative attention within the segment, and holds no state", "[xl]") {
  const BuiltMixer none = make({{"memory", 0}}), some = make({{"memory", 4}});
  CHECK(init_state(*none.module, 3).empty());
  const State state = init_state(*some.module, 3);
  CHECK(state.at("layer0/memory").sizes() == at::IntArrayRef({3, 4, 10}));
  CHECK(state.at("layer0/memory_valid").sizes() == at::IntArrayRef({3, 4}));
  CHECK(init_state(*make({{"memory", 4}}, false).module, 3).empty());  // both ways there is no stream
  const at::Tensor x = random_tensor("x", {3, 7, 10});
  CHECK(max_difference(none(x, {{}, true}), some(x, {{}, true})) < 1e-12);
}

TEST_CASE("with the same length every place reads as many keys, wherever it stands in its segment", "[xl]") {
  const int64_t n = 6;
  const at::Tensor x = random_tensor("stream", {1, 3 * n, 10});
  for (const int64_t memory : {1, 4, 6, 9}) {
    const BuiltMixer mixer = make({{"memory", memory}, {"same_length", true}});
    const auto reads = [&](int64_t i, int64_t j) { return j <= i && j > i - memory; };
    CHECK(max_difference(by_segments(mixer, x, n), reference(mixer, x, reads)) < 1e-10);
  }
  CHECK_THROWS_WITH(make({{"memory", 0}, {"same_length", true}}), Catch::Matchers::Contains("attention.memory"));
}

TEST_CASE("without the four terms of distance and bias it is causal softmax", "[xl]") {
  const at::Tensor x = random_tensor("x", {2, 9, 10});
  const BuiltMixer mixer = make({{"memory", 2}}), softmax = make_mixer("softmax", {}, {.causal = true});
  for (const char* name : {"shared.relative_content_bias", "shared.relative_position_bias", "position.weight"})
    tensor_of(mixer, name).zero_();
  for (const auto& [name, value] : softmax.state()) value.data().copy_(tensor_of(mixer, name));
  const SequenceMask mask = length_mask({9, 5}, 9, true);
  CHECK(max_difference(valid_rows(mixer(x, mask), mask), valid_rows(softmax(x, mask), mask)) < 1e-10);
}

TEST_CASE("padding of an earlier segment is no key of a later one", "[xl]") {
  const int64_t n = 6;
  const BuiltMixer mixer = make({{"memory", 8}});
  const at::Tensor first = random_tensor("first", {2, n, 10}), second = random_tensor("second", {2, n, 10});
  const SequenceMask short_mask = length_mask({n, 4}, n, true);
  const auto run = [&](const at::Tensor& before, const SequenceMask& mask, const at::Tensor& x) {
    Carry carry = init_state(*mixer.module, before.size(0));
    (void)mixer.module->forward(before, mask, carry);
    Carry next = init_state(*mixer.module, before.size(0));
    for (auto& [name, tensor] : next) tensor = carry.at(name);
    return mixer.module->forward(x, {{}, true}, next);
  };
  const at::Tensor out = run(first, short_mask, second);
  const at::Tensor noise = first.clone();
  noise[1].narrow(0, 4, 2).fill_(50);
  CHECK(run(noise, short_mask, second).equal(out));
  // The row that was whole: as without padding. The other reads four keys, two steps farther away than they were.
  CHECK(max_difference(out[0], run(first, {{}, true}, second)[0]) < 1e-12);
  CHECK(max_difference(out[1], run(first, {{}, true}, second)[1]) > 1e-3);
}

TEST_CASE("the gradient stops at the memory, and maps learn from what it holds", "[xl]") {
  const int64_t n = 5;
  const BuiltMixer mixer = make({{"memory", n}});
  const at::Tensor first = random_tensor("first", {1, n, 10}).requires_grad_(true),
                   second = random_tensor("second", {1, n, 10}).requires_grad_(true);
  Carry carry = init_state(*mixer.module, 1);
  (void)mixer.module->forward(first, {{}, true}, carry);
  CHECK_FALSE(carry.at("layer0/memory").requires_grad());
  CHECK(carry.at("layer0/memory").equal(first.detach()));
  Carry next{{"layer0/memory", carry.at("layer0/memory")}, {"layer0/memory_valid", carry.at("layer0/memory_valid")}};
  mixer.module->forward(second, {{}, true}, next).square().sum().backward();
  CHECK_FALSE(first.grad().defined());
  CHECK(second.grad().abs().min().item<double>() > 0);
  // As if the remembered rows were numbers of the problem: dL/dW_v over all keys.
  const at::Tensor learned = mixer.module->named_parameters()["value.weight"].grad().clone();
  mixer.module->zero_grad();
  mixer(second, {{}, true}).square().sum().backward();
  CHECK(max_difference(learned, mixer.module->named_parameters()["value.weight"].grad()) > 1e-3);
}

TEST_CASE("no later place of a segment changes an earlier one, in any bit, nor what went before it", "[xl]") {
  const int64_t n = 40;
  const BuiltMixer mixer = make({{"memory", 24}});
  const at::Tensor x = random_tensor("stream", {1, 2 * n, 10}), other = random_tensor("later", {1, 2 * n, 10}) * 9;
  const at::Tensor out = by_segments(mixer, x, n);
  for (const int64_t seen : {1, 17, 39, 40, 41, 63, 79}) {
    const at::Tensor changed = at::cat({x.narrow(1, 0, seen), other.narrow(1, seen, 2 * n - seen)}, 1);
    CHECK(by_segments(mixer, changed, n).narrow(1, 0, seen).equal(out.narrow(1, 0, seen)));
  }
}

TEST_CASE("transformer-xl's defaults, parameters and sharing", "[xl]") {
  const Json options = full_options(resolve("transformer-xl"));
  CHECK((options["memory"] == 512 && options["clamp"] == 0 && options["same_length"] == false));
  // W_r without a bias, and u and w once for all layers.
  CHECK(parameters_of("transformer-xl", {}, true) == 16640 + 64 * 64 + 2 * 64);
  const BuiltMixer one = make_mixer("transformer-xl", {}, {.causal = true});
  const BuiltMixer two = make_mixer("transformer-xl", {}, {.layer = 1, .causal = true, .shared = one.shared});
  CHECK(one.shared->parameters().size() == 2);
  CHECK(init_state(*two.module, 1).count("layer1/memory") == 1);
}

}  // namespace xformer::attention::transformer_xl_test
