// Transformer on a Diet: Wang, Ye, Zhang, Zhang, Smola, 2020: softmax over few keys of a row, others in each layer
// l = 0, 1, ..., the same for all heads (section 2, and the authors' code):
//   diet-cascade         {i - w_l + 1 .. i}, w_l = floor(first_window * window_growth^l)
//   diet-dilated         {i - c delta_l : 0 <= c < links}, delta_l = dilation_base^l
//   diet-dilated-memory  the dilated sets of layers 0 .. l together, each key once
// The paper's rows are causal; the bidirectional form has the same distances on both sides (attention-third 6). A layer
// of few keys reaches far only through the layers below it: L dilated layers of three links 2 (2^L - 1) tokens, which
// is 6 for two.
#include <algorithm>
#include <cmath>

#include "attention/descriptor.h"
#include "attention/shared/listed_core.h"
#include "attention/shared/windows.h"

namespace xformer::attention::variants::diet {

struct CascadeOptions {
  int64_t first_window = 4;
  double window_growth = 2;
};

struct DilatedOptions {
  int64_t links = 3;
  int64_t dilation_base = 2;
};

constexpr int64_t kFar = int64_t{1} << 30;  // as good as any greater distance

int64_t window_of(const CascadeOptions& options, int64_t layer) {
  const double window =
      static_cast<double>(options.first_window) * std::pow(options.window_growth, static_cast<double>(layer));
  return static_cast<int64_t>(std::min(window, static_cast<double>(kFar)));
}

int64_t dilation_of(const DilatedOptions& options, int64_t layer) {
  int64_t result = 1;
  for (int64_t i = 0; i < layer && result < kFar; ++i) result *= options.dilation_base;
  return std::min(result, kFar);
}

// Rising, below `length`, 0 the first.
std::vector<int64_t> remembered_distances(const DilatedOptions& options, int64_t layer, int64_t length) {
  std::vector<int64_t> result;
  for (int64_t l = 0; l <= layer; ++l) {
    const int64_t dilation = dilation_of(options, l);
    for (int64_t c = 0; c < options.links && c * dilation < length; ++c) result.push_back(c * dilation);
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

const Schema<CascadeOptions>& cascade_schema() {
  static const Schema<CascadeOptions> kSchema =
      Schema<CascadeOptions>()
          .add(&CascadeOptions::first_window, "first_window",
               "tokens on one side that a row of the first layer reads, itself included", at_least(1))
          .add(&CascadeOptions::window_growth, "window_growth",
               "how many times wider a layer's window is than the last", at_least(1));
  return kSchema;
}

const Schema<DilatedOptions>& dilated_schema() {
  static const Schema<DilatedOptions> kSchema =
      Schema<DilatedOptions>()
          .add(&DilatedOptions::links, "links", "positions that a token reads in one step, itself included",
               at_least(1))
          .add(&DilatedOptions::dilation_base, "dilation_base",
               "how many times farther apart a layer's keys are than "
               "the last's",
               at_least(1));
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor cascade;
  cascade.name = "diet-cascade";
  cascade.title = "Transformer on a Diet, cascade";
  cascade.paper = "Wang, Ye, Zhang, Zhang, Smola: Transformer on a Diet, 2020";
  cascade.method_class = "FP";
  cascade.summary = "Each token reads its nearest neighbours, twice as many in each further layer.";
  cascade.complexity = Complexity::kLinear;
  cascade.traits = {.causal_ok = true};
  cascade.appended_padding = always_exact();
  cascade.options = cascade_schema().options();
  cascade.dense_limit = Json{{"first_window", 1 << 30}};
  cascade.build_core = [](const Json& options, const BuildContext& context) -> std::shared_ptr<AttentionCore> {
    const int64_t beside = window_of(cascade_schema().read(options), context.layer) - 1;
    return std::make_shared<WindowCore>(
        context, [beside](int64_t n, bool causal) { return Windows::sliding(n, beside, causal ? 0 : beside); });
  };

  Descriptor dilated = cascade;
  dilated.name = "diet-dilated";
  dilated.title = "Transformer on a Diet, dilated";
  dilated.summary = "Each token reads two more on a side, twice as far apart in each further layer.";
  dilated.options = dilated_schema().options();
  dilated.dense_limit = Json{{"links", 1 << 30}, {"dilation_base", 1}};
  dilated.build_core = [](const Json& options, const BuildContext& context) -> std::shared_ptr<AttentionCore> {
    const DilatedOptions own = dilated_schema().read(options);
    const int64_t dilation = dilation_of(own, context.layer), beside = own.links - 1;
    return std::make_shared<WindowCore>(context, [dilation, beside](int64_t n, bool causal) {
      return Windows::sliding(n, beside, causal ? 0 : beside, std::min(dilation, n));
    });
  };

  Descriptor memory = dilated;
  memory.name = "diet-dilated-memory";
  memory.title = "Transformer on a Diet, dilated with memory";
  memory.summary = "As dilated, and each layer keeps the distances of the layers below it.";
  memory.build_core = [](const Json& options, const BuildContext& context) -> std::shared_ptr<AttentionCore> {
    const DilatedOptions own = dilated_schema().read(options);
    return std::make_shared<ListedCore>(
        context, [own, layer = context.layer](int64_t row, int64_t length, bool causal) {
          return keys_apart(remembered_distances(own, layer, length), row, length, causal);
        });
  };
  return {cascade, dilated, memory};
}

}  // namespace xformer::attention::variants::diet
