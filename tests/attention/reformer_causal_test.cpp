// The causal form of reformer, and why it is not the published one (attention-core 3.6).
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "attention/support.h"
#include "tensor/op_counter.h"
#include "tensor/probe.h"

namespace xformer::attention::reformer_causal_test {

using namespace support;

at::Tensor tensor_of(const BuiltMixer& mixer, const std::string& name) {
  for (const auto& [key, value] : mixer.state())
    if (key == name) return value.detach();
  FAIL("no tensor " << name);
  return {};
}

struct Shown {
  at::Tensor mixed, buckets;  // [b,h,n,d], [b,h,r,slots]; undefined where nothing is hashed
};

Shown show(const BuiltMixer& mixer, const at::Tensor& x, const SequenceMask& mask) {
  const ProbeRecorder recorder([](const std::string& name) { return name == "mixed" || name == "buckets"; });
  (void)mixer(x, mask);
  Shown result;
  for (const auto& [name, tensor] : recorder.kept())
    (name == "mixed" ? result.mixed : result.buckets) = tensor.detach();
  return result;
}

// In each round the last c tokens of the own bucket before i, or i itself where no round has one: one softmax over all
// of them, as often as they are found.
at::Tensor reference(const BuiltMixer& mixer, const at::Tensor& x, const SequenceMask& mask, const at::Tensor& buckets,
                     int64_t chunk) {
  const int64_t b = x.size(0), n = x.size(1), rounds = buckets.defined() ? buckets.size(2) : 1;
  const auto heads = [&](const char* name) {
    return at::matmul(x, tensor_of(mixer, name).t()).view({b, n, 2, 5}).transpose(1, 2).contiguous();
  };
  const at::Tensor q = heads("query.weight"), v = heads("value.weight");
  const at::Tensor k = q / (q.square().sum(-1, true) + 5e-6).sqrt();
  at::Tensor out = at::zeros_like(v);
  for (int64_t s = 0; s < b; ++s)
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t i = 0; i < n; ++i) {
        const auto valid = [&](int64_t j) { return mask.all_valid() || mask.key_valid[s][j].item<bool>(); };
        if (!valid(i)) continue;
        const auto bucket = [&](int64_t r, int64_t j) {
          return buckets.defined() ? buckets[s][h][r][j].item<int64_t>() : 0;
        };
        std::vector<int64_t> keys;
        for (int64_t r = 0; r < rounds; ++r) {
          int64_t found = 0;
          for (int64_t j = i - 1; j >= 0 && found < chunk; --j)
            if (valid(j) && bucket(r, j) == bucket(r, i)) keys.push_back(j), ++found;
        }
        if (keys.empty()) keys.push_back(i);
        double sum = 0;
        for (const int64_t j : keys) {
          const double weight = std::exp((q[s][h][i] * k[s][h][j]).sum().item<double>());
          sum += weight;
          out[s][h][i] += weight * v[s][h][j];
        }
        out[s][h][i] /= sum;
      }
  return out;
}

TEST_CASE("causal reformer reads, in each round, the last tokens of its own bucket, ragged and of any length") {
  for (const auto& [rounds, chunk] : {std::pair{1, 8}, {2, 8}, {4, 4}, {2, 2}, {3, 48}})
    for (const int64_t n : {48, 23, 5, 2, 1}) {
      INFO("rounds " << rounds << " chunk " << chunk << " n " << n);
      const BuiltMixer mixer = make_mixer("reformer", {{"rounds", rounds}, {"chunk", chunk}}, {.causal = true});
      const at::Tensor x = random_tensor("x", {2, n, 10});
      for (const SequenceMask& mask :
           {SequenceMask{{}, true}, length_mask({n, (2 * n + 2) / 3}, n, true), length_mask({1, n}, n, true)}) {
        const Shown shown = show(mixer, x, mask);
        CHECK(shown.buckets.defined() == (n > chunk));
        CHECK(max_difference(valid_rows(shown.mixed, mask), reference(mixer, x, mask, shown.buckets, chunk)) < 1e-10);
      }
    }
}

TEST_CASE("up to one chunk causal reformer is plain causal attention to the others, for any number of rounds") {
  const int64_t n = 20;
  const at::Tensor x = random_tensor("x", {1, n, 10});
  const auto run = [&](int64_t rounds) {
    return make_mixer("reformer", {{"rounds", rounds}, {"chunk", n}}, {.causal = true})(x, {{}, true});
  };
  const BuiltMixer mixer = make_mixer("reformer", {{"rounds", 1}, {"chunk", n}}, {.causal = true});
  const Shown shown = show(mixer, x, {{}, true});
  const at::Tensor v = at::matmul(x, tensor_of(mixer, "value.weight").t()).view({1, n, 2, 5}).transpose(1, 2);
  CHECK(max_difference(shown.mixed.select(2, 0), v.select(2, 0)) < 1e-12);  // sees no other: itself
  CHECK(max_difference(shown.mixed.select(2, 1), v.select(2, 0)) < 1e-12);  // the only one before it
  CHECK(max_difference(run(1), run(5)) < 1e-12);
}

TEST_CASE("no later token changes a row of causal reformer, or has a gradient from it") {
  const int64_t n = 200;
  const at::Tensor x = random_tensor("x", {1, n, 10}), later = random_tensor("later", {1, n, 10}) * 3;
  for (const auto& [rounds, chunk] : {std::pair{2, 16}, {4, 8}, {1, 200}}) {
    const BuiltMixer mixer =
        make_mixer("reformer", {{"rounds", rounds}, {"chunk", chunk}}, {.max_len = n, .causal = true});
    const at::Tensor out = mixer(x, {{}, true});
    for (const int64_t seen : {1, 40, 100, 199}) {
      const at::Tensor changed = mixer(at::cat({x.narrow(1, 0, seen), later.narrow(1, seen, n - seen)}, 1), {{}, true});
      // Tokens stand at other places of the sorted list, whose sums round otherwise.
      CHECK(max_difference(changed.narrow(1, 0, seen), out.narrow(1, 0, seen)) < 1e-13);
    }
    const at::Tensor leaf = x.clone().requires_grad_(true);
    mixer(leaf, {{}, true}).narrow(1, 0, 100).square().sum().backward();
    CHECK(leaf.grad().narrow(1, 100, 100).abs().max().item<double>() == 0);
    CHECK(leaf.grad().narrow(1, 0, 100).abs().sum(-1).min().item<double>() > 0);
  }
}

// The keys of each token by the published lists: sorted by (bucket, place), chunks of c, the own chunk and the one
// before it; of these the earlier ones.
std::vector<std::set<int64_t>> published(const std::vector<int64_t>& buckets, int64_t c) {
  const auto n = static_cast<int64_t>(buckets.size());
  std::vector<int64_t> order(buckets.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return buckets[static_cast<size_t>(a)] < buckets[static_cast<size_t>(b)];
  });
  std::vector<std::set<int64_t>> result(buckets.size());
  for (int64_t slot = 0; slot < n; ++slot) {
    const int64_t i = order[static_cast<size_t>(slot)], own = slot / c * c;
    for (const int64_t first : {(own + n - c) % n, own})
      for (int64_t s = first; s < first + c; ++s)
        if (const int64_t j = order[static_cast<size_t>(s)]; j < i) result[static_cast<size_t>(i)].insert(j);
  }
  return result;
}

TEST_CASE("published chunks with later keys hidden leak: later tokens decide which earlier ones are read") {
  constexpr int64_t n = 1024, c = 64, half = n / 2;
  Stream numbers = InitStream(7, "leak").stream("buckets");
  std::vector<int64_t> buckets;
  const auto draw = [&] { return static_cast<int64_t>(numbers.next_below(2 * n / c)); };
  for (int64_t i = 0; i < n; ++i) buckets.push_back(draw());
  const auto before = published(buckets, c);
  for (int64_t i = half; i < n; ++i) buckets[static_cast<size_t>(i)] = draw();
  const auto after = published(buckets, c);
  int64_t rows = 0;
  for (size_t i = 0; i < half; ++i) rows += before[i] != after[i] ? 1 : 0;
  CHECK(rows > half / 4);
}

TEST_CASE("causal reformer's FLOPs are counted ones; what it lacks is refused") {
  for (const int64_t n : {48, 130, 1}) {
    const BuiltMixer mixer = make_mixer("reformer", {{"chunk", 8}}, {.max_len = 130, .causal = true});
    const OpCounter counter;
    (void)mixer(random_tensor("x", {3, n, 10}), {{}, true});
    CHECK(static_cast<double>(counter.counts().flops) == mixer.module->cost(3, n).flops_executed);
  }
  CHECK_THROWS_AS(make_mixer("reformer", {{"dup_correct", true}}, {.causal = true}), UserError);
}

}  // namespace xformer::attention::reformer_causal_test
