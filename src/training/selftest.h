// A few seconds that show whether this build computes what it should on this machine.
#pragma once

#include <string>
#include <vector>

namespace xformer::training {

struct SelftestItem {
  std::string claim;
  bool passed = false;
  std::string detail;
};

struct SelftestReport {
  std::vector<SelftestItem> items;
  // Hash of the losses of a fixed training, rounded to 5 digits: a change that claims to change nothing keeps it.
  std::string fingerprint;
  [[nodiscard]] bool passed() const;
};

[[nodiscard]] SelftestReport run_selftest();

}  // namespace xformer::training
