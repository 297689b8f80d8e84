// `xformer selftest` from the inside: every attention learns a tiny task, twice the same way.
#include "training/selftest.h"

#include <catch2/catch.hpp>

namespace xformer::training {

TEST_CASE("the self-test passes, item by item") {
  const SelftestReport report = run_selftest();
  for (const SelftestItem& item : report.items) {
    INFO(item.claim << ": " << item.detail);
    CHECK(item.passed);
  }
  CHECK(report.passed());
  CHECK(report.fingerprint.size() == 16);
}

}  // namespace xformer::training
