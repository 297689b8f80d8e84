// An ordered set of descriptors found by name. Filled once from a generated list, immutable after.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/names.h"

namespace xformer {

// Descriptor has `std::string name` and `std::vector<std::string> aliases`.
template <class Descriptor>
class Registry {
 public:
  // `kind` is the word used in messages ("attention"). A name given twice is an InternalError.
  Registry(std::string kind, std::vector<Descriptor> entries) : kind_(std::move(kind)), entries_(std::move(entries)) {
    std::sort(entries_.begin(), entries_.end(),
              [](const Descriptor& a, const Descriptor& b) { return a.name < b.name; });
    std::vector<std::string> seen;
    for (const Descriptor& entry : entries_) {
      seen.push_back(entry.name);
      seen.insert(seen.end(), entry.aliases.begin(), entry.aliases.end());
    }
    std::sort(seen.begin(), seen.end());
    const auto twice = std::adjacent_find(seen.begin(), seen.end());
    XF_ASSERT(twice == seen.end(), "{} '{}' is described twice", kind_, *twice);
  }

  [[nodiscard]] const std::vector<Descriptor>& all() const { return entries_; }

  // By name or alias, `_` equal to `-`; nullptr when there is none.
  [[nodiscard]] const Descriptor* find(std::string_view name) const {
    const std::string wanted = canonical_name(name);
    for (const Descriptor& entry : entries_) {
      if (canonical_name(entry.name) == wanted) return &entry;
      for (const std::string& alias : entry.aliases)
        if (alias == wanted) return &entry;
    }
    return nullptr;
  }

  // As find, but an unknown name is a UserError with the nearest right name.
  [[nodiscard]] const Descriptor& get(std::string_view name) const {
    const Descriptor* found = find(name);
    if (found == nullptr) throw UserError(unknown_name_message(kind_, name, names()));
    return *found;
  }

  // All names and aliases, sorted.
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const Descriptor& entry : entries_) {
      result.push_back(entry.name);
      result.insert(result.end(), entry.aliases.begin(), entry.aliases.end());
    }
    std::sort(result.begin(), result.end());
    return result;
  }

 private:
  std::string kind_;
  std::vector<Descriptor> entries_;
};

}  // namespace xformer
