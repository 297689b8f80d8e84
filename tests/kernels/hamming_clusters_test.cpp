// Clusters of bit strings against their definition by products of signs.
#include "kernels/hamming_clusters/hamming_clusters.h"

#include <ATen/Functions.h>

#include <catch2/catch.hpp>

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
      }
}

TEST_CASE("two groups of codes become two clusters, whose centroids are their majorities") {
  // The start is 0000 (rank 1) and 1111 (rank 4); 0111 is nearer to the second.
  const at::Tensor codes = at::tensor({0, 0, 1, 7, 15, 15}, at::kLong).view({1, 1, 6});
  const at::Tensor found = hamming_clusters(codes, {2, 3, 4, {}});
  CHECK(at::equal(found.flatten(), at::tensor({0, 0, 0, 1, 1, 1}, at::kLong)));
}

}  // namespace xformer::kernels::hamming_clusters_test
