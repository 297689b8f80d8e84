#include "kernels/hamming_clusters/hamming_clusters.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "kernels/cpu/units.h"
#include "kernels/cpu/valid_rows.h"
#include "kernels/fused.h"
#include "kernels/hamming_clusters/cpu.h"

namespace xformer::kernels {

namespace {

// Clusters of the tokens `places` of one head.
void cluster_head(const int64_t* codes, const std::vector<int64_t>& places, const HammingClusterOptions& options,
                  int64_t* into) {
  const auto count = static_cast<int64_t>(places.size()), clusters = options.clusters;
  if (count <= clusters) {
    for (int64_t rank = 0; rank < count; ++rank) into[places[static_cast<size_t>(rank)]] = rank;
    return;
  }
  // Codes and clusters of the valid tokens side by side, with room for a last step that is not full.
  const auto room = static_cast<size_t>(count + kCodeLanes);
  std::vector<uint64_t> own(room), centroids;
  std::vector<int64_t> nearest(room);
  for (int64_t i = 0; i < count; ++i)
    own[static_cast<size_t>(i)] = static_cast<uint64_t>(codes[places[static_cast<size_t>(i)]]);
  for (int64_t c = 0; c < clusters; ++c)
    centroids.push_back(own[static_cast<size_t>((2 * c + 1) * count / (2 * clusters))]);
  std::vector<int32_t> ones(static_cast<size_t>(clusters * kCodeBits));
  std::vector<int64_t> members(static_cast<size_t>(clusters));
  for (int64_t round = 0; round < options.rounds; ++round) {
    if (round > 0) {
      std::fill(ones.begin(), ones.end(), 0);
      std::fill(members.begin(), members.end(), 0);
      count_ones(own.data(), nearest.data(), count, ones.data(), members.data());
      for (int64_t c = 0; c < clusters; ++c) {
        const int64_t of = members[static_cast<size_t>(c)];
        if (of == 0) continue;
        uint64_t code = 0;
        for (int64_t bit = 0; bit < options.bits; ++bit)
          if (2 * int64_t{ones[static_cast<size_t>(c * kCodeBits + bit)]} > of) code |= uint64_t{1} << bit;
        centroids[static_cast<size_t>(c)] = code;
      }
    }
    nearest_codes(own.data(), count, centroids.data(), clusters, nearest.data());
  }
  for (int64_t i = 0; i < count; ++i) into[places[static_cast<size_t>(i)]] = nearest[static_cast<size_t>(i)];
}

at::Tensor hamming_clusters_cpu(const at::Tensor& codes_in, const HammingClusterOptions& options) {
  const at::Tensor codes = codes_in.contiguous(), result = at::full_like(codes, -1);
  const int64_t h = codes.size(1), n = codes.size(2);
  const ValidRows valid(options.valid, n);
  for_units(codes.size(0) * h, n * options.clusters * options.rounds, [&](int64_t unit, int64_t /*worker*/) {
    std::vector<int64_t> places;
    for (int64_t i = 0; i < n; ++i)
      if (valid.at(unit / h, i)) places.push_back(i);
    cluster_head(codes.const_data_ptr<int64_t>() + unit * n, places, options,
                 result.mutable_data_ptr<int64_t>() + unit * n);
  });
  return result;
}

const Operator<hamming_clusters_cpu> hamming_clusters_operator{"hamming_clusters"};

}  // namespace

at::Tensor hamming_clusters(const at::Tensor& codes, const HammingClusterOptions& options) {
  const bool wanted = policy() != Policy::kComposite && policy() != Policy::kReference;
  const bool fused = wanted && hamming_clusters_operator.runs_on(codes);
  calls_of("hamming_clusters").count(codes, fused);
  if (!fused) return hamming_clusters_reference(codes, options);
  const at::Tensor result = hamming_clusters_operator(codes, options);
  check_forward("hamming_clusters", {result.to(at::kDouble)},
                [&] { return variable_list{hamming_clusters_reference(codes, options).to(at::kDouble)}; });
  return result;
}

at::Tensor hamming_clusters_reference(const at::Tensor& codes, const HammingClusterOptions& options) {
  const int64_t b = codes.size(0), h = codes.size(1), n = codes.size(2), clusters = options.clusters;
  const at::Tensor numbers =
      options.numbers.defined() ? options.numbers : at::arange(std::max(clusters, options.bits), codes.options());
  const at::Tensor cluster = numbers.narrow(0, 0, clusters), bit = numbers.narrow(0, 0, options.bits);
  const at::Tensor valid =
      (options.valid.defined() ? options.valid : at::ones({b, n}, codes.options().dtype(at::kBool)))
          .unsqueeze(1);                                     // [b,1,n]
  const at::Tensor count = valid.sum(-1, /*keepdim=*/true);  // [b,1,1]
  const at::Tensor rank = valid.cumsum(-1) - 1;              // [b,1,n]
  // Valid tokens first, in their order.
  const at::Tensor order = at::argsort(valid.logical_not().to(at::kInt), /*stable=*/true, -1);
  const at::Tensor first = at::floor_divide((cluster * 2 + 1) * count, 2 * clusters).clamp_max(n - 1);  // [b,1,C]
  const at::Tensor places = order.gather(-1, first).expand({b, h, clusters});

  const at::Tensor bits = at::bitwise_right_shift(codes.unsqueeze(-1), bit).bitwise_and(1);  // [b,h,n,bits]
  const at::Tensor signs = (bits * 2 - 1).to(at::kFloat);
  at::Tensor centroids = signs.gather(2, places.unsqueeze(-1).expand({b, h, clusters, options.bits}));
  at::Tensor nearest;  // [b,h,n]
  for (int64_t round = 0; round < options.rounds; ++round) {
    if (round > 0) {
      const at::Tensor member = nearest.unsqueeze(-2).eq(cluster.unsqueeze(-1));  // [b,h,C,n]
      const at::Tensor own = member.logical_and(valid.unsqueeze(2)).to(at::kFloat);
      const at::Tensor majority = at::where(at::matmul(own, signs).gt(0), 1.0F, -1.0F);
      centroids = at::where(own.sum(-1, /*keepdim=*/true).gt(0), majority.to(at::kFloat), centroids);
    }
    nearest = at::matmul(signs, centroids.transpose(-1, -2)).argmax(-1);
  }
  return at::where(count.le(clusters), rank, nearest).masked_fill(valid.logical_not(), -1);
}

}  // namespace xformer::kernels
