// The policy of a test, until the end of its scope.
#pragma once

#include "kernels/policy.h"

namespace xformer::kernels {

class PolicyScope {
 public:
  explicit PolicyScope(Policy wanted) { set_policy(wanted); }
  ~PolicyScope() { set_policy(Policy::kAuto); }
  PolicyScope(const PolicyScope&) = delete;
  PolicyScope& operator=(const PolicyScope&) = delete;
};

}  // namespace xformer::kernels
