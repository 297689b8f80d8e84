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
  std::string detail;  // the numbers, or the first offender with file and line
};

struct CheckReport {
  bool passed = true;  // no item failed
  std::vector<CheckItem> items;
  Json splits = Json::object();  // per split: count, labels, lengths

  void add(std::string check, CheckOutcome outcome, std::string detail);
  // {"passed": ..., "checks": [{"check", "passed", "note", "detail"}], "splits": {...}}
  [[nodiscard]] Json json() const;
};

// ListOps in the location's folder, read line by line past the cache; without a folder, what the generator
// makes under the options. A folder without any ListOps file is a DataError, a bad row a failed check.
[[nodiscard]] CheckReport check_listops(const Json& options, const DataLocation& location,
                                        const ProgressCallback& progress);

}  // namespace xformer::data
