// What an attention says about itself: names, paper, options, cost class, limits, how to build it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attention/core.h"
#include "core/registry.h"
#include "core/schema.h"

namespace xformer::attention {

// Growth of time with the length n.
enum class Complexity { kLinear, kLinearithmic, kRootN, kQuadratic };  // n, n log n, n sqrt n, n^2
[[nodiscard]] std::string complexity_name(Complexity complexity);

// Only what callers can act on.
struct Traits {
  bool causal_ok = false;        // honours SequenceMask::causal
  bool cross_ok = false;         // queries and keys of different lengths
  bool stochastic = false;       // draws numbers even without dropout
  bool fixed_length = false;     // parameters tied to max_len
  bool carries = false;          // hands a state from layer to layer (Carry)
  bool library_dropout = false;  // drops by LibTorch's generator: what is computed again is another draw
};

// The options under which padding more changes no valid output (property P2).
struct PaddingExact {
  std::string when = "never";  // in words: "always", "with norm=sum"
  std::function<bool(const Json& options)> holds = [](const Json&) { return false; };
};
[[nodiscard]] inline PaddingExact always_exact() {
  return {"always", [](const Json&) { return true; }};
}

struct Descriptor {
  std::string name;  // kebab-case
  std::vector<std::string> aliases;
  std::string title;         // as the paper calls it
  std::string paper;         // authors, title, year
  std::string method_class;  // FP LP LR KR RC M, as the surveys sort them; "full" for exact attention
  std::string summary;       // one sentence
  Complexity complexity = Complexity::kQuadratic;
  Traits traits;
  PaddingExact appended_padding;
  std::vector<OptionInfo> options;     // keys without the prefix "attention."
  std::vector<TensorMeaning> tensors;  // every parameter and buffer that some options make
  std::optional<Json> dense_limit;     // options under which it equals softmax; none when there are none
  // Options of the model, without "model.", that the name wants otherwise than protocols have them, where the family
  // knows them: above a protocol's values, below whatever is asked for.
  Json model_defaults = Json::object();
  // Tokens that the family puts in front and pins (etc, bigbird-etc).
  std::function<int64_t(const Json& options)> prefix_tokens = [](const Json&) { return int64_t{0}; };

  // One of the three is set, or a core for decorators and a mixer for the plain name. Options are complete and valid.
  std::function<std::shared_ptr<AttentionCore>(const Json& options, const BuildContext&)> build_core;
  std::function<std::shared_ptr<SequenceMixer>(const Json& options, const BuildContext&)> build_mixer;
  std::function<std::shared_ptr<LayerBlock>(const Json& options, const BuildContext&)> build_block;
  // Checks options before anything is built: UserError with the reason. `heads` is 0 when a decorator deals them out.
  std::function<void(const Json& options, int64_t heads)> check = [](const Json&, int64_t) {};
  // Why so many layers are a bad choice under these options, and what is better; "" mostly.
  std::function<std::string(const Json& options, int64_t layers)> depth_warning = [](const Json&, int64_t) {
    return "";
  };
};

using CoreFactory = std::function<std::shared_ptr<AttentionCore>(const BuildContext&)>;

// A name in front of a name: `mrs-linformer` is the decorator `mrs` around the core `linformer`.
struct Decorator {
  std::string name;  // prefix without its hyphen
  std::vector<std::string> aliases;
  std::string title, paper, summary;
  std::vector<OptionInfo> options;
  // Refuses a base or context it cannot wrap, with the reason (UserError).
  std::function<std::shared_ptr<AttentionCore>(const Json& options, const BuildContext&, const CoreFactory& base)>
      decorate;
  // Checks options against heads before anything is built: UserError that shows both numbers.
  std::function<void(const Json& options, int64_t heads)> check;
};

[[nodiscard]] const Registry<Descriptor>& all_variants();
[[nodiscard]] const Registry<Decorator>& all_decorators();

// A resolved attention name.
struct Resolved {
  const Descriptor* base = nullptr;
  const Decorator* decorator = nullptr;  // nullptr without one
  std::string name;                      // canonical: "mrs-linformer"

  [[nodiscard]] std::vector<OptionInfo> options() const;  // the base's and the decorator's
  [[nodiscard]] Traits traits() const;
};

// Tokens that the family puts in front, under the options of the base and its decorator.
[[nodiscard]] int64_t prefix_tokens(const Resolved& attention, const Json& options);
// What the base finds of so many layers, under the options of both.
[[nodiscard]] std::string depth_warning(const Resolved& attention, const Json& options, int64_t layers);

// What a parameter or buffer of a core or mixer is, by its name there ("core.scale2.e"; in SharedObjects
// "scale2_linformer_e"); "" when nobody says.
[[nodiscard]] std::string tensor_meaning(const Resolved& attention, const std::string& name);

// What is wrong with values that somebody brings for it, whose shape and type are right; "" when nothing is.
[[nodiscard]] std::string tensor_fault(const Resolved& attention, const std::string& name, const at::Tensor& values);

// Exact names win; otherwise a decorator's prefix is split off. UserError with the nearest name otherwise.
[[nodiscard]] Resolved resolve(const std::string& name);
// Every name that resolves, `mrs-` forms included, sorted.
[[nodiscard]] std::vector<std::string> all_names();
// The same without aliases: every attention once.
[[nodiscard]] std::vector<std::string> distinct_names();

// Checks that need heads and causality but no tensors: causal refused with the reason where not supported.
void check_buildable(const Resolved& attention, const Json& options, int64_t heads, bool causal);
// UserError with the reason for a name whose queries and keys must be one sequence.
void check_cross(const Resolved& attention);
// Builds the sequence mixer (cores get their projections around them). Not for blocks.
[[nodiscard]] std::shared_ptr<SequenceMixer> build_mixer(const Resolved& attention, const Json& options,
                                                         const BuildContext& context);
// Builds the bare core; UserError for a name that owns its projections.
[[nodiscard]] std::shared_ptr<AttentionCore> build_core(const Resolved& attention, const Json& options,
                                                        const BuildContext& context);

}  // namespace xformer::attention
