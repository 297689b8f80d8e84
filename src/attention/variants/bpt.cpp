// BP-Transformer: Ye, Guo, Gan, Qiu, Zhang, "BP-Transformer: Modelling Long-Range Context via Binary Partitioning",
// 2019, section 3. Tokens are the leaves of a binary tree of spans, levels of ceil(n_j / 2) nodes up to one root; every
// node has a state, and all take one layer at once (post-norm, of the whole layer):
//   h = LN(h + W_o attention(h)),   h = LN(h + W_2 relu(W_1 h + b_1) + b_2)
// A span attends to all its leaves. A leaf attends to itself and, on both sides, to k nodes of each level, finer ones
// nearby, coarser ones farther away, which together hold every other token once (attention-more 12):
//   logit = q (k_x + a_e) / sqrt(d)
// with a learned vector a_e for the level of a node (from `level_clip` on the same) and its side and number there,
// shared by heads. Spans begin at zero and go from layer to layer; what comes behind the layers reads the leaves.
// Causal: no nodes on the right; all others end before the leaf.
#include <algorithm>
#include <cmath>

#include "attention/descriptor.h"
#include "attention/multi_head.h"
#include "attention/shared/full_precision.h"
#include "attention/shared/index_tables.h"
#include "kernels/listed_attention/listed_attention.h"
#include "kernels/residual_norm/residual_norm.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::bpt {

constexpr const char* kSpans = "bpt/spans";  // in the carry: [b, spans, m]

struct Options {
  int64_t neighbours = 4;
  int64_t level_clip = 5;
  int64_t ff_dim = 0;
};

// Nodes of each level, the leaves first.
std::vector<int64_t> level_sizes(int64_t n) {
  std::vector<int64_t> result{n};
  while (result.back() > 1) result.push_back((result.back() + 1) / 2);
  return result;
}

struct Edge {
  int64_t node, type;  // of all nodes, level by level; type: of a_e
};

// What leaf i reads, itself first. On both sides a walk goes outwards: k nodes of a level, then on to the next one,
// where it begins with half a node of the level below if the place that it has reached is not the first half of one.
std::vector<Edge> edges_of(int64_t i, const std::vector<int64_t>& sizes, const Options& options, bool causal) {
  const int64_t k = options.neighbours;
  std::vector<Edge> result{{i, 0}};
  int64_t left = i - 1, right = i + 1, start = 0, below = 0;  // first node of the level, and of the one below
  bool left_half = false, right_half = false;
  for (size_t level = 0; level < sizes.size(); ++level) {
    const int64_t type = (2 * k + 1) * std::min(static_cast<int64_t>(level), options.level_clip);
    for (int64_t a = 1; a <= k; ++a, ++right, --left) {
      if (!causal && right < sizes[level]) {
        if (!right_half) {
          result.push_back({start + right, type + 2 * a});
        } else if (2 * right + 1 < sizes[level - 1]) {
          result.push_back({below + 2 * right + 1, type + 2 * a});
          right_half = false;
        }
      }
      if (left < 0) continue;
      result.push_back({left_half ? below + 2 * left : start + left, type + 2 * a - 1});
      left_half = false;
    }
    left_half = left_half || left % 2 == 0;
    right_half = right_half || right % 2 == 1;
    left >>= 1, right >>= 1;
    below = start, start += sizes[level];
  }
  return result;
}

class BptBlock : public LayerBlock {
 public:
  BptBlock(const Options& options, const BuildContext& context)
      : options_(options),
        model_dim_(context.model_dim),
        heads_(context.heads),
        head_dim_(context.head_dim),
        ff_dim_(options.ff_dim > 0 ? options.ff_dim : 2 * context.model_dim),
        causal_(context.causal),
        dropout_(context.make_dropout()) {
    const int64_t m = model_dim_, inner = heads_ * head_dim_;
    const auto linear = [&](const char* name, int64_t in, int64_t out, bool bias, const std::string& scheme) {
      return register_module(name, std::make_shared<Linear>(in, out, bias, scheme, context.init.child(name)));
    };
    query_ = linear("query", m, inner, false, "glra");  // Xavier uniform
    key_ = linear("key", m, inner, false, "glra");
    value_ = linear("value", m, inner, false, "glra");
    out_ = linear("out", inner, m, false, "glra");
    ff_in_ = linear("ff_in", m, ff_dim_, true, context.init_scheme);
    ff_out_ = linear("ff_out", ff_dim_, m, true, context.init_scheme);
    vectors_ = register_parameter("relative", context.init.normal("relative", {types(), head_dim_}, 1));
    const auto norm = [&](const std::string& name) -> kernels::NormWeights {
      return {register_parameter(name + "_weight", at::ones({m})), register_parameter(name + "_bias", at::zeros({m}))};
    };
    if (context.layer == 0) entry_norm_ = norm("entry_norm");
    norm_ = norm("norm");
    ff_norm_ = norm("ff_norm");
  }

  at::Tensor forward(const at::Tensor& x, const SequenceMask& mask, Carry& carry) override {
    XF_ASSERT(mask.causal == causal_, "bpt was built with causal {}", causal_);
    const int64_t b = x.size(0), n = x.size(1);
    const Graph& graph = graph_of(n, x.device());
    const auto known = carry.find(kSpans);
    const at::Tensor leaves = entry_norm_.weight.defined() ? kernels::residual_norm(x, {}, {}, entry_norm_).normed : x;
    const at::Tensor spans =
        known != carry.end() ? known->second : at::zeros({b, graph.nodes - n, model_dim_}, leaves.options());
    const at::Tensor all = at::cat({leaves, spans.to(leaves.scalar_type())}, 1);  // [b,t,m]

    const std::vector<at::Tensor> projected = kernels::linear(all, {query_->map(), key_->map(), value_->map()});
    at::Tensor mixed;  // [b,h,t,d]
    {
      const FullPrecision full(x.device().type(), /*takes_bf16=*/true, /*takes_half_on_devices=*/true);
      const auto split = [&](const at::Tensor& rows) {
        return full(rows).view({b, graph.nodes, heads_, head_dim_}).transpose(1, 2);
      };
      const at::Tensor q = split(projected[0]), k = split(projected[1]), v = split(projected[2]);
      probe("q", q), probe("k", k), probe("v", v);
      // Cut once for all levels: a cut's gradient is as long as all nodes.
      const std::vector<at::Tensor> rows = q.split_with_sizes(graph.sizes, 2);
      const at::Tensor leaf_k = k.narrow(2, 0, n), leaf_v = v.narrow(2, 0, n);
      std::vector<at::Tensor> parts{leaf_rows(rows[0], k, v, graph, mask)};
      // A vector a_e that all keys of a span have in common changes nothing.
      for (size_t level = 1; level < graph.sizes.size(); ++level) {
        const ProbeScope scope("level", static_cast<int64_t>(level));
        parts.push_back(kernels::listed_attention(rows[level], leaf_k, leaf_v,
                                                  {graph.leaves[level - 1], {}, mask.key_valid, {}, {}}));
      }
      mixed = at::cat(parts, 2);
    }
    probe("mixed", mixed);
    const at::Tensor rows = mixed.transpose(1, 2).reshape({b, graph.nodes, heads_ * head_dim_});
    const at::Tensor half = kernels::residual_norm(all, out_->forward(rows), {}, norm_).normed;
    const at::Tensor fed = ff_out_->forward(at::relu(ff_in_->forward(half)));
    const at::Tensor result = kernels::residual_norm(half, fed, {}, ff_norm_).normed;
    carry[kSpans] = result.narrow(1, n, graph.nodes - n);
    const at::Tensor own = result.narrow(1, 0, n);
    return mask.all_valid() ? own : at::where(mask.key_valid.unsqueeze(-1), own, 0);
  }

  [[nodiscard]] Cost cost(int64_t batch, int64_t length) const override {
    const std::vector<int64_t> sizes = level_sizes(length);
    int64_t nodes = 0, longest = 0;
    int64_t edges = length * (static_cast<int64_t>(sizes.size()) - 1);  // of spans to their leaves
    for (const int64_t size : sizes) nodes += size;
    for (int64_t i = 0; i < length; ++i) {
      const auto own = static_cast<int64_t>(edges_of(i, sizes, options_, causal_).size());
      edges += own, longest = std::max(longest, own);
    }
    const double b = static_cast<double>(batch), z = b * static_cast<double>(heads_);
    const double n = static_cast<double>(length), d = static_cast<double>(head_dim_), t = static_cast<double>(nodes);
    const double maps = b * t * static_cast<double>(model_dim_) *
                            (8 * static_cast<double>(heads_ * head_dim_) + 4 * static_cast<double>(ff_dim_)) +
                        2 * z * n * d * static_cast<double>(types());
    const double flops = maps + 4 * z * d * static_cast<double>(edges);
    return {flops, flops, z * n * static_cast<double>(longest) + 14 * b * t * static_cast<double>(model_dim_)};
  }

 private:
  struct Graph {
    int64_t nodes = 0;
    std::vector<int64_t> sizes;
    at::Tensor places, types;        // [1,1,n,L], -1 behind shorter lists; 0 there
    std::vector<at::Tensor> leaves;  // of the spans of each level from 1 on [1,1,s,2^level], -1 behind the last leaf
  };

  [[nodiscard]] int64_t types() const { return (2 * options_.neighbours + 1) * (options_.level_clip + 1); }

  const Graph& graph_of(int64_t n, const at::Device& device) {
    return graphs_.get(n, device, is_training(), [&] { return make_graph(n, device); });
  }

  [[nodiscard]] Graph make_graph(int64_t n, const at::Device& device) const {
    Graph graph;
    graph.sizes = level_sizes(n);
    for (const int64_t size : graph.sizes) graph.nodes += size;
    std::vector<std::vector<Edge>> lists;
    size_t longest = 0;
    for (int64_t i = 0; i < n; ++i) {
      lists.push_back(edges_of(i, graph.sizes, options_, causal_));
      longest = std::max(longest, lists.back().size());
    }
    std::vector<int64_t> places, types;
    for (std::vector<Edge>& list : lists) {
      list.resize(longest, {-1, 0});
      for (const Edge& edge : list) places.push_back(edge.node), types.push_back(edge.type);
    }
    const auto table = [&](const std::vector<int64_t>& list) {
      return host_table(at::tensor(list, at::kLong).view({1, 1, n, -1}), device);
    };
    graph.places = table(places), graph.types = table(types);
    for (size_t level = 1; level < graph.sizes.size(); ++level) {
      const at::Tensor leaf = at::arange(graph.sizes[level] << level, at::kLong).view({1, 1, graph.sizes[level], -1});
      graph.leaves.push_back(host_table(leaf.masked_fill(leaf.ge(n), -1), device));
    }
    return graph;
  }

  // Leaves q [b,h,n,d] over the nodes k, v [b,h,t,d] of their lists.
  [[nodiscard]] at::Tensor leaf_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Graph& graph,
                                     const SequenceMask& mask) const {
    at::Tensor counted;  // [b,t]: a span counts where one of its leaves does
    if (!mask.all_valid()) {
      at::Tensor level = mask.key_valid;
      std::vector<at::Tensor> nodes{level};
      while (level.size(1) > 1)
        nodes.push_back(level = at::constant_pad_nd(level, {0, level.size(1) % 2}).unflatten(1, {-1, 2}).any(2));
      counted = at::cat(nodes, 1);
    }
    // Added to logits, so in float, as the vectors are, where q is bf16.
    const at::Tensor wide = kernels::in_float(q) / std::sqrt(static_cast<double>(head_dim_));
    const at::Tensor relative =  // [b,h,n,L]
        at::matmul(wide, vectors_.t())
            .gather(-1, graph.types.expand({q.size(0), q.size(1), q.size(2), graph.types.size(3)}));
    return kernels::listed_attention(
        q, k, v, {graph.places, {}, counted, mask.key_valid, dropout_.place(is_training())}, relative);
  }

  Options options_;
  int64_t model_dim_, heads_, head_dim_, ff_dim_;
  bool causal_;
  kernels::Dropout dropout_;
  std::shared_ptr<Linear> query_, key_, value_, out_, ff_in_, ff_out_;
  at::Tensor vectors_;  // a [types, d]
  kernels::NormWeights entry_norm_, norm_, ff_norm_;
  TablesByLength<Graph> graphs_;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::neighbours, "neighbours", "nodes of each level that a token reads on each side (k)",
               at_least(1))
          .add(&Options::level_clip, "level_clip", "levels from which on relative vectors are the same", at_least(0))
          .add(&Options::ff_dim, "ff_dim", "hidden width of the layer's feed-forward part; 0: twice the model's width",
               at_least(0));
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor result;
  result.name = "bpt";
  result.aliases = {"bp-transformer"};
  result.title = "BP-Transformer";
  result.paper = "Ye, Guo, Gan, Qiu, Zhang: BP-Transformer: Modelling Long-Range Context via Binary Partitioning, 2019";
  result.method_class = "FP";
  result.summary =
      "A whole layer over a binary tree of spans; a token sees fine spans nearby and coarse ones far away.";
  result.complexity = Complexity::kLinearithmic;
  result.traits = {.causal_ok = true, .carries = true};
  result.appended_padding = always_exact();
  result.options = schema().options();
  result.tensors = {{"query.weight", "W of q = x W^T [h d, m]"},
                    {"key.weight", "W of k = x W^T [h d, m]"},
                    {"value.weight", "W of v = x W^T [h d, m]"},
                    {"out.weight", "W of output = (heads side by side) W^T [m, h d]"},
                    {"ff_in.weight", "W_1 of the feed-forward part [f, m]"},
                    {"ff_in.bias", "b_1 of the feed-forward part [f]"},
                    {"ff_out.weight", "W_2 of the feed-forward part [m, f]"},
                    {"ff_out.bias", "b_2 of the feed-forward part [m]"},
                    {"relative", "a: added to a node's key by its level, side and number [(2 k + 1) (clip + 1), d]"},
                    {"entry_norm_weight", "of the layer norm in front of the first layer [m]"},
                    {"entry_norm_bias", "of the layer norm in front of the first layer [m]"},
                    {"ff_norm_weight", "of the layer norm behind the feed-forward part [m]"},
                    {"ff_norm_bias", "of the layer norm behind the feed-forward part [m]"},
                    {"norm_weight", "of the layer norm behind attention [m]"},
                    {"norm_bias", "of the layer norm behind attention [m]"}};
  result.build_block = [](const Json& options, const BuildContext& context) {
    return std::make_shared<BptBlock>(schema().read(options), context);
  };
  return {result};
}

}  // namespace xformer::attention::variants::bpt
