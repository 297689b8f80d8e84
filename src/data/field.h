// What an example is made of: named fields. Its layout declares those that a model reads, its target those that a loss
// reads; cache, batches, uploads, slices and random batches are written once over them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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
  double fill = 0;     // what rows hold that nobody fills

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

}  // namespace xformer::data
