#include "core/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace xformer {

std::string canonical_name(std::string_view name) {
  std::string result(name);
  for (char& letter : result) {
    letter = letter == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return result;
}

size_t edit_distance(std::string_view left, std::string_view right) {
  // Three rows of the Damerau-Levenshtein table (restricted: a pair is swapped at most once).
  std::vector<size_t> before(right.size() + 1), previous(right.size() + 1), current(right.size() + 1);
  for (size_t column = 0; column <= right.size(); ++column) previous[column] = column;
  for (size_t row = 1; row <= left.size(); ++row) {
    current[0] = row;
    for (size_t column = 1; column <= right.size(); ++column) {
      const bool same = left[row - 1] == right[column - 1];
      current[column] =
          std::min({previous[column] + 1, current[column - 1] + 1, previous[column - 1] + (same ? 0 : 1)});
      const bool swapped =
          row > 1 && column > 1 && left[row - 1] == right[column - 2] && left[row - 2] == right[column - 1];
      if (swapped) current[column] = std::min(current[column], before[column - 2] + 1);
    }
    std::swap(before, previous);
    std::swap(previous, current);
  }
  return previous[right.size()];
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string wanted = canonical_name(name);
  std::string best;
  size_t best_distance = std::string::npos;
  for (const std::string& candidate : candidates) {
    const std::string word = canonical_name(candidate);
    size_t distance = edit_distance(wanted, word);
    const bool extends = wanted.size() >= 4 && (word.starts_with(wanted) || wanted.starts_with(word));
    if (extends) distance = std::min<size_t>(distance, 2);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  const size_t allowed = std::max<size_t>(1, wanted.size() / 3);
  return best_distance <= allowed ? best : std::string();
}

std::string unknown_name_message(std::string_view kind, std::string_view name,
                                 const std::vector<std::string>& candidates) {
  const std::string near = nearest_name(name, candidates);
  if (!near.empty()) return fmt::format("unknown {} '{}'; did you mean '{}'?", kind, name, near);
  return fmt::format("unknown {} '{}'; known: {}", kind, name, fmt::join(candidates, ", "));
}

}  // namespace xformer
