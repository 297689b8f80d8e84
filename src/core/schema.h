// One declaration per option: name, default, help and range. Help texts, validation, JSON reading and
// writing and `describe` are all derived from it.
//
//   const Schema<Options>& schema() {
//     static const Schema<Options> kSchema = Schema<Options>()
//         .add(&Options::projected_len, "projected_len", "rows of E and F (k)", at_least(1));
//     return kSchema;
//   }
//
// Defaults are the initialisers of the struct. Names are snake_case without the group's prefix. An option that comes to
// a program with runs behind it says by `.added(value)` at which value everything is as before it existed: there it
// is no part of a plan's identity (run_plan.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "core/error.h"
#include "core/json.h"

namespace xformer {

// A range or a choice; `text` says it in words ("at least 1").
struct Rule {
  std::string text;
  std::function<bool(const Json&)> holds;
  std::vector<std::string> choices;
};

[[nodiscard]] Rule at_least(double low);
[[nodiscard]] Rule above(double low);
[[nodiscard]] Rule between(double low, double high);  // both ends allowed
[[nodiscard]] Rule fraction_below_one();              // 0 <= x < 1
[[nodiscard]] Rule one_of(std::vector<std::string> choices);
[[nodiscard]] Rule each_at_least(double low);  // every element of a list, which is not empty

enum class OptionType { kBool, kInteger, kReal, kText, kIntegerList };

// What the command line and the documentation need to know of one option, whatever its struct.
struct OptionInfo {
  std::string name;  // snake_case, with the group's prefix once it is part of an OptionGroup
  OptionType type = OptionType::kText;
  std::string help;
  Json fallback;  // the default
  Rule rule;
  std::optional<Json> neutral = {};  // the value at which all is as before the option existed

  // Brings a JSON value (or the text of a command line) to the option's type and checks its range.
  // Throws UserError that names what was expected and what came, not the key: the caller knows it.
  [[nodiscard]] Json normalise(const Json& value) const;
};

[[nodiscard]] std::string type_name(OptionType type);

namespace detail {
template <class T>
constexpr OptionType option_type() {
  if constexpr (std::is_same_v<T, bool>) return OptionType::kBool;
  else if constexpr (std::is_same_v<T, int64_t>) return OptionType::kInteger;
  else if constexpr (std::is_same_v<T, double>) return OptionType::kReal;
  else if constexpr (std::is_same_v<T, std::string>) return OptionType::kText;
  else {
    static_assert(std::is_same_v<T, std::vector<int64_t>>,
                  "option fields are bool, int64_t, double, string or a list of int64_t");
    return OptionType::kIntegerList;
  }
}
}  // namespace detail

template <class Options>
class Schema {
 public:
  template <class T>
  Schema& add(T Options::*field, std::string name, std::string help, Rule rule = {}) {
    OptionInfo info{std::move(name), detail::option_type<T>(), std::move(help), Json(Options{}.*field),
                    std::move(rule)};
    fields_.push_back({[field](const Json& value, Options& into) { into.*field = value.get<T>(); },
                       [field](const Options& from) { return Json(from.*field); }});
    infos_.push_back(std::move(info));
    return *this;
  }

  // Of the option added last.
  Schema& added(Json neutral) {
    infos_.back().neutral = infos_.back().normalise(neutral);
    return *this;
  }

  // Options of a struct that this one extends, all or those named: with this one's defaults.
  template <class Base>
  Schema& include(const Schema<Base>& base, const std::vector<std::string>& names = {}) {
    static_assert(std::is_base_of_v<Base, Options>);
    const auto take = [&](size_t i) {
      fields_.push_back({base.fields_[i].set, base.fields_[i].get});
      infos_.push_back(base.infos_[i]);
      infos_.back().fallback = fields_.back().get(Options{});
    };
    for (size_t i = 0; names.empty() && i < base.infos_.size(); ++i) take(i);
    for (const std::string& name : names) {
      const auto found = std::find_if(base.infos_.begin(), base.infos_.end(),
                                      [&](const OptionInfo& info) { return info.name == name; });
      XF_ASSERT(found != base.infos_.end(), "there is no option {} to include", name);
      take(static_cast<size_t>(found - base.infos_.begin()));
    }
    return *this;
  }

  [[nodiscard]] const std::vector<OptionInfo>& options() const { return infos_; }

  // Reads {"name": value, ...}; an absent name keeps its default, an unknown name is an InternalError
  // (the plan's resolver has already refused it with a kind message).
  [[nodiscard]] Options read(const Json& values) const {
    Options result;
    size_t known = 0;
    for (size_t i = 0; i < infos_.size(); ++i) {
      const auto found = values.find(infos_[i].name);
      if (found == values.end()) continue;
      ++known;
      fields_[i].set(infos_[i].normalise(*found), result);
    }
    XF_ASSERT(known == values.size(), "options {} hold a name that this schema lacks", values.dump());
    return result;
  }

  [[nodiscard]] Json write(const Options& options) const {
    Json result = Json::object();
    for (size_t i = 0; i < infos_.size(); ++i) result[infos_[i].name] = fields_[i].get(options);
    return result;
  }

 private:
  template <class Other>
  friend class Schema;
  struct Field {
    std::function<void(const Json&, Options&)> set;
    std::function<Json(const Options&)> get;
  };
  std::vector<OptionInfo> infos_;
  std::vector<Field> fields_;
};

}  // namespace xformer
