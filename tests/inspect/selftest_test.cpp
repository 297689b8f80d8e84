// `xformer selftest` from the inside, on the CPU.
#include "inspect/selftest.h"

#include <catch2/catch.hpp>

#include "core/error.h"

namespace xformer::inspect {

TEST_CASE("every part of the self-test passes, item by item") {
  for (const std::string& part : selftest_parts()) {
    const SelftestReport report = run_selftest(part, at::kCPU);
    CHECK(report.items.size() > 5);
    for (const SelftestItem& item : report.items) {
      INFO(item.claim << ": " << item.detail);
      CHECK(item.passed);
    }
    CHECK(report.passed());
    CHECK(report.fingerprint.size() == (part == "learning" ? 16 : 0));
  }
  CHECK_THROWS_AS(run_selftest("captures", at::kCPU), UserError);
}

}  // namespace xformer::inspect
