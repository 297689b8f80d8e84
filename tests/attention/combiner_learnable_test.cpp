// combiner-learnable (attention-more 2).
#include "attention/combiner_support.h"

namespace xformer::attention::combiner_learnable_test {

using namespace support;

struct Case {
  int64_t clusters = 3, pinned = 0, max_len = 48;
  Combined how = {};

  [[nodiscard]] Json options() const {
    return {{"centroids", clusters}, {"pool", how.pool}, {"log_count_bias", how.log_count}};
  }
};

BuiltCore make(const Case& c) {
  return make_core("combiner-learnable", c.options(), {.max_len = c.max_len, .pinned = c.pinned});
}

// Members and surplus of each cluster, of one head's keys [n,d] behind the pinned tokens.
struct Clusters {
  std::vector<std::vector<int64_t>> members, surplus;
};

Clusters clusters_of(const at::Tensor& k, const std::vector<bool>& valid, const at::Tensor& centroids, int64_t most) {
  const auto count = static_cast<size_t>(centroids.size(0));
  std::vector<std::vector<std::pair<double, int64_t>>> ranked(count);
  for (int64_t j = 0; j < k.size(0); ++j) {
    if (!valid[static_cast<size_t>(j)]) continue;
    const at::Tensor centred = k[j] - k[j].mean();
    const at::Tensor scores = at::mv(centroids, centred / (centred.square().mean() + 1e-5).sqrt());
    const auto nearest = scores.argmax().item<int64_t>();
    ranked[static_cast<size_t>(nearest)].push_back({-scores[nearest].item<double>(), j});
  }
  Clusters result{std::vector<std::vector<int64_t>>(count), std::vector<std::vector<int64_t>>(count)};
  for (size_t c = 0; c < count; ++c) {
    std::sort(ranked[c].begin(), ranked[c].end());
    for (size_t i = 0; i < ranked[c].size(); ++i)
      (static_cast<int64_t>(i) < most ? result.members : result.surplus)[c].push_back(ranked[c][i].second);
  }
  return result;
}

Supports supports_of(const Clusters& clusters, int64_t row) {
  Supports result;
  for (const auto& members : clusters.members) {
    if (std::find(members.begin(), members.end(), row) != members.end()) result.direct = members;
    else if (!members.empty()) result.sets.push_back(members);
  }
  for (const auto& surplus : clusters.surplus)
    if (!surplus.empty()) result.sets.push_back(surplus);
  return result;
}

at::Tensor reference(const Case& c, const BuiltCore& core, const Inputs& in, const SequenceMask& mask) {
  const int64_t n = in.q.size(2), p = std::min(c.pinned, n), longest = c.max_len - c.pinned;
  const int64_t most = 2 * ((longest + c.clusters - 1) / c.clusters);
  const at::Tensor centroids = core.module->named_buffers()["centroids"];
  std::map<std::pair<int64_t, int64_t>, Clusters> known;
  for (int64_t b = 0; b < in.q.size(0); ++b)
    for (int64_t h = 0; h < in.q.size(1); ++h) {
      const std::vector<bool> all = valid_tokens(mask, b, n);
      const std::vector<bool> valid(all.begin() + p, all.end());
      known[{b, h}] = clusters_of(in.k[b][h].narrow(0, p, n - p), valid, centroids[h], most);
    }
  return combined(in, mask,
                  behind_pinned(p, n, false,
                                [&](int64_t b, int64_t h, int64_t row) {
                                  return supports_of(known.at({b, h}), row);
                                }),
                  c.how);
}

TEST_CASE("combiner-learnable equals its definition in loops, with surplus, holes and pinned tokens") {
  for (const Case& c : {Case{}, Case{4, 0, 24}, Case{6, 0, 12}, Case{5, 2, 30}, Case{4, 0, 16, {"mean", true}},
                        Case{4, 0, 16, {"sum", false}}, Case{4, 0, 16, {"relu", true}}, Case{9, 0, 9}})
    for (const int64_t n : {48, 31, 7, 2, 1}) {
      INFO(c.options().dump() << " longest " << c.max_len << " pinned " << c.pinned << " n " << n);
      const BuiltCore core = make(c);
      const Inputs in = random_inputs(2, 2, n, 5);
      for (const SequenceMask& mask : {SequenceMask{}, length_mask({n, (2 * n + 2) / 3}, n), holes(n, false)})
        CHECK(max_difference(valid_rows(core(in.q, in.k, in.v, mask), mask), reference(c, core, in, mask)) < 1e-10);
    }
}

TEST_CASE("combiner-learnable's members, and surplus where a cluster overflows, partition the valid tokens") {
  const Case c{6, 0, 12};  // at most four members
  const BuiltCore core = make(c);
  const Inputs in = random_inputs(1, 1, 48, 5);
  const std::vector<bool> valid(48, true);
  const Clusters clusters = clusters_of(in.k[0][0], valid, core.module->named_buffers()["centroids"][0], 4);
  size_t surplus = 0;
  for (const auto& one : clusters.surplus) surplus += one.size();
  CHECK(surplus >= 24);
  CHECK(partitions([&](int64_t, int64_t, int64_t row) { return supports_of(clusters, row); }, 48, false));
}

TEST_CASE("combiner-learnable of one cluster is softmax attention") {
  const Inputs in = random_inputs(2, 2, 29, 5);
  const SequenceMask mask = length_mask({29, 11}, 29);
  const BuiltCore core = make({.clusters = 1});
  CHECK(max_difference(valid_rows(core(in.q, in.k, in.v, mask), mask), valid_rows(dense_softmax(in, mask), mask)) <
        1e-10);
}

TEST_CASE("combiner-learnable's centroids follow the keys of a step, and padding does not move them") {
  const Case c{2};
  const BuiltCore core = make(c), other = make(c);
  core.module->train(), other.module->train();
  Inputs in = random_inputs(2, 2, 12, 5);
  const SequenceMask mask = length_mask({12, 7}, 12);
  (void)core(in.q, in.k, in.v, mask);
  in.k[1].narrow(1, 7, 5).fill_(1e3);
  (void)other(in.q, in.k, in.v, mask);
  auto buffers = core.module->named_buffers();
  const at::Tensor before = buffers["centroids"].clone();
  CHECK(buffers["step_counts"].sum().item<double>() == 2 * 19);
  core.module->after_step(1), other.module->after_step(1);
  CHECK(at::equal(buffers["centroids"], other.module->named_buffers()["centroids"]));

  const at::Tensor centred = in.k - in.k.mean(-1, true);
  const at::Tensor normed = centred / (centred.square().mean(-1, true) + 1e-5).sqrt();
  for (int64_t h = 0; h < 2; ++h) {
    at::Tensor counts = at::ones({2}, at::kDouble) * 0.999, sums = before[h] * 0.999;
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t j = 0; j < (b == 0 ? 12 : 7); ++j) {
        const auto nearest = at::mv(before[h], normed[b][h][j]).argmax().item<int64_t>();
        counts[nearest] += 0.001;
        sums[nearest] += 0.001 * normed[b][h][j];
      }
    const at::Tensor smooth = (counts + 1e-5) / (counts.sum() + 2e-5) * counts.sum();
    CHECK(max_difference(buffers["centroids"][h], sums / smooth.unsqueeze(1)) < 1e-12);
  }
  CHECK(buffers["step_counts"].sum().item<double>() == 0);
  // Evaluation leaves no trace.
  core.module->eval();
  (void)core(in.q, in.k, in.v, mask);
  CHECK(buffers["step_counts"].sum().item<double>() == 0);
}

TEST_CASE("a step whose keys are no numbers leaves combiner-learnable's centroids as they are") {
  const BuiltCore core = make({2});
  core.module->train();
  Inputs in = random_inputs(2, 2, 12, 5);
  (void)core(in.q, in.k, in.v);
  core.module->after_step(1);
  auto buffers = core.module->named_buffers();
  const at::Tensor centroids = buffers["centroids"].clone(), counts = buffers["cluster_counts"].clone();
  in.k[1].narrow(1, 3, 1).fill_(NAN);
  (void)core(in.q, in.k, in.v);
  core.module->after_step(2);
  CHECK(at::equal(buffers["centroids"], centroids));
  CHECK(at::equal(buffers["cluster_counts"], counts));
  CHECK(buffers["step_sums"].eq(0).all().item<bool>());
}

TEST_CASE("combiner-learnable has no causal form, and says so") {
  CHECK_THROWS_WITH(make_core("combiner-learnable", {}, {.causal = true}),
                    Catch::Matchers::Contains("combiner-learnable has no causal form"));
}

}  // namespace xformer::attention::combiner_learnable_test
