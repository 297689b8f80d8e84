// What an example is made of: named fields. Its layout declares those that a model reads, its target those that a loss
// reads; cache, batches, uploads, slices and random batches are written once over them.
#pragma once

#include <concepts>
#include <cstdint>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/json.h"

namespace xformer::data {

enum class Element { kU8, kU16, kI32, kF32, kBool };  // as stored; kBool in one byte
enum class Axes {
  kExample,  // one value of an example
  kToken,    // one value of each place of each sequence
  kTokenByK  // `k` values of each place of each sequence
};

struct Field {
  std::string name;
  Element element = Element::kI32;
  Axes axes = Axes::kExample;
  int64_t k = 1;
  int64_t range = 0;   // whole numbers lie from 0 to this less one; 0: anywhere
  bool stored = true;  // false: made with the batch (a mixture's share), so no example and no cache holds it
  double fill = 0;     // what a batch holds where nobody fills it

  [[nodiscard]] bool of_tokens() const { return axes != Axes::kExample; }
  [[nodiscard]] bool whole() const { return element != Element::kF32 && element != Element::kBool; }
  bool operator==(const Field&) const = default;
};
using Fields = std::vector<Field>;

[[nodiscard]] int64_t element_bytes(Element element);  // 1, 2 or 4
[[nodiscard]] std::string element_name(Element element);
[[nodiscard]] Element parse_element(const std::string& name);
// The narrowest whole numbers that hold 0 to range - 1.
[[nodiscard]] Element narrowest(int64_t range);
// The place of a name, -1 where there is none. Whoever asks in every step keeps it.
[[nodiscard]] int64_t index_of(const Fields& fields, std::string_view name);

[[nodiscard]] Json field_to_json(const Field& field);
[[nodiscard]] Field field_from_json(const Json& json);

template <class T>
constexpr Element element_of() {
  static_assert(std::same_as<T, uint8_t> || std::same_as<T, uint16_t> || std::same_as<T, int32_t> ||
                std::same_as<T, float>);
  if constexpr (std::same_as<T, uint8_t>) return Element::kU8;
  else if constexpr (std::same_as<T, uint16_t>) return Element::kU16;
  else if constexpr (std::same_as<T, int32_t>) return Element::kI32;
  else return Element::kF32;
}

// What a field holds at the places of a sequence, where it lies. A kBool is seen as uint8_t.
class Elements {
 public:
  Elements() = default;
  Elements(Element element, const void* data, size_t size)
      : element_(element == Element::kBool ? Element::kU8 : element), data_(data), size_(size) {}
  template <std::ranges::contiguous_range Range>
  Elements(const Range& values)  // NOLINT: spans and vectors are Elements
      : Elements(element_of<std::ranges::range_value_t<Range>>(), std::ranges::data(values),
                 std::ranges::size(values)) {}

  template <class T>
  [[nodiscard]] std::span<const T> as() const {
    XF_ASSERT(size_ == 0 || element_ == element_of<T>(), "elements {} are read as {}", element_name(element_),
              element_name(element_of<T>()));
    return {static_cast<const T*>(data_), size_};
  }
  template <class T>
  operator std::span<const T>() const {  // NOLINT
    return as<T>();
  }
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] std::string_view bytes() const {
    return {static_cast<const char*>(data_), size_ * static_cast<size_t>(element_bytes(element_))};
  }
  // Calls action with the span of the type that they have.
  template <class Action>
  void visit(const Action& action) const {
    if (element_ == Element::kU8) action(as<uint8_t>());
    else if (element_ == Element::kU16) action(as<uint16_t>());
    else if (element_ == Element::kI32) action(as<int32_t>());
    else action(as<float>());
  }

 private:
  Element element_ = Element::kU8;
  const void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace xformer::data
