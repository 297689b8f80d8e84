#include "core/run_plan.h"

#include <algorithm>

#include "core/hash.h"
#include "core/names.h"
#include "core/option_names.h"

namespace xformer {

namespace {

// The key that a word stands for: itself, what else people call an option, or the one option of that name whatever its
// group. "" where there is none.
std::string meant(const std::string& word, const std::vector<std::string>& keys, const std::string& origin) {
  const auto known = [&](const std::string& key) { return std::find(keys.begin(), keys.end(), key) != keys.end(); };
  if (known(word)) return word;
  if (const std::string usual = usual_option(word); known(usual)) return usual;
  if (word.find('.') != std::string::npos) return "";
  std::vector<std::string> found;
  for (const std::string& key : keys)
    if (canonical_name(key.substr(key.find('.') + 1)) == canonical_name(word)) found.push_back(key);
  XF_CHECK(found.size() < 2, UserError, "'{}' (from {}) may be {}; say which", word, origin, fmt::join(found, " or "));
  return found.empty() ? "" : found.front();
}

}  // namespace

ResolvedOptions resolve_options(const std::vector<OptionGroup>& groups, const std::vector<ValueLayer>& layers) {
  ResolvedOptions result;
  std::vector<std::string> keys;
  std::map<std::string, const OptionInfo*> by_key;
  for (const OptionGroup& group : groups) {
    for (const OptionInfo& option : group.options) {
      const std::string key = group.prefix + "." + option.name;
      XF_ASSERT(by_key.emplace(key, &option).second, "two components declare the option {}", key);
      keys.push_back(key);
      result.values[key] = option.fallback;
      result.origins[key] = {};
      if (option.neutral) result.neutral[key] = *option.neutral;
      result.before[key] = option.neutral.value_or(option.fallback);
    }
  }
  for (const ValueLayer& layer : layers) {
    std::map<std::string, std::string> given;  // by what they mean
    for (const auto& [word, value] : layer.values.items()) {
      const std::string right = meant(word, keys, layer.origin.text), key = right.empty() ? word : right;
      const auto [before, once] = given.emplace(key, word);
      XF_CHECK(once, UserError, "{} and {} (from {}) are one option", before->second, word, layer.origin.text);
      const auto option = by_key.find(key);
      if (option == by_key.end()) {
        // The group's owner tells why a key that exists elsewhere is not known here.
        std::string owner;
        std::vector<std::string> own;
        for (const OptionGroup& group : groups)
          if (key.starts_with(group.prefix + ".")) {
            owner = fmt::format(" of {}", group.owner);
            for (const OptionInfo& one : group.options) own.push_back(group.prefix + "." + one.name);
          }
        const bool listed = nearest_name(key, keys).empty() && !own.empty();
        throw UserError(fmt::format("{} (from {})", unknown_name_message("option" + owner, key, listed ? own : keys),
                                    layer.origin.text));
      }
      try {
        result.values[key] = option->second->normalise(value);
      } catch (const UserError& error) {
        throw UserError(fmt::format("{} (from {}): {}", key, layer.origin.text, error.what()));
      }
      result.origins[key] = layer.origin;
    }
  }
  return result;
}

Json RunPlan::group(const std::string& prefix) const {
  Json result = Json::object();
  for (const auto& [key, value] : options.values.items())
    if (key.starts_with(prefix + ".")) result[key.substr(prefix.size() + 1)] = value;
  return result;
}

Json RunPlan::to_json() const {
  Json result{{"task", task}, {"model", model}};
  if (name() != model) result["name"] = name();
  result.update({{"protocol", protocol}, {"seed", seed}});
  for (const auto& [key, value] : options.values.items()) result[key] = value;
  return result;
}

Json RunPlan::to_config(bool all) const {
  Json result{{"task", task}, {"model", name()}, {"protocol", protocol}, {"seed", seed}};
  for (const auto& [key, value] : options.values.items())
    if (all || !options.origins.at(key).is_preset()) result[key] = value;
  return result;
}

std::string RunPlan::hash() const {
  Json hashed = to_json();
  hashed.erase("seed");
  hashed.erase("name");
  for (const auto& [key, neutral] : options.neutral)
    if (hashed[key] == neutral) hashed.erase(key);
  // Sorted keys: the order of declaration is no part of a plan.
  return sha256(nlohmann::json::parse(hashed.dump()).dump()).substr(0, 16);
}

std::vector<std::string> plan_differences(const Json& stored, const RunPlan& now,
                                          const std::set<std::string>& left_alone) {
  std::vector<std::string> result;
  const Json wanted = now.to_json();
  for (const auto& [key, value] : wanted.items()) {
    if (left_alone.contains(key) || key == "name") continue;
    const auto old = stored.find(key);
    if (old != stored.end()) {
      if (*old != value) result.push_back(fmt::format("{}: {} -> {}", key, old->dump(), value.dump()));
      continue;
    }
    // An older program did not know the option.
    const auto before = now.options.before.find(key);
    if (before == now.options.before.end() || before->second != value)
      result.push_back(fmt::format("{}: (absent) -> {}", key, value.dump()));
  }
  for (const auto& [key, value] : stored.items())
    if (!wanted.contains(key) && !left_alone.contains(key) && key != "name")
      result.push_back(fmt::format("{}: {} -> (absent)", key, value.dump()));
  return result;
}

}  // namespace xformer
