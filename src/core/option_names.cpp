#include "core/option_names.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/names.h"

namespace xformer {
namespace {

// Words without their group; the last part of the key itself goes without saying. From PyTorch, timm, Lightning,
// Transformers, nanoGPT and papers.
const std::vector<std::pair<const char*, std::vector<const char*>>>& words() {
  static const std::vector<std::pair<const char*, std::vector<const char*>>> kWords{
      {"training.learning_rate", {"lr", "lrate", "rate", "max-lr", "base-lr"}},
      {"training.batch", {"bs", "batch-size", "train-batch-size"}},
      {"training.micro_batch", {"micro-batch-size", "micro-bs"}},
      {"training.epochs", {"epoch", "num-epochs", "n-epochs", "max-epochs"}},
      {"training.steps", {"num-steps", "max-steps", "max-iters"}},
      {"training.weight_decay", {"wd"}},
      {"training.warmup", {"warmup-steps", "num-warmup-steps", "warmup-iters"}},
      {"training.warmup_epochs", {}},
      {"training.optimizer", {"opt", "optim"}},
      {"training.schedule", {"sched", "scheduler", "lr-schedule", "lr-scheduler"}},
      {"training.clip_norm", {"clip", "clip-grad", "grad-clip", "gradient-clip-val", "max-grad-norm"}},
      {"training.label_smoothing", {"smoothing"}},
      {"training.precision", {"dtype"}},
      {"training.epsilon", {"eps"}},
      {"training.patience", {}},
      {"model.heads", {"nhead", "nheads", "n-head", "n-heads", "num-heads", "num-attention-heads"}},
      {"model.head_dim", {"d-head", "dim-head"}},
      {"model.layers", {"depth", "n-layer", "n-layers", "nlayers", "num-layers", "num-hidden-layers"}},
      {"model.dim", {"d-model", "dmodel", "n-embd", "embed-dim", "hidden-dim", "hidden-size"}},
      {"model.ff_dim", {"d-ff", "dff", "ffn-dim", "mlp-dim", "dim-feedforward", "intermediate-size"}},
      {"model.dropout", {"drop", "dropout-rate"}},
      {"model.attention_dropout", {"attn-drop", "attn-dropout"}},
      {"model.stochastic_depth", {"drop-path", "drop-path-rate"}},
      {"data.length", {"seq-len", "seq-length", "sequence-length"}}};
  return kWords;
}

}  // namespace

std::string usual_option(std::string_view word) {
  const size_t dot = word.find('.');
  const std::string group(word.substr(0, dot == std::string_view::npos ? 0 : dot + 1));
  const std::string wanted = canonical_name(word.substr(group.size()));
  for (const auto& [key, others] : words()) {
    const std::string_view whole = key;
    if (!whole.starts_with(group)) continue;
    if (canonical_name(whole.substr(whole.find('.') + 1)) == wanted ||
        std::find(others.begin(), others.end(), wanted) != others.end())
      return key;
  }
  return "";
}

std::string value_word(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

}  // namespace xformer
