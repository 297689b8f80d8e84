// Local attention: softmax(q k / sqrt(d)) over valid keys near the row (causal: and not later ones).
//   local-window  A(i) = {j : |i - j| <= w}                    sliding window, Beltagy, Peters, Cohan 2020, section 3.1
//   local-block   A(i) = {j : floor(j / b) = floor(i / b)}     blocks, the "Local Attention" of Tay et al.,
//                 "Long Range Arena: A Benchmark for Efficient Transformers", 2020
// ceil(n / b) b^2 pairs of local-block (attention-core 3.1) count the padding of a last block that is not full; the
// cost's pattern does not. The published code of the latter reshapes a sequence of L tokens so that its "blocks" are
// the sets of tokens L / b apart: glra_strided_blocks does that, A(i) = {j : j mod ceil(n / b) = i mod ceil(n / b)},
// with the right padding mask.
#include "attention/descriptor.h"
#include "attention/shared/windows.h"

namespace xformer::attention::variants::local {

struct WindowOptions {
  std::vector<int64_t> window = {32};
};

struct BlockOptions {
  int64_t block = 50;
  bool glra_strided_blocks = false;
};

const Schema<WindowOptions>& window_schema() {
  static const Schema<WindowOptions> kSchema =
      Schema<WindowOptions>().add(&WindowOptions::window, "window", kWindowHelp, each_at_least(0));
  return kSchema;
}

const Schema<BlockOptions>& block_schema() {
  static const Schema<BlockOptions> kSchema =
      Schema<BlockOptions>()
          .add(&BlockOptions::block, "block", "tokens per block (b)", at_least(1))
          .add(&BlockOptions::glra_strided_blocks, "glra_strided_blocks",
               "a block is every ceil(n / b)-th token, as in the Long Range Arena's code, not b neighbours");
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor window;
  window.name = "local-window";
  window.title = "Sliding-window attention";
  window.paper = "Beltagy, Peters, Cohan: Longformer: The Long-Document Transformer, 2020 (its window alone)";
  window.method_class = "FP";
  window.summary = "Each token attends to the tokens at most w steps away.";
  window.complexity = Complexity::kLinear;
  window.traits = {.causal_ok = true};
  window.appended_padding = always_exact();
  window.options = window_schema().options();
  window.dense_limit = Json{{"window", {1 << 30}}};
  window.build_core = [](const Json& options, const BuildContext& context) {
    const int64_t w = layer_window(window_schema().read(options).window, context.layer);
    return std::make_shared<WindowCore>(context,
                                        [w](int64_t n, bool causal) { return Windows::sliding(n, w, causal ? 0 : w); });
  };

  Descriptor block = window;
  block.name = "local-block";
  block.title = "Block-local attention";
  block.paper =
      "Tay, Dehghani, Abnar, Shen, Bahri, Pham, Rao, Yang, Ruder, Metzler: Long Range Arena: A Benchmark for Efficient "
      "Transformers, 2020";
  block.summary = "The sequence is cut into blocks; each token attends to the tokens of its own block.";
  block.appended_padding = {"with glra_strided_blocks=false",
                            [](const Json& options) { return !options["glra_strided_blocks"].get<bool>(); }};
  block.options = block_schema().options();
  block.dense_limit = Json{{"block", 1 << 30}};
  block.build_core = [](const Json& options, const BuildContext& context) {
    const BlockOptions own = block_schema().read(options);
    return std::make_shared<WindowCore>(context, [own](int64_t n, bool causal) {
      const int64_t stride = own.glra_strided_blocks ? (n + own.block - 1) / own.block : 1;
      return Windows::own_block(n, own.block, causal, stride);
    });
  };
  return {window, block};
}

}  // namespace xformer::attention::variants::local
