// Structs as JSON objects, both ways from one list of their members:
//
//   template <class Fields>
//   void visit(Steps& it, const Fields& fields) {
//     fields("done", it.done, "planned", it.planned);
//   }
//
// in the struct's namespace; written(steps) and take(json, steps) follow. Members are numbers, texts, Json, optionals,
// vectors and other such structs; a type whose form is another has overloads of its own.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/json.h"

namespace xformer {

// Calls each(key, member) for every pair.
template <class Each>
struct Pairs {
  Each each;
  void operator()() const {}
  template <class Member, class... Rest>
  void operator()(const char* key, Member& member, Rest&&... rest) const {
    each(key, member);
    (*this)(std::forward<Rest>(rest)...);
  }
};
template <class Each>
Pairs(Each) -> Pairs<Each>;

template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
template <class T>
inline constexpr bool kIsVector = false;
template <class T>
inline constexpr bool kIsVector<std::vector<T>> = true;

// null where nothing is known: an empty text, no value, an empty list that is not optional. Such members are left out.
template <class T>
Json written(T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    return value.empty() ? Json() : Json(value);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, Json>) {
    return value;
  } else if constexpr (std::is_same_v<T, std::map<std::string, std::string>>) {
    return value.empty() ? Json() : Json(value);
  } else if constexpr (kIsOptional<T>) {
    if (!value) return Json();
    if constexpr (kIsVector<typename T::value_type>)
      if (value->empty()) return Json::array();  // known to be none
    return written(*value);
  } else if constexpr (kIsVector<T>) {
    Json list = value.empty() ? Json() : Json::array();
    for (auto& element : value) list.push_back(written(element));
    return list;
  } else {
    Json object = Json::object();
    visit(value, Pairs{[&](const char* key, auto& member) {
            if (Json json = written(member); !json.is_null()) object[key] = std::move(json);
          }});
    return object;
  }
}

// False, and nothing taken, from another type.
template <class T>
bool take(const Json& json, T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    if (!json.is_string()) return false;
    value = json.get<std::string>();
  } else if constexpr (std::is_same_v<T, Json>) {
    value = json;
  } else if constexpr (std::is_same_v<T, bool>) {
    if (!json.is_boolean()) return false;
    value = json.get<bool>();
  } else if constexpr (std::is_arithmetic_v<T>) {
    if (!json.is_number()) return false;
    value = json.get<T>();
  } else if constexpr (std::is_same_v<T, std::map<std::string, std::string>>) {
    if (!json.is_object()) return false;
    for (const auto& [key, text] : json.items()) take(text, value[key]);
  } else if constexpr (kIsOptional<T>) {
    typename T::value_type inner{};
    if (!take(json, inner)) return false;
    value = std::move(inner);
  } else if constexpr (kIsVector<T>) {
    if (!json.is_array()) return false;
    for (const Json& element : json)
      if (typename T::value_type inner{}; take(element, inner)) value.push_back(std::move(inner));
  } else {
    if (!json.is_object()) return false;
    visit(value, Pairs{[&](const char* key, auto& member) {
            if (const auto found = json.find(key); found != json.end()) take(*found, member);
          }});
  }
  return true;
}

}  // namespace xformer
