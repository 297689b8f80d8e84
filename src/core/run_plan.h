// What a run will do: names, seed and one value with its origin for every option. Complete before any file or
// device is touched.
//
// On disk a plan is one flat JSON object: {"task": "listops", "model": "mrs-linformer", "protocol": "mlpen",
// "seed": 0, "attention.projected_len": 256, ...}; option keys are spelled the same in C++, JSON and on the command
// line.
#pragma once

#include <map>
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

// Values from one place, by full key; later layers win.
struct ValueLayer {
  std::string origin;  // "protocol mlpen", "file recipe.json", "--set"
  Json values = Json::object();
};

struct ResolvedOptions {
  Json values = Json::object();                // every key of every group, in order of declaration
  std::map<std::string, std::string> origins;  // "default" or a layer's origin
};

// Defaults, then the layers in order. An unknown key, a wrong type or range is a UserError that names key, origin
// and the nearest right key.
[[nodiscard]] ResolvedOptions resolve_options(const std::vector<OptionGroup>& groups,
                                              const std::vector<ValueLayer>& layers);

struct RunPlan {
  std::string task;  // name in the data registry
  std::string protocol;
  std::string model;      // canonical "[family/]attention" as the user would type it shortest
  std::string family;     // "encoder"
  std::string attention;  // "mrs-linformer"
  int64_t seed = 0;
  ResolvedOptions options;

  // The options of one prefix, without it.
  [[nodiscard]] Json group(const std::string& prefix) const;
  // Everything that decides the result: names, seed, values.
  [[nodiscard]] Json to_json() const;
  // Only what was asked for: names, seed and values that neither a default nor the protocol set.
  [[nodiscard]] Json to_minimal_json() const;
  // 16 hex digits over to_json() without the seed: the seeds of one plan share it.
  [[nodiscard]] std::string hash() const;
};

// "key: a -> b" for every key in which two plans (as to_json) differ.
[[nodiscard]] std::vector<std::string> plan_differences(const Json& before, const Json& now);

}  // namespace xformer
