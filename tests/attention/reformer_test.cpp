// reformer (attention-core 3.6).
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "attention/support.h"
#include "tensor/op_counter.h"
#include "tensor/probe.h"

namespace xformer::attention::reformer_test {

using namespace support;

at::Tensor tensor_of(const BuiltMixer& mixer, const std::string& name) {
  for (const auto& [key, value] : mixer.state())
    if (key == name) return value.detach();
  FAIL("no tensor " << name);
  return {};
}

using Rows = std::vector<std::vector<double>>;

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// Of one head of one sample: the tokens that token i looks at, those of all rounds one behind the other.
struct Sample {
  Rows q, v;
  std::vector<bool> valid;

  [[nodiscard]] std::vector<std::vector<size_t>> look(const at::Tensor& rotations, size_t rounds, size_t chunk,
                                                      size_t max_len) const {
    const size_t n = q.size();
    std::vector<std::vector<size_t>> result(n);
    if (n <= chunk) {
      for (auto& list : result)
        for (size_t j = 0; j < n; ++j) list.push_back(j);
      return result;
    }
    size_t buckets = 1;
    while (buckets * 2 * chunk <= 2 * n) buckets *= 2;
    std::vector<size_t> factors{buckets};
    if (buckets > 2 * std::max(static_cast<size_t>(std::sqrt(static_cast<double>(max_len / chunk))), chunk)) {
      factors = {1, 1};
      for (size_t turn = 1; factors[0] * factors[1] < buckets; turn = 1 - turn) factors[turn] *= 2;
    }
    const auto turn = rotations.accessor<double, 3>();  // [d, r, columns]
    std::vector<size_t> list;                           // tokens, or n and more
    for (size_t r = 0; r < rounds; ++r) {
      std::vector<size_t> bucket(n);
      for (size_t i = 0; i < n; ++i) {
        size_t first = 0, unit = 1;
        for (const size_t factor : factors) {
          double best = -INFINITY;
          size_t digit = 0;
          for (size_t side = 0; side < 2; ++side)
            for (size_t m = 0; m < factor / 2; ++m) {
              double sum = 0;
              for (size_t c = 0; c < q[i].size(); ++c)
                sum +=
                    q[i][c] * turn[static_cast<int64_t>(c)][static_cast<int64_t>(r)][static_cast<int64_t>(first + m)];
              if (side == 1) sum = -sum;
              if (sum > best) best = sum, digit = side * (factor / 2) + m;
            }
          bucket[i] += unit * digit;
          unit *= factor;
          first += factor / 2;
        }
        if (!valid[i]) bucket[i] = buckets;
      }
      std::vector<size_t> order(n);
      std::iota(order.begin(), order.end(), size_t{0});
      std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return bucket[a] < bucket[b]; });
      while (order.size() % chunk != 0) order.push_back(n);
      list.insert(list.end(), order.begin(), order.end());
    }
    for (size_t slot = 0; slot < list.size(); ++slot) {
      if (list[slot] >= n) continue;
      const size_t own = slot / chunk * chunk, before = (own + list.size() - chunk) % list.size();
      for (const size_t start : {before, own})
        for (size_t s = start; s < start + chunk; ++s)
          if (list[s] < n) result[list[slot]].push_back(list[s]);
    }
    return result;
  }
};

// The output before the output map [b,n,h d]: one softmax over everything that a token looks at, in loops.
at::Tensor reference(const BuiltMixer& mixer, const at::Tensor& x, const SequenceMask& mask, const Json& options,
                     int64_t heads, int64_t max_len) {
  const size_t rounds = options.value("rounds", 2), chunk = options.value("chunk", 64);
  const bool once = options.value("dup_correct", false);
  const int64_t b = x.size(0), n = x.size(1);
  const at::Tensor q = at::matmul(x, tensor_of(mixer, "query.weight").t()).view({b, n, heads, -1});
  const at::Tensor v = at::matmul(x, tensor_of(mixer, "value.weight").t()).view({b, n, heads, -1});
  const at::Tensor out = at::zeros_like(v);
  auto result = out.accessor<double, 4>();
  const auto all_q = q.accessor<double, 4>(), all_v = v.accessor<double, 4>();
  const auto d = static_cast<size_t>(q.size(3));
  for (int64_t s = 0; s < b; ++s)
    for (int64_t h = 0; h < heads; ++h) {
      Sample sample;
      Rows k;
      for (int64_t i = 0; i < n; ++i) {
        sample.valid.push_back(mask.all_valid() || mask.key_valid[s][i].item<bool>());
        sample.q.emplace_back(all_q[s][i][h].data(), all_q[s][i][h].data() + d);
        sample.v.emplace_back(all_v[s][i][h].data(), all_v[s][i][h].data() + d);
        const double size = dot(sample.q.back(), sample.q.back()) / static_cast<double>(d) + 1e-6;
        k.push_back(sample.q.back());
        for (double& number : k.back()) number /= std::sqrt(size) * std::sqrt(static_cast<double>(d));
      }
      const bool hashed = static_cast<size_t>(n) > chunk;
      const auto seen = sample.look(hashed ? tensor_of(mixer, "rotations")[h] : at::Tensor(), rounds, chunk,
                                    static_cast<size_t>(max_len));
      for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
        if (!sample.valid[i]) continue;
        std::vector<size_t> keys;
        for (const size_t j : seen[i])
          if (j != i && sample.valid[j]) keys.push_back(j);
        if (once) {
          const std::set<size_t> distinct(keys.begin(), keys.end());
          keys.assign(distinct.begin(), distinct.end());
        }
        if (keys.empty()) keys.push_back(i);
        double sum = 0;
        for (const size_t j : keys) sum += std::exp(dot(sample.q[i], k[j]));
        for (const size_t j : keys)
          for (size_t c = 0; c < d; ++c)
            result[s][static_cast<int64_t>(i)][h][static_cast<int64_t>(c)] +=
                std::exp(dot(sample.q[i], k[j])) / sum * sample.v[j][c];
      }
    }
  return out.flatten(2);
}

// What the mixer gives, seen before its output map.
at::Tensor mixed_by(const BuiltMixer& mixer, const at::Tensor& x, const SequenceMask& mask) {
  const ProbeRecorder recorder([](const std::string& name) { return name == "mixed"; });
  const at::Tensor out = mixer(x, mask);
  const at::Tensor mixed = recorder.kept().at(0).second.detach().transpose(1, 2).flatten(2);
  const at::Tensor mapped = at::matmul(mixed, tensor_of(mixer, "out.weight").t()) + tensor_of(mixer, "out.bias");
  CHECK(max_difference(mapped, out.detach()) < 1e-12);
  return mixed;
}

void check_against_reference(const Json& options, int64_t n, const std::vector<int64_t>& lengths, int64_t max_len) {
  INFO(options.dump() << " n " << n << " of " << lengths[0] << " and " << lengths[1]);
  const BuiltMixer mixer = make_mixer("reformer", options, {.max_len = max_len});
  const at::Tensor x = random_tensor("x", {2, n, 10});
  const SequenceMask mask = length_mask(lengths, n);
  CHECK(max_difference(mixed_by(mixer, x, mask), reference(mixer, x, mask, options, 2, max_len)) < 1e-10);
  CHECK(max_difference(mixed_by(mixer, x, {}), reference(mixer, x, {}, options, 2, max_len)) < 1e-10);
}

TEST_CASE("reformer equals one softmax over what hashing and sorting let a token see, in loops") {
  for (const int64_t rounds : {1, 2, 3, 4})
    for (const bool once : {false, true}) {
      const auto options = [&](int64_t chunk) {
        return Json{{"rounds", rounds}, {"chunk", chunk}, {"dup_correct", once}};
      };
      check_against_reference(options(8), 48, {48, 31}, 48);
      check_against_reference(options(8), 45, {17, 45}, 48);
      check_against_reference(options(4), 5, {5, 1}, 48);     // two chunks, all but one slot of the second empty
      check_against_reference(options(2), 48, {48, 31}, 48);  // 32 buckets from two factors, 4 and 8
      check_against_reference(options(2), 23, {23, 2}, 48);   // 16 buckets from two factors, 4 and 4
      check_against_reference(options(1), 29, {29, 11}, 29);
    }
}

TEST_CASE("reformer up to one chunk is plain attention over the others, for any number of rounds") {
  for (const int64_t rounds : {1, 2, 5})
    for (const int64_t n : {1, 2, 29, 48}) {
      const Json options{{"rounds", rounds}, {"chunk", 48}};
      const BuiltMixer mixer = make_mixer("reformer", options);
      const at::Tensor x = random_tensor("x", {2, n, 10});
      const SequenceMask mask = length_mask({n, (n + 1) / 2}, n);
      // softmax of q_i k_j over valid j other than i, or i alone.
      const auto heads = [&](const char* name) {
        return at::matmul(x, tensor_of(mixer, name).t()).view({2, n, 2, 5}).transpose(1, 2).contiguous();
      };
      const at::Tensor q = heads("query.weight"), v = heads("value.weight");
      const at::Tensor k = q / (q.square().sum(-1, true) + 5e-6).sqrt();
      const at::Tensor scores = at::matmul(q, k.transpose(-1, -2));
      const auto s = scores.accessor<double, 4>();
      const at::Tensor expected = dense_attention(v, mask, n, [&](int64_t b, int64_t h, int64_t i, int64_t j) {
        const bool alone = mask.key_valid[b].sum().item<int64_t>() == 1;
        return i == j && !alone ? 0 : std::exp(s[b][h][i][j]);
      });
      CHECK(max_difference(valid_rows(mixed_by(mixer, x, mask), mask),
                           valid_rows(expected.transpose(1, 2).flatten(2), mask)) < 1e-10);
    }
}

TEST_CASE("reformer of two chunks and one round is plain attention too: each chunk sees the other") {
  const BuiltMixer hashed = make_mixer("reformer", {{"rounds", 1}, {"chunk", 24}}),
                   plain = make_mixer("reformer", {{"rounds", 1}, {"chunk", 48}});
  const at::Tensor x = random_tensor("x", {2, 48, 10});
  CHECK(max_difference(hashed(x, length_mask({48, 31}, 48)), plain(x, length_mask({48, 31}, 48))) < 1e-12);
}

TEST_CASE("reformer gives equal tokens equal weights over all the others") {
  const BuiltMixer mixer = make_mixer("reformer", {}, {.max_len = 48});
  mixer.module->named_parameters()["query.weight"].data().zero_();
  const at::Tensor x = random_tensor("x", {1, 20, 10});
  const at::Tensor v = at::matmul(x, tensor_of(mixer, "value.weight").t());
  CHECK(max_difference(mixed_by(mixer, x, {}), (v.sum(1, true) - v) / 19) < 1e-12);
}

TEST_CASE("reformer golden number: the weight of two unit keys") {
  const BuiltMixer mixer = make_mixer("reformer", {}, {.heads = 1, .head_dim = 1, .max_len = 8});
  for (const char* name : {"query.weight", "value.weight"}) tensor_of(mixer, name).fill_(1);
  // Keys are the signs: token ln 3 / 2 gives weights e^(ln 3 / 2) : e^(-ln 3 / 2) = 3 : 1 to values 8 and -4: 5.
  const at::Tensor x = at::tensor({std::log(3.0) / 2, 8.0, -4.0}, at::kDouble).view({1, 3, 1});
  CHECK(mixed_by(mixer, x, {})[0][0][0].item<double>() == Approx(5).epsilon(1e-5));
}

TEST_CASE("reformer leaves a constant value as it is") {
  const BuiltMixer mixer = make_mixer("reformer", {{"chunk", 4}});
  tensor_of(mixer, "value.weight").copy_(at::eye(10, at::kDouble).roll(1, 0));
  at::Tensor x = random_tensor("x", {2, 45, 10});
  x.narrow(2, 3, 1).fill_(0.7);  // row 4 of the values
  const SequenceMask mask = length_mask({45, 20}, 45);
  const at::Tensor mixed = mixed_by(mixer, x, mask);
  CHECK(max_difference(mixed.narrow(2, 4, 1), valid_rows(at::full({2, 45, 1}, 0.7, at::kDouble), mask)) < 1e-12);
}

TEST_CASE("reformer finds a key ten times its query in at least 95 of 100 cases with 4 rounds") {
  int found = 0, cases = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const BuiltMixer mixer = make_mixer("reformer", {{"rounds", 4}, {"chunk", 16}}, {.seed = seed});
    // Both heads hash the first five columns and mix the others, whose first marks the key.
    const at::Tensor left = at::eye(5, 10, at::kDouble), right = left.roll(5, 1);
    tensor_of(mixer, "query.weight").copy_(at::cat({left, left}, 0));
    tensor_of(mixer, "value.weight").copy_(at::cat({right, right}, 0));
    const at::Tensor x = random_tensor("peak" + std::to_string(seed), {1, 48, 10});
    x.narrow(2, 5, 5).zero_();
    x[0][40].narrow(0, 0, 5).copy_(10 * x[0][3].narrow(0, 0, 5));
    x[0][40][5] = 1;
    const at::Tensor mixed = mixed_by(mixer, x, {});
    for (const int64_t column : {0, 5}) {
      ++cases;
      if (mixed[0][3][column].item<double>() > 0) ++found;
    }
  }
  CHECK(cases == 200);
  CHECK(found >= 190);
}

TEST_CASE("reformer has the parameters of one projection less, without bias before the core") {
  for (const bool bias : {true, false}) {
    const Resolved attention = resolve("reformer");
    BuildContext context = make_context({.heads = 2, .head_dim = 32, .max_len = 2048});
    context.bias = bias;
    const auto mixer = build_mixer(attention, full_options(attention), context);
    int64_t count = 0;
    for (const at::Tensor& parameter : mixer->parameters()) count += parameter.numel();
    CHECK(count == 2 * 64 * 64 + 64 * 64 + (bias ? 64 : 0));
    REQUIRE(mixer->buffers().size() == 1);
    CHECK(mixer->buffers()[0].sizes() == at::IntArrayRef({2, 32, 2, 32}));  // 64 buckets
  }
}

TEST_CASE("reformer costs twice as much at twice the length, hashing apart") {
  const auto flops = [](int64_t max_len, int64_t n, int64_t rounds) {
    const Setup setup{.heads = 2, .head_dim = 32, .max_len = max_len};
    return make_mixer("reformer", {{"rounds", rounds}}, setup).module->cost(1, n).flops_executed;
  };
  // A second round brings its chunks, 16 z n c d over both, and hashing by 2 n / c columns of half as many buckets.
  const auto round = [&](int64_t n) { return flops(4096, n, 2) - flops(4096, n, 1); };
  CHECK(round(2048) == 2.0 * 2048 * 32 * (8 * 64 + 64));
  CHECK(round(4096) == 2.0 * 4096 * 32 * (8 * 64 + 128));
  // With two factors hashing stays small beside the chunks, and the whole grows as the length does.
  CHECK(flops(16384, 16384, 2) / flops(16384, 8192, 2) == Approx(2).epsilon(0.05));
  CHECK(flops(4096, 4096, 2) / flops(4096, 2048, 2) > 2.05);
}

TEST_CASE("reformer drops normalised weights") {
  const BuiltMixer mixer = make_mixer("reformer", {}, {.dropout = 0.5});
  const at::Tensor x = random_tensor("x", {40, 1, 10});
  const at::Tensor whole = mixed_by(mixer, x, {});  // one token each: its weight is 1
  mixer.module->train();
  const at::Tensor share = mixed_by(mixer, x, {}) / whole;
  const at::Tensor kept = share.view({40, 2, 5}).select(2, 0);
  CHECK(at::logical_or(kept.abs() < 1e-12, (kept - 2).abs() < 1e-12).all().item<bool>());
  CHECK(kept.mean().item<double>() > 0.5);  // of 80 numbers 0 or 2
  CHECK(kept.mean().item<double>() < 1.5);
}

TEST_CASE("reformer computes its core in float32 under autocast") {
  const BuiltMixer mixer = make_mixer("reformer", {{"chunk", 4}}, {.type = at::kFloat});
  const at::Tensor x = random_tensor("x", {2, 20, 10}).to(at::kFloat);
  const ProbeRecorder recorder([](const std::string&) { return true; });
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::Tensor out = mixer(x);
  CHECK(at::autocast::is_autocast_enabled(at::kCPU));
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  CHECK(out.scalar_type() == at::kBFloat16);
  for (const auto& [name, tensor] : recorder.kept()) {
    INFO(name);
    CHECK((tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kLong));
  }
}

TEST_CASE("reformer refuses what is longer than it was built for") {
  CHECK_THROWS_AS(make_mixer("reformer", {}, {.max_len = 19})(random_tensor("x", {1, 20, 10})), UserError);
}

}  // namespace xformer::attention::reformer_test
