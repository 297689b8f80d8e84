// Clustered attention: Vyas, Katharopoulos, Fleuret, "Fast Transformers with Clustered Attention", NeurIPS 2020.
//   clustered           queries are clustered, c(i) the cluster of query i; the mean q~ of a cluster's members attends
//                       for all of them (section 3.2):
//                       A^c = softmax(q~ k^T / sqrt(d)),   o_i = sum_j A^c(i)_j v_j
//   improved-clustered  the top_k keys T_c of A^c, with mass m_c, are weighed again by each query (section 3.3):
//                       o_i = m_c sum over T_c of softmax_T(q_i k_j / sqrt(d)) v_j + sum over the others of A^c_j v_j
// over valid keys. Codes: bit b of q_i is [q_i a_b > t_b], a_b ~ N(0, I), t_b ~ N(0, 1), one set of planes for all
// heads of a layer; clusters by k-means of codes under the Hamming distance (kernels/hamming_clusters). The planes
// stay, where the published code draws new ones in each pass, in evaluation too; and the start is evenly spread over a
// sample's own tokens, so that neither padding nor the rest of a batch moves a cluster (attention-third 7). Gradients
// go through means, weights, masses and the exact part, none through codes, clusters and top keys. There is no causal
// form: clusters hold later queries.
#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>

#include "attention/descriptor.h"
#include "attention/shared/index_tables.h"
#include "attention/shared/random_features.h"
#include "kernels/batched_product/batched_product.h"
#include "kernels/hamming_clusters/hamming_clusters.h"
#include "kernels/largest_places/largest_places.h"
#include "kernels/listed_attention/listed_attention.h"
#include "kernels/picked_rows/picked_rows.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::clustered {

struct Options {
  int64_t clusters = 100;
  int64_t hash_bits = 63;
  int64_t lloyd_iterations = 10;
  bool hash_bias = true;
};

struct ImprovedOptions : Options {
  int64_t top_k = 32;
};

class ClusteredCore : public AttentionCore {
 public:
  // `top_k` 0: not improved.
  ClusteredCore(const Options& options, int64_t top_k, const BuildContext& context)
      : options_(options), top_k_(top_k), dropout_(context.make_dropout()), exact_dropout_(context.make_dropout()) {
    planes_ =
        RandomFeatures("clustered", "planes", 0, context, [options, width = context.head_dim + 1](Stream numbers) {
          at::Tensor planes = at::empty({options.hash_bits, width}, at::kDouble);
          double* const values = planes.data_ptr<double>();
          for (int64_t i = 0; i < options.hash_bits * width; ++i)
            values[i] = (i + 1) % width == 0 && !options.hash_bias ? 0 : next_normal(numbers);
          return planes.to(at::kFloat);
        });
  }

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    const int64_t b = q.size(0), h = q.size(1), n = q.size(2), d = q.size(3);
    XF_ASSERT(!mask.causal && k.size(2) == n, "{} queries of {} keys are clustered, not causal", n, k.size(2));
    const int64_t clusters = std::min(options_.clusters, n);
    const at::Tensor numbers = tables_.numbers(std::max(clusters, options_.hash_bits), q.device());
    const at::Tensor own = kernels::hamming_clusters(codes(q), {clusters, options_.lloyd_iterations, options_.hash_bits,
                                                                mask.key_valid, numbers});  // [b,h,n], -1: padding
    // Padding gathers in a cluster behind the others, which nobody reads.
    const at::Tensor slot = own.remainder(clusters + 1), read = own.clamp_min(0);
    const auto total = [&](const at::Tensor& rows) {  // of a cluster's members [b,h,C,x]
      return kernels::summed_rows(rows, slot, clusters + 1).narrow(2, 0, clusters);
    };
    const at::Tensor members = total(at::ones({b, h, n, 1}, q.options()));
    const at::Tensor centroids = total(q) / members.clamp_min(1);  // q~ [b,h,C,d]
    const double scale = 1 / std::sqrt(static_cast<double>(d));
    const at::Tensor weights =
        masked_softmax(kernels::batched_product(centroids * scale, k.transpose(-1, -2)), mask);  // [b,h,C,n]
    probe("clusters", own), probe("centroids", centroids), probe("weights", weights);
    const auto of_rows = [&](const at::Tensor& x) {  // [b,h,C,x] -> [b,h,n,x]
      return kernels::picked_rows(x, read);
    };
    if (top_k_ == 0) return of_rows(kernels::batched_product(dropout_(weights, is_training()), v));

    const at::Tensor top = kernels::largest_places(weights, std::min(top_k_, n));  // T [b,h,C,k]
    const at::Tensor mass = weights.gather(3, top).sum(-1, /*keepdim=*/true);      // m [b,h,C,1]
    const at::Tensor rest = kernels::batched_product(dropout_(weights.scatter(3, top, 0), is_training()), v);
    at::Tensor places = top;  // without those that have no weight because they are padding
    if (!mask.all_valid()) {
      const at::Tensor valid = mask.key_valid.unsqueeze(1).unsqueeze(1).expand(weights.sizes()).gather(3, top);
      places = at::where(valid, top, -1);
    }
    probe("top_keys", places), probe("mass", mass.squeeze(-1));
    at::Tensor exact;
    {
      const ProbeScope scope("top");
      exact = kernels::listed_attention(
          q, k, v, {places, read, mask.key_valid, mask.query_valid(n), exact_dropout_.place(is_training())});
    }
    return of_rows(mass) * exact + of_rows(rest);
  }

  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const double z = static_cast<double>(shape.batch * shape.heads), d = static_cast<double>(shape.head_dim);
    const double n = static_cast<double>(shape.query_len), bits = static_cast<double>(options_.hash_bits);
    const auto clusters = static_cast<double>(std::min(options_.clusters, shape.query_len));
    const auto top = static_cast<double>(std::min(top_k_, shape.query_len));
    const double flops = z * n * d * (2 * bits + 4 * clusters + 4 * top);
    return {flops, flops, z * (clusters * n + 2 * clusters * d + 4 * n * d + n * top)};
  }

 private:
  // int64 [b,h,n], a bit for each plane.
  [[nodiscard]] at::Tensor codes(const at::Tensor& q) const {
    const at::NoGradGuard no_grad;
    const at::Tensor planes = planes_.omega.to(q.scalar_type());
    const int64_t d = q.size(3);
    const at::Tensor above = at::matmul(q, planes.narrow(1, 0, d).t()).gt(planes.select(1, d));  // [b,h,n,bits]
    const at::Tensor places = tables_.numbers(options_.hash_bits, q.device());
    return at::bitwise_left_shift(above.to(at::kLong), places).sum(-1);
  }

  Options options_;
  int64_t top_k_;
  kernels::Dropout dropout_, exact_dropout_;
  IndexTables tables_;
  RandomFeatures planes_;  // a and t side by side [bits, d + 1]
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::clusters, "clusters", "clusters of the tokens (C); at most as many as tokens", at_least(1))
          .add(&Options::hash_bits, "hash_bits", "bits of the codes that are clustered", between(1, 63))
          .add(&Options::lloyd_iterations, "lloyd_iterations", "times that tokens are assigned to clusters",
               at_least(1))
          .add(&Options::hash_bias, "hash_bias", "planes of the codes at random distances, not all through the origin");
  return kSchema;
}

const Schema<ImprovedOptions>& improved_schema() {
  static const Schema<ImprovedOptions> kSchema = Schema<ImprovedOptions>().include(schema()).add(
      &ImprovedOptions::top_k, "top_k", "keys that a row or cluster keeps", at_least(1));
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor plain;
  plain.name = "clustered";
  plain.aliases = {"clustered-attention"};
  plain.title = "Clustered attention";
  plain.paper = "Vyas, Katharopoulos, Fleuret: Fast Transformers with Clustered Attention, 2020";
  plain.method_class = "LP";
  plain.summary = "Queries are clustered by hashes, and the mean of a cluster attends for all of its members.";
  plain.complexity = Complexity::kLinear;
  plain.appended_padding = always_exact();
  plain.options = schema().options();
  plain.tensors = {
      {"clustered_planes", "planes that give the bits of codes: a and, last, t; of all heads [bits, d + 1]"}};
  plain.dense_limit = Json{{"clusters", 1 << 30}};
  plain.build_core = [](const Json& options, const BuildContext& context) -> std::shared_ptr<AttentionCore> {
    return std::make_shared<ClusteredCore>(schema().read(options), 0, context);
  };

  Descriptor improved = plain;
  improved.name = "improved-clustered";
  improved.aliases = {"i-clustered"};
  improved.title = "Improved clustered attention";
  improved.summary = "As clustered; the keys that a cluster weighs most are weighed by each of its queries again.";
  improved.options = improved_schema().options();
  improved.dense_limit = Json{{"top_k", 1 << 30}};
  improved.build_core = [](const Json& options, const BuildContext& context) -> std::shared_ptr<AttentionCore> {
    const ImprovedOptions own = improved_schema().read(options);
    return std::make_shared<ClusteredCore>(own, own.top_k, context);
  };
  return {plain, improved};
}

}  // namespace xformer::attention::variants::clustered
