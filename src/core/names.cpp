#include "core/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "core/error.h"

namespace xformer {
namespace {
constexpr size_t kAllShown = 8, kNearestShown = 5, kLeastPart = 3;
}

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
    const bool extends =
        std::min(wanted.size(), word.size()) >= 4 && (word.starts_with(wanted) || wanted.starts_with(word));
    if (extends) distance = std::min<size_t>(distance, 2);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  const size_t allowed = std::max<size_t>(1, wanted.size() / 3);
  return best_distance <= allowed ? best : std::string();
}

std::vector<std::string> nearest_names(std::string_view name, std::vector<std::string> candidates, size_t count) {
  const std::string wanted = canonical_name(name);
  const auto distance = [&](const std::string& candidate) {
    const std::string word = canonical_name(candidate);
    // A part of a name ("form", "mrs") is nearer to those that have it than to any short word.
    const bool part = wanted.size() >= kLeastPart && word.find(wanted) != std::string::npos;
    return std::pair(part ? 0 : 1, edit_distance(wanted, word));
  };
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](const std::string& a, const std::string& b) { return distance(a) < distance(b); });
  candidates.resize(std::min(candidates.size(), count));
  return candidates;
}

std::string unknown_name_message(std::string_view kind, std::string_view name,
                                 const std::vector<std::string>& candidates) {
  const std::string near = nearest_name(name, candidates);
  if (!near.empty()) return fmt::format("unknown {} '{}'; did you mean '{}'?", kind, name, near);
  if (candidates.size() <= kAllShown)
    return fmt::format("unknown {} '{}'; known: {}", kind, name, fmt::join(candidates, ", "));
  return fmt::format("unknown {} '{}'; the nearest of {}: {}", kind, name, candidates.size(),
                     fmt::join(nearest_names(name, candidates, kNearestShown), ", "));
}

size_t choice(std::string_view place, std::string_view kind, std::string_view name,
              const std::vector<std::string>& choices) {
  const auto found = std::find(choices.begin(), choices.end(), name);
  XF_CHECK(found != choices.end(), UserError, "{}{}", place, unknown_name_message(kind, name, choices));
  return static_cast<size_t>(found - choices.begin());
}

bool matches_pattern(std::string_view pattern, std::string_view name) {
  // Greedy, going back only to the last star: its text grows by one character and the rest is tried again.
  size_t p = 0, n = 0, star = std::string_view::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p, ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

std::vector<std::string> matching_names(std::string_view option, std::string_view kind,
                                        const std::vector<std::string>& patterns,
                                        const std::vector<std::string>& names) {
  std::vector<bool> taken(names.size());
  for (const std::string& pattern : patterns) {
    bool found = false;
    for (size_t i = 0; i < names.size(); ++i) {
      if (!matches_pattern(pattern, names[i])) continue;
      found = taken[i] = true;
    }
    if (found) continue;
    const std::string near = nearest_name(pattern, names);
    throw UserError(fmt::format("{}: '{}' fits the name of no {}; {}", option, pattern, kind,
                                near.empty() ? "there are " + first_names(names) : "did you mean '" + near + "'?"));
  }
  std::vector<std::string> result;
  for (size_t i = 0; i < names.size(); ++i)
    if (taken[i]) result.push_back(names[i]);
  return result;
}

std::string first_names(const std::vector<std::string>& names, size_t shown) {
  if (names.size() <= shown + 1) return fmt::format("{}", fmt::join(names, ", "));  // "1 more" is no shorter
  return fmt::format("{} and {} more", fmt::join(names.begin(), names.begin() + static_cast<int64_t>(shown), ", "),
                     names.size() - shown);
}

}  // namespace xformer
