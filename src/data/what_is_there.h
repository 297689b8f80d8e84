// For messages about a folder that lacks what was looked for.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/files.h"

namespace xformer::data {

// "found a.txt, b/, c (a link that leads nowhere) and 12 more", sorted, or "the folder is empty".
[[nodiscard]] std::string what_is_there(const Path& folder);

// The same of names that are known; `nothing` is said when there are none.
[[nodiscard]] std::string found_names(std::vector<std::string> names, const std::string& nothing);

// The folders in it, sorted; what cannot be looked into is passed over.
[[nodiscard]] std::vector<Path> subfolders(const Path& folder);

// "; did you mean --data DIR/imdb?": a folder in `place`, or the one around it, that holds what `place` does not; ""
// for none.
[[nodiscard]] std::string offered_place(const Path& place, const std::function<bool(const Path& folder)>& holds);

// find(place); a DataError of it goes on with the folder nearby in which the same is found.
template <class Find>
auto find_or_offer(const Path& place, const Find& find) {
  try {
    return find(place);
  } catch (const DataError& error) {
    const auto holds = [&](const Path& folder) {
      try {
        static_cast<void>(find(folder));
        return true;
      } catch (const std::exception&) {
        return false;
      }
    };
    throw DataError(error.what() + offered_place(place, holds));
  }
}

}  // namespace xformer::data
