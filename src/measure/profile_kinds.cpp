// Which kind of work an operator is, by its name and LibTorch's tags.
#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "measure/profile.h"
#include "tensor/op_profiler.h"

namespace xformer::measure {

namespace {

struct Part {
  std::string_view part, kind;
};

// Names that their parts would place wrongly, or that no part places. Without namespace and trailing underscore.
std::string_view kind_by_name(std::string_view name) {
  static const std::unordered_map<std::string_view, std::string_view> kKinds = [] {
    std::unordered_map<std::string_view, std::string_view> kinds;
    for (const std::string_view it : {"mm",
                                      "bmm",
                                      "addmm",
                                      "addbmm",
                                      "baddbmm",
                                      "_addmm_activation",
                                      "mv",
                                      "addmv",
                                      "dot",
                                      "vdot",
                                      "linear",
                                      "normed_linear",
                                      "classifier",
                                      "branch",
                                      "feed_forward",
                                      "matmul",
                                      "einsum",
                                      "tensordot",
                                      "project_tokens",
                                      "convolve_tokens",
                                      "pseudo_inverse",
                                      "landmark_weights",
                                      "convolution",
                                      "convolution_backward",
                                      "conv1d",
                                      "conv2d"})
      kinds[it] = "products";
    for (const std::string_view it : {"copy",
                                      "clone",
                                      "contiguous",
                                      "to",
                                      "_to_copy",
                                      "cat",
                                      "stack",
                                      "fill",
                                      "zero",
                                      "zeros",
                                      "zeros_like",
                                      "ones",
                                      "ones_like",
                                      "full",
                                      "full_like",
                                      "new_zeros",
                                      "gather",
                                      "repeat",
                                      "index_select",
                                      "index",
                                      "index_put",
                                      "index_add",
                                      "scatter_add",
                                      "constant_pad_nd",
                                      "roll",
                                      "flip",
                                      "slice_backward",
                                      "select_backward",
                                      "unfold_backward",
                                      "scatter",
                                      "repeat_heads",
                                      "picked_rows",
                                      "reshape"})
      kinds[it] = "copies";
    for (const std::string_view it :
         {"sum", "mean", "max", "min", "amax", "amin", "argmax", "argmin", "cumsum", "any", "all", "norm",
          "linalg_vector_norm", "count_nonzero", "pool_heads", "pool_beside", "var", "std"})
      kinds[it] = "reductions";
    return kinds;
  }();
  const auto found = kKinds.find(name);
  return found == kKinds.end() ? std::string_view() : found->second;
}

// The first that the name holds decides, so what a fused operator of ours is about stands before what it contains.
constexpr Part kParts[] = {
    {"adamw", "optimiser"},           {"attention", "attention"},     {"scaled_dot_product", "attention"},
    {"fused_sdp", "attention"},       {"embedding", "embedding"},     {"norm", "norm"},
    {"gelu", "activation"},           {"relu", "activation"},         {"elu", "activation"},
    {"silu", "activation"},           {"sigmoid", "activation"},      {"tanh", "activation"},
    {"softplus", "activation"},       {"threshold", "activation"},    {"activation", "activation"},
    {"softmax", "softmax"},           {"nll_loss", "softmax"},        {"logsumexp", "softmax"},
    {"cross_entropy", "softmax"},     {"masked_fill", "elementwise"}, {"dropout", "dropout"},
    {"bernoulli", "dropout"},         {"residual", "elementwise"},    {"top_keys", "attention"},
    {"routed_features", "attention"}, {"sine_features", "attention"},
};

}  // namespace

std::string operator_kind(const std::string& name, const OpFigures& figures) {
  std::string_view base = name;
  base.remove_prefix(std::min(base.size(), base.find("::") == std::string_view::npos ? 0 : base.find("::") + 2));
  if (base.ends_with('_')) base.remove_suffix(1);
  // Both passes of one of ours are of its kind.
  for (const std::string_view pass : {"_forward", "_backward"})
    if (name.starts_with("xformer::") && base.ends_with(pass)) base.remove_suffix(pass.size());
  if (const std::string_view kind = kind_by_name(base); !kind.empty()) return std::string(kind);
  for (const auto& [part, kind] : kParts)
    if (base.find(part) != std::string_view::npos) return std::string(kind);
  return figures.pointwise ? "elementwise" : figures.reduces ? "reductions" : "other";
}

}  // namespace xformer::measure
