// clustered and improved-clustered (attention-third 7).
#include <algorithm>
#include <numeric>

#include "attention/support.h"
#include "tensor/probe.h"

namespace xformer::attention::clustered_test {

using namespace support;

const std::vector<std::string> kNames{"clustered", "improved-clustered"};

struct Seen {
  at::Tensor out;
  std::map<std::string, at::Tensor> kept;
};

Seen run(const BuiltCore& core, const Inputs& in, const SequenceMask& mask = {}) {
  const ProbeRecorder recorder([](const std::string&) { return true; });
  Seen result{core(in.q, in.k, in.v, mask), {}};
  for (const auto& [name, tensor] : recorder.kept()) result.kept[name] = tensor.detach();
  return result;
}

// The equations for clusters that are given, in loops over rows; top 0: not improved.
at::Tensor reference(const Inputs& in, const SequenceMask& mask, const at::Tensor& clusters, int64_t top) {
  const int64_t n = in.q.size(2), d = in.q.size(3);
  at::Tensor out = at::zeros_like(in.v);
  for (int64_t b = 0; b < in.q.size(0); ++b)
    for (int64_t h = 0; h < in.q.size(1); ++h) {
      std::vector<int64_t> valid;
      for (int64_t i = 0; i < n; ++i)
        if (mask.all_valid() || mask.key_valid[b][i].item<bool>()) valid.push_back(i);
      const at::Tensor rows = at::tensor(valid, at::kLong);
      const at::Tensor q = in.q[b][h].index_select(0, rows), k = in.k[b][h].index_select(0, rows),
                       v = in.v[b][h].index_select(0, rows), own = clusters[b][h].index_select(0, rows);
      for (size_t i = 0; i < valid.size(); ++i) {
        const at::Tensor members = own.eq(own[static_cast<int64_t>(i)]).to(at::kDouble);
        const at::Tensor mean = at::matmul(members, q) / members.sum();
        const at::Tensor weights = at::softmax(at::mv(k, mean) / std::sqrt(static_cast<double>(d)), 0);
        at::Tensor row = at::matmul(weights, v);
        if (top > 0) {
          const at::Tensor best = std::get<1>(at::topk(weights, std::min<int64_t>(top, weights.size(0))));
          const at::Tensor kept = at::zeros_like(weights).index_fill(0, best, 1);
          const at::Tensor scores = at::mv(k, q[static_cast<int64_t>(i)]) / std::sqrt(static_cast<double>(d));
          const at::Tensor exact = at::exp(scores) * kept;
          row = (weights * kept).sum() * at::matmul(exact / exact.sum(), v) + at::matmul(weights * (1 - kept), v);
        }
        out[b][h][valid[i]].copy_(row);
      }
    }
  return out;
}

TEST_CASE("clustered attention equals its equations in loops, for ragged lengths, any length and length 1") {
  for (const std::string& name : kNames)
    for (const int64_t n : {1, 2, 7, 40})
      for (const int64_t top : {3, 60}) {
        INFO(name << " n " << n << " top " << top);
        const Inputs in = random_inputs(2, 2, n, 5);
        const BuiltCore core = make_core(name, {{"clusters", 4}, {"top_k", top}});
        for (const SequenceMask& mask : ragged_masks(n)) {
          const Seen seen = run(core, in, mask);
          const at::Tensor meant =
              reference(in, mask, seen.kept.at("clusters"), name == "improved-clustered" ? top : 0);
          CHECK(max_difference(valid_rows(seen.out, mask), meant) < 1e-10);
          CHECK(max_difference(valid_rows(core(in.q, in.k, in.v, mask), mask), meant) < 1e-10);
        }
      }
}

// A scalar Lloyd: codes as strings of bits, valid tokens of one head.
std::vector<int64_t> lloyd(const std::vector<std::vector<bool>>& codes, int64_t clusters, int64_t rounds) {
  const auto count = static_cast<int64_t>(codes.size());
  std::vector<int64_t> own(codes.size());
  if (count <= clusters) {
    std::iota(own.begin(), own.end(), 0);
    return own;
  }
  std::vector<std::vector<bool>> centroids;
  for (int64_t c = 0; c < clusters; ++c)
    centroids.push_back(codes[static_cast<size_t>(
        std::floor((static_cast<double>(c) + 0.5) * static_cast<double>(count) / static_cast<double>(clusters)))]);
  for (int64_t round = 0; round < rounds; ++round) {
    for (size_t c = 0; round > 0 && c < centroids.size(); ++c)
      for (size_t bit = 0; bit < centroids[c].size(); ++bit) {
        int64_t ones = 0, zeros = 0;
        for (size_t i = 0; i < codes.size(); ++i)
          if (own[i] == static_cast<int64_t>(c)) ++(codes[i][bit] ? ones : zeros);
        if (ones + zeros > 0) centroids[c][bit] = ones > zeros;
      }
    for (size_t i = 0; i < codes.size(); ++i) {
      int64_t least = 1000;
      for (size_t c = 0; c < centroids.size(); ++c) {
        int64_t distance = 0;
        for (size_t bit = 0; bit < codes[i].size(); ++bit) distance += codes[i][bit] != centroids[c][bit];
        if (distance < least) least = distance, own[i] = static_cast<int64_t>(c);
      }
    }
  }
  return own;
}

TEST_CASE("clusters are those of Lloyd's k-means on the bits that the planes give") {
  for (const bool bias : {false, true})
    for (const int64_t rounds : {1, 2, 6}) {
      const int64_t n = 50;
      const BuiltCore core = make_core(
          "clustered", {{"clusters", 5}, {"hash_bits", 11}, {"lloyd_iterations", rounds}, {"hash_bias", bias}});
      at::Tensor planes;
      for (const auto& [key, value] : core.state()) planes = value;
      REQUIRE(planes.sizes() == at::IntArrayRef({11, 6}));
      CHECK((planes.select(1, 5).abs().max().item<double>() > 0) == bias);
      const Inputs in = random_inputs(2, 2, n, 5);
      const SequenceMask mask = length_mask({n, 33}, n);
      const at::Tensor got = run(core, in, mask).kept.at("clusters");
      for (int64_t b = 0; b < 2; ++b)
        for (int64_t h = 0; h < 2; ++h) {
          const int64_t valid = b == 0 ? n : 33;
          std::vector<std::vector<bool>> codes;
          for (int64_t i = 0; i < valid; ++i) {
            codes.emplace_back();
            for (int64_t bit = 0; bit < 11; ++bit)
              codes.back().push_back(at::dot(in.q[b][h][i], planes[bit].narrow(0, 0, 5)).item<double>() >
                                     planes[bit][5].item<double>());
          }
          const std::vector<int64_t> meant = lloyd(codes, 5, rounds);
          for (int64_t i = 0; i < n; ++i)
            CHECK(got[b][h][i].item<int64_t>() == (i < valid ? meant[static_cast<size_t>(i)] : -1));
        }
    }
}

TEST_CASE("clusters of equal queries give softmax, and the improved form no worse rows than the plain one") {
  const int64_t n = 60;
  Inputs in = random_inputs(1, 2, n, 5);
  const SequenceMask mask = length_mask({51}, n);
  const Inputs four{in.q.narrow(2, 0, 4).repeat({1, 1, 15, 1}), in.k, in.v};
  for (const std::string& name : kNames) {
    const BuiltCore core = make_core(name, {{"clusters", 20}, {"top_k", 5}});
    CHECK(max_difference(valid_rows(core(four.q, four.k, four.v, mask), mask),
                         valid_rows(dense_softmax(four, mask), mask)) < 1e-10);
    // All queries alike: one cluster is used.
    const Seen same = run(core, {in.q.narrow(2, 3, 1).expand({1, 2, n, 5}), in.k, in.v});
    CHECK(same.kept.at("clusters").amax().item<int64_t>() == same.kept.at("clusters").amin().item<int64_t>());
    CHECK(same.out.isfinite().all().item<bool>());
  }
  // Rows of weights: values that are unit vectors. Proposition 2: the improved rows are nearer to softmax's.
  in.v = at::eye(n, at::kDouble).expand({1, 2, n, n});
  const auto rows = [&](const std::string& name) {
    return make_core(name, {{"clusters", 6}, {"top_k", 8}})(in.q, in.k, in.v, mask).narrow(2, 0, 51);
  };
  const at::Tensor exact = dense_softmax(in, mask).narrow(2, 0, 51), plain = rows("clustered"),
                   improved = rows("improved-clustered");
  CHECK(max_difference(plain.sum(-1), at::ones({1, 2, 51}, at::kDouble)) < 1e-10);
  CHECK(max_difference(improved.sum(-1), at::ones({1, 2, 51}, at::kDouble)) < 1e-10);
  const at::Tensor gain = (plain - exact).abs().sum(-1) - (improved - exact).abs().sum(-1);
  CHECK(gain.min().item<double>() > -1e-10);
  CHECK(gain.mean().item<double>() > 0.05);
}

TEST_CASE("clustered attention's cost, buffer and refusals are those that it states") {
  const auto flops = [](const std::string& name) {
    return make_core(name).module->cost({3, 2, 2048, 2048, 5}).flops_executed;
  };
  CHECK(flops("clustered") == 6.0 * 2048 * 5 * (2 * 63 + 4 * 100));
  CHECK(flops("improved-clustered") == 6.0 * 2048 * 5 * (2 * 63 + 4 * 100 + 4 * 32));
  for (const std::string& name : kNames) {
    CHECK(parameters_of(name) == 16640);
    const BuiltMixer mixer = make_mixer(name, {}, {.head_dim = 32});
    const auto buffers = mixer.shared->named_buffers();
    REQUIRE(buffers.size() == 1);
    CHECK(buffers[0].value().numel() == 63 * 33);
    CHECK_THROWS_WITH(make_core(name, {}, {.causal = true}), Catch::Matchers::Contains("causal"));
  }
  const BuiltCore scaled = make_core("mrs-clustered", {{"scales", {1, 3}}});
  CHECK(scaled.shared->named_buffers().size() == 1);  // of all scales
}

}  // namespace xformer::attention::clustered_test
