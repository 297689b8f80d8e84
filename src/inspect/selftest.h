// A few seconds that show whether this build computes what it should on this machine.
#pragma once

#include <torch/types.h>

#include <functional>
#include <string>
#include <vector>

namespace xformer::inspect {

struct SelftestItem {
  std::string claim;
  bool passed = false;
  std::string detail;
};

// Hears every item as soon as it is known.
using SelftestListener = std::function<void(const SelftestItem& item)>;

struct SelftestReport {
  std::vector<SelftestItem> items;
  // Hash of the losses of a fixed training, rounded to 5 digits: a change that claims to change nothing keeps it. Of
  // the part "learning"; empty otherwise.
  std::string fingerprint;
  [[nodiscard]] bool passed() const;
};

// learning  every attention learns a tiny task, twice the same way
// contract  every attention on the device against double precision on the CPU (device_checks.h)
// captured  recordings that come, fail and go; recorded training steps against plain ones (CUDA graphs; on a CPU the
// same through a recorder that replays calls)
[[nodiscard]] const std::vector<std::string>& selftest_parts();
// Those in which steps are recorded: fp32, bf16, fp16.
[[nodiscard]] const std::vector<std::string>& recorded_precisions();
// UserError for an unknown part. `precisions` are of the part "captured".
[[nodiscard]] SelftestReport run_selftest(const std::string& part, const at::Device& device,
                                          const std::vector<std::string>& precisions = recorded_precisions(),
                                          const SelftestListener& listener = {});

}  // namespace xformer::inspect
