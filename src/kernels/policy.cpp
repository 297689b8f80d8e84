// The process-wide choice of implementations.
#include "kernels/policy.h"

#include <atomic>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/names.h"

namespace xformer::kernels {

namespace {

// Read at every operator call, from any thread.
std::atomic<Policy> current_policy{Policy::kAuto};

}  // namespace

Policy parse_policy(const std::string& name) {
  const std::vector<std::pair<std::string, Policy>> known = {{"auto", Policy::kAuto},
                                                             {"blas", Policy::kBlas},
                                                             {"composite", Policy::kComposite},
                                                             {"reference", Policy::kReference},
                                                             {"check", Policy::kCheck}};
  std::vector<std::string> names;
  for (const auto& [known_name, value] : known) {
    if (canonical_name(name) == known_name) return value;
    names.push_back(known_name);
  }
  throw UserError(unknown_name_message("kernels", name, names));
}

void set_policy(Policy policy) { current_policy.store(policy, std::memory_order_relaxed); }

Policy policy() { return current_policy.load(std::memory_order_relaxed); }

}  // namespace xformer::kernels
