// Clusters of bit strings against their definition by products of signs.
#include "kernels/hamming_clusters/hamming_clusters.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <numeric>
#include <vector>

#include "core/random.h"
#include "kernels/hamming_clusters/cpu.h"
#include "kernels/policy_scope.h"

namespace xformer::kernels::hamming_clusters_test {

TEST_CASE("clusters by bits equal those by products of signs, for any mask and number of clusters") {
  at::manual_seed(3);
  for (const int64_t bits : {1, 7, 63})
    for (const int64_t clusters : {1, 4, 40, 80})
      for (const int64_t rounds : {1, 2, 5}) {
        INFO("bits " << bits << " clusters " << clusters << " rounds " << rounds);
        const at::Tensor ones = at::rand({3, 2, 60, bits}).gt(0.5).to(at::kLong);
        const at::Tensor codes = at::bitwise_left_shift(ones, at::arange(bits, at::kLong)).sum(-1);
        HammingClusterOptions options{clusters, rounds, bits, {}};
        CHECK(at::equal(hamming_clusters(codes, options), hamming_clusters_reference(codes, options)));
        options.valid = at::rand({3, 60}).gt(0.4);
        options.valid[2].fill_(false);
        const at::Tensor found = hamming_clusters(codes, options);
        CHECK(at::equal(found, hamming_clusters_reference(codes, options)));
        CHECK(at::equal(found.ge(0), options.valid.unsqueeze(1).expand({3, 2, 60})));
        CHECK(found.max().item<int64_t>() < clusters);
        const PolicyScope plain(Policy::kReference);
        CHECK(at::equal(hamming_clusters(codes, options), found));
        options.numbers = at::arange(std::max(clusters, bits), at::kLong);
        CHECK(at::equal(hamming_clusters(codes, options), found));
      }
}

TEST_CASE("distances and counts are the same by the processor's own counting of bits and without it") {
  Stream numbers(5);
  for (const int64_t count : {1, 8, 31, 32, 33, 200})
    for (const int64_t clusters : {1, 3, 40}) {
      CAPTURE(count, clusters);
      const auto room = static_cast<size_t>(count + kCodeLanes);
      std::vector<uint64_t> codes(room), centroids(static_cast<size_t>(clusters));
      for (uint64_t& code : codes) code = numbers.next_u64();
      for (uint64_t& code : centroids) code = numbers.next_u64();
      centroids.back() = centroids.front();  // never the nearest: the first of equals is
      std::vector<int64_t> nearest(room), plainly(room), members(static_cast<size_t>(clusters)), same = members;
      nearest_codes(codes.data(), count, centroids.data(), clusters, nearest.data());
      nearest_codes_plainly(codes.data(), count, centroids.data(), clusters, plainly.data());
      std::vector<int32_t> ones(static_cast<size_t>(clusters * kCodeBits)), counted = ones, meant = ones;
      count_ones(codes.data(), plainly.data(), count, ones.data(), members.data());
      count_ones_plainly(codes.data(), plainly.data(), count, counted.data(), same.data());
      for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
        const auto distance = [&](size_t c) { return std::popcount(codes[i] ^ centroids[c]); };
        size_t least = 0;
        for (size_t c = 1; c < centroids.size(); ++c) least = distance(c) < distance(least) ? c : least;
        REQUIRE(nearest[i] == static_cast<int64_t>(least));
        REQUIRE(plainly[i] == nearest[i]);
        for (size_t bit = 0; bit < 64; ++bit) meant[least * 64 + bit] += static_cast<int32_t>(codes[i] >> bit & 1U);
      }
      CHECK(ones == meant);
      CHECK(counted == meant);
      CHECK(members == same);
      CHECK(std::accumulate(members.begin(), members.end(), int64_t{0}) == count);
    }
}

TEST_CASE("two groups of codes become two clusters, whose centroids are their majorities") {
  // The start is 0000 (rank 1) and 1111 (rank 4); 0111 is nearer to the second.
  const at::Tensor codes = at::tensor({0, 0, 1, 7, 15, 15}, at::kLong).view({1, 1, 6});
  const at::Tensor found = hamming_clusters(codes, {2, 3, 4, {}});
  CHECK(at::equal(found.flatten(), at::tensor({0, 0, 0, 1, 1, 1}, at::kLong)));
}

}  // namespace xformer::kernels::hamming_clusters_test
