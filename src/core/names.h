// User-facing names: kebab-case, `_` and `-` compare equal, near misses get the nearest valid name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace xformer {

// "MRA2_s" -> "mra2-s".
[[nodiscard]] std::string canonical_name(std::string_view name);

// Number of insertions, deletions, substitutions and swaps of neighbours between two words.
[[nodiscard]] size_t edit_distance(std::string_view left, std::string_view right);

// The candidate nearest to `name`, or "" when none is near enough to be meant. A candidate that
// merely extends the last word ("projected_length" for "projected_len") counts as near.
[[nodiscard]] std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

// Those that have `name` as a part and those of least edit distance, the nearest first.
[[nodiscard]] std::vector<std::string> nearest_names(std::string_view name, std::vector<std::string> candidates,
                                                     size_t count);

// "unknown attention 'linfomer'; did you mean 'linformer'?", or with no near name all of a few, the five nearest of
// many.
[[nodiscard]] std::string unknown_name_message(std::string_view kind, std::string_view name,
                                               const std::vector<std::string>& candidates);

// Which of some choices a name is; otherwise a UserError of that message behind `place` ("--format: ").
[[nodiscard]] size_t choice(std::string_view place, std::string_view kind, std::string_view name,
                            const std::vector<std::string>& choices);

// Whether a pattern fits the whole name: '*' stands for any text, dots and nothing included, '?' for one character.
[[nodiscard]] bool matches_pattern(std::string_view pattern, std::string_view name);

// The names that any of the patterns fits, each once, in their order. A pattern that fits none is a UserError that says
// what the patterns are for ("--freeze", "a parameter") and which names there are.
[[nodiscard]] std::vector<std::string> matching_names(std::string_view option, std::string_view kind,
                                                      const std::vector<std::string>& patterns,
                                                      const std::vector<std::string>& names);

// "a, b, c and 12 more".
[[nodiscard]] std::string first_names(const std::vector<std::string>& names, size_t shown = 6);

}  // namespace xformer
