// Which implementation the operators use: --kernels=auto|reference|check.
#pragma once

#include <string>

namespace xformer::kernels {

enum class Policy {
  kAuto,       // the fastest for the device
  kReference,  // the plain composition of tensor operations
  kCheck,      // both; a difference beyond the type's tolerance is an InternalError naming the operator
};

[[nodiscard]] Policy parse_policy(const std::string& name);
void set_policy(Policy policy);
[[nodiscard]] Policy policy();

}  // namespace xformer::kernels
