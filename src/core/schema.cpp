#include "core/schema.h"

#include <charconv>
#include <cmath>

#include "core/names.h"

namespace xformer {

Rule at_least(double low) {
  return {fmt::format("at least {}", low), [low](const Json& value) { return value.get<double>() >= low; }, {}};
}

Rule above(double low) {
  return {fmt::format("above {}", low), [low](const Json& value) { return value.get<double>() > low; }, {}};
}

Rule between(double low, double high) {
  return {fmt::format("from {} to {}", low, high),
          [low, high](const Json& value) { return value.get<double>() >= low && value.get<double>() <= high; },
          {}};
}

Rule fraction_below_one() {
  return {"at least 0 and below 1",
          [](const Json& value) { return value.get<double>() >= 0 && value.get<double>() < 1; },
          {}};
}

Rule one_of(std::vector<std::string> choices) {
  const std::string text = fmt::format("one of {}", fmt::join(choices, ", "));
  return {text,
          [choices](const Json& value) {
            for (const std::string& choice : choices)
              if (value.get<std::string>() == choice) return true;
            return false;
          },
          choices};
}

Rule each_at_least(double low) {
  return {fmt::format("a list, each at least {}", low),
          [low](const Json& value) {
            for (const Json& element : value)
              if (element.get<double>() < low) return false;
            return !value.empty();
          },
          {}};
}

std::string type_name(OptionType type) {
  switch (type) {
    case OptionType::kBool:
      return "true or false";
    case OptionType::kInteger:
      return "an integer";
    case OptionType::kReal:
      return "a number";
    case OptionType::kText:
      return "text";
    case OptionType::kIntegerList:
      return "a list of integers";
  }
  return "?";
}

namespace {

// A whole string as a number, or nothing: "12x", "" and "nan" are not numbers.
template <class T>
bool parse_number(std::string_view text, T& value) {
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

Json text_to_type(const std::string& text, OptionType type) {
  switch (type) {
    case OptionType::kBool:
      if (text == "true" || text == "1" || text == "on" || text == "yes") return true;
      if (text == "false" || text == "0" || text == "off" || text == "no") return false;
      break;
    case OptionType::kInteger:
      if (int64_t value = 0; parse_number(text, value)) return value;
      if (double value = 0; parse_number(text, value)) return value;
      break;
    case OptionType::kReal:
      if (double value = 0; parse_number(text, value)) return value;
      break;
    case OptionType::kText:
      return text;
    case OptionType::kIntegerList: {
      const bool bracketed = text.starts_with('[');
      const Json list = Json::parse(bracketed ? text : "[" + text + "]", nullptr, /*allow_exceptions=*/false);
      if (!list.is_discarded()) return list;
      break;
    }
  }
  return text;
}

bool has_type(const Json& value, OptionType type) {
  switch (type) {
    case OptionType::kBool:
      return value.is_boolean();
    case OptionType::kInteger:
      return value.is_number_integer();
    case OptionType::kReal:
      return value.is_number() && std::isfinite(value.get<double>());
    case OptionType::kText:
      return value.is_string();
    case OptionType::kIntegerList:
      if (!value.is_array()) return false;
      for (const Json& element : value)
        if (!element.is_number_integer()) return false;
      return true;
  }
  return false;
}

}  // namespace

Json OptionInfo::normalise(const Json& value) const {
  Json result = value.is_string() ? text_to_type(value.get<std::string>(), type) : value;
  const bool whole = result.is_number_float() && std::floor(result.get<double>()) == result.get<double>() &&
                     std::abs(result.get<double>()) < 9e15;
  if (type == OptionType::kInteger && whole) result = static_cast<int64_t>(result.get<double>());  // 1e3 is 1000
  XF_CHECK(has_type(result, type), UserError, "expected {}, got {}", type_name(type), value.dump());
  if (type == OptionType::kReal) result = result.get<double>();
  if (type == OptionType::kText && !rule.choices.empty()) {
    // Names compare with `_` equal to `-`; the stored form is the declared one.
    const std::string wanted = canonical_name(result.get<std::string>());
    for (const std::string& choice : rule.choices)
      if (canonical_name(choice) == wanted) return choice;
    const std::string near = nearest_name(wanted, rule.choices);
    throw UserError(fmt::format("expected {}, got '{}'{}", rule.text, result.get<std::string>(),
                                near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
  }
  const std::string kind = type == OptionType::kIntegerList ? "" : type_name(type) + " ";  // a rule of lists says so
  XF_CHECK(!rule.holds || rule.holds(result), UserError, "expected {}{}, got {}", kind, rule.text, result.dump());
  return result;
}

}  // namespace xformer
