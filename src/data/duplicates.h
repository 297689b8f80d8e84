// Finds sequences that occur twice, within a split or in two of them, by a 128-bit hash of their tokens.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>

#include "core/json.h"
#include "data/source.h"

namespace xformer::data {

// 128 bits of the SHA-256 of the tokens.
[[nodiscard]] std::string content_key(std::span<const uint8_t> tokens);

class DuplicateFinder {
 public:
  // What the splits are called in reports: file names, or "train", ...
  explicit DuplicateFinder(std::array<std::string, 3> names) : names_(std::move(names)) {}

  // `place`: the line or index. `answer`: the label or target.
  void see(Split split, int64_t place, std::span<const uint8_t> tokens, double answer);

  [[nodiscard]] int64_t within(Split split) const { return within_[static_cast<size_t>(split)]; }
  [[nodiscard]] int64_t across() const { return across_; }
  [[nodiscard]] const std::string& first_within() const { return first_within_; }  // "a.tsv:5 repeats a.tsv:2", or ""
  [[nodiscard]] const std::string& first_across() const { return first_across_; }
  // Sequences that were there before with another answer.
  [[nodiscard]] int64_t contradictions() const { return contradictions_; }
  [[nodiscard]] const std::string& first_contradiction() const { return first_contradiction_; }
  // {"duplicates_within_splits": {...}, "duplicates_across_splits": n, "first_duplicate_across_splits": "..."}
  [[nodiscard]] Json report() const;

 private:
  struct Seen {
    Split first_split;
    int64_t first_place;
    uint8_t splits;  // bit by split
    double answer;
  };
  std::array<std::string, 3> names_;
  std::unordered_map<std::string, Seen> seen_;
  std::array<int64_t, 3> within_{};
  int64_t across_ = 0, contradictions_ = 0;
  std::string first_within_, first_across_, first_contradiction_;
};

}  // namespace xformer::data
