// `xformer data check`: reads a dataset whole and says what is right with it, what is odd and what is wrong.
#pragma once

#include <string>
#include <vector>

#include "data/source.h"

namespace xformer::data {

enum class CheckOutcome {
  kPassed,
  kNote,  // worth knowing, and no fault: other sizes than the published ones
  kFailed,
};

struct CheckItem {
  std::string check;  // a claim: "every label is the value of its expression"
  CheckOutcome outcome = CheckOutcome::kPassed;
  std::string detail;  // the numbers, or the first offender with file and line; of a note all that is to be said
};

struct CheckReport {
  bool passed = true;  // no item failed
  std::vector<CheckItem> items;
  Json splits = Json::object();  // per split: count, labels, lengths

  void add(std::string check, CheckOutcome outcome, std::string detail);
  // A line an item: "ok    claim: detail", "FAIL  claim: detail"; of a note its detail alone, which would read as a
  // contradiction of the claim.
  [[nodiscard]] std::string text() const;
  // {"passed": ..., "checks": [{"check", "passed", "note", "detail"}], "splits": {...}}
  [[nodiscard]] Json json() const;
};

// Every value of an example, under its fields' names, one list a sequence: {"split", "index", "file", "class",
// "tokens":
// [[..]], "label", ..}; "file" and "class" where they have names.
[[nodiscard]] Json example_json(const Example& example, const DataSource& source, Split split, int64_t index);

// Of lengths in order, one or more: the middle one, or the mean of the two.
[[nodiscard]] double median(const std::vector<int64_t>& sorted);
// Per split: count, labels and their entropy in nats (what the best constant answer loses) or mean target, shortest,
// median, mean and longest length.
[[nodiscard]] Json split_facts(const DataSource& source, Split split);
// These of all splits, and notes on classes of one training example or none, which cannot be learnt.
void describe_splits(const DataSource& source, CheckReport& report);

// A note where the splits have other sizes than the published ones. What is in them is not compared by this
// (data/manifests.h).
inline constexpr const char* kPublishedCounts = "there are as many examples as published";
void compare_sizes(const DataSource& source, const std::array<int64_t, 3>& published, CheckReport& report);

// A note where an input occurs in two splits, or more than once in one, or with two answers; a dev split that is the
// test split is left out.
void check_duplicates(const DataSource& source, CheckReport& report);

// What there is to say in the end of examples in classes: a note where class_splits.h drew the splits (detail "split"
// is "own"), check_duplicates, describe_splits.
void check_drawn_splits(const DataSource& source, CheckReport& report);

class DuplicateFinder;
// Of the source, whose dev split was not looked at where that is its test split.
void report_duplicates(const DuplicateFinder& duplicates, const DataSource& source, CheckReport& report);

// ListOps in the location's folder, read line by line past the cache; without a folder, what the generator
// makes under the options. A folder without any ListOps file is a DataError, a bad row a failed check.
[[nodiscard]] CheckReport check_listops(const Json& options, const DataLocation& location,
                                        const ProgressCallback& progress);

}  // namespace xformer::data
