// Ids as narrow as their range asks for (data/field.h, narrowest), as fields and caches hold them.
#pragma once

#include <vector>

#include "data/field.h"

namespace xformer::data {

class NarrowIds {
 public:
  // Of 0 to range - 1; valid until the next call.
  [[nodiscard]] Elements of(const std::vector<int32_t>& ids, int64_t range) {
    const Element element = narrowest(range);
    if (element == Element::kU8) return Elements(narrowed(ids, bytes_));
    if (element == Element::kU16) return Elements(narrowed(ids, words_));
    return Elements(narrowed(ids, whole_));
  }

 private:
  template <class T>
  static const std::vector<T>& narrowed(const std::vector<int32_t>& ids, std::vector<T>& into) {
    into.assign(ids.begin(), ids.end());
    return into;
  }

  std::vector<uint8_t> bytes_;
  std::vector<uint16_t> words_;
  std::vector<int32_t> whole_;
};

}  // namespace xformer::data
