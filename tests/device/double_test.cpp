// What `selftest --part contract` asks of a device, asked of one that is walked: in each precision, and causal.
#include <catch2/catch.hpp>

#include "device/walked_device.h"
#include "inspect/device_checks.h"

namespace xformer::inspect::double_test {

TEST_CASE("attentions agree with float64 on a device in each precision, causal ones by each of its kernels") {
  kernels::set_walk_order(kernels::WalkOrder::kForward);
  const std::set<std::string> causal_names{"softmax-fused", "linear",   "longformer",
                                           "logsparse",     "entmax15", "additive"};
  int64_t causal = 0, tf32 = 0, half = 0;
  for (const DoubleCheck& check : double_checks(kernels::kWalkedDevice)) {
    if (check.causal ? !causal_names.contains(check.name) : !check.tf32 && !check.products) continue;
    causal += check.causal, tf32 += check.tf32, half += check.products == at::kHalf;
    const SelftestItem item = check_against_double(check, kernels::kWalkedDevice);
    INFO(item.claim << ": " << item.detail);
    CHECK(item.passed);
  }
  CHECK(causal == static_cast<int64_t>(causal_names.size()));
  CHECK(tf32 > 5);
  CHECK(half > 3);
}

TEST_CASE("what is said to be causal is, by other kernels") {
  kernels::set_walk_order(kernels::WalkOrder::kForward);
  const auto plans = [](bool causal) {
    static_cast<void>(kernels::take_device_work());
    CHECK(check_against_double({"linear", 1e-3, causal}, kernels::kWalkedDevice).passed);
    return kernels::take_device_work().plans;
  };
  const bool same = plans(false) == plans(true);
  CHECK_FALSE(same);
}

// Which would agree better in float.
TEST_CASE("what is said to be in tf32 is") {
  kernels::set_walk_order(kernels::WalkOrder::kForward);
  DoubleCheck check{"softmax-fused", 1e-4};
  CHECK(check_against_double(check, kernels::kWalkedDevice).passed);
  check.tf32 = true;
  CHECK_FALSE(check_against_double(check, kernels::kWalkedDevice).passed);
  check.tf32 = false;
  CHECK(check_against_double(check, kernels::kWalkedDevice).passed);
}

}  // namespace xformer::inspect::double_test
