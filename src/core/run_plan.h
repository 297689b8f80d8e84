// What a run will do: names, seed and one value with its origin for every option. Complete before any file or
// device is touched.
//
// On disk a plan is one flat JSON object: {"task": "listops", "model": "mrs-linformer", "protocol": "mlpen",
// "seed": 0, "attention.projected_len": 256, ...}; option keys are spelled the same in C++, JSON and on the command
// line.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/schema.h"

namespace xformer {

// The options of one component: keys are prefix + "." + option name.
struct OptionGroup {
  std::string prefix;  // "attention"
  std::string owner;   // "mrs-linformer", for messages
  std::vector<OptionInfo> options;
};

enum class OriginKind { kDefault, kProtocol, kFile, kStored, kAsked };

// Where a value came from.
struct Origin {
  OriginKind kind = OriginKind::kDefault;
  std::string text = "default";  // "protocol mlpen", "file recipe.json", "stored plan", "--set"

  Origin() = default;
  Origin(std::string asked) : kind(OriginKind::kAsked), text(std::move(asked)) {}
  Origin(const char* asked) : Origin(std::string(asked)) {}
  Origin(OriginKind from, std::string words) : kind(from), text(std::move(words)) {}
  // Nobody asked for it by itself.
  [[nodiscard]] bool is_preset() const { return kind == OriginKind::kDefault || kind == OriginKind::kProtocol; }
};

// Values from one place, by full key; later layers win.
struct ValueLayer {
  Origin origin;
  Json values = Json::object();
};

struct ResolvedOptions {
  Json values = Json::object();           // every key of every group, in order of declaration
  std::map<std::string, Origin> origins;  // by key
  std::map<std::string, Json> neutral;    // of options that name one (schema.h): at it a key is no part of the plan
  std::map<std::string, Json> before;     // what a stored plan without the key had: the neutral value, or the default
};

// Defaults, then the layers in order. A layer may call an option otherwise where only one can be meant: "lr", "heads",
// "projected_len"; the result has the keys as declared. An unknown key, a wrong type or range is a UserError that names
// key, origin and the nearest right key.
[[nodiscard]] ResolvedOptions resolve_options(const std::vector<OptionGroup>& groups,
                                              const std::vector<ValueLayer>& layers);

struct RunPlan {
  std::string task;  // name in the data registry
  std::string protocol;
  std::string model;      // canonical "[family/]attention" as the user would type it shortest
  std::string called;     // what was typed, where that names a whole model ("mrs-deit"); else empty
  std::string family;     // "encoder"
  std::string attention;  // "mrs-linformer"
  int64_t seed = 0;
  ResolvedOptions options;

  // For people, folders and tables. It decides nothing: two names of one model make the same plan.
  [[nodiscard]] const std::string& name() const { return called.empty() ? model : called; }
  // The options of one prefix, without it.
  [[nodiscard]] Json group(const std::string& prefix) const;
  // Everything that decides the result: names, seed, values. "name" beside "model" where it was called otherwise.
  [[nodiscard]] Json to_json() const;
  // The same for --config, with the name that was typed; `all`: every value, else only those that neither a default
  // nor the protocol set.
  [[nodiscard]] Json to_config(bool all) const;
  // 16 hex digits over to_json() without the seed, which the runs of one plan differ in, and without options at their
  // neutral value: a new option leaves the hashes of all plans before it as they were.
  [[nodiscard]] std::string hash() const;
};

// "key: a -> b" for every key, but those left alone, in which a stored plan (to_json, of any age) differs from this
// one.
[[nodiscard]] std::vector<std::string> plan_differences(const Json& stored, const RunPlan& now,
                                                        const std::set<std::string>& left_alone = {});

}  // namespace xformer
