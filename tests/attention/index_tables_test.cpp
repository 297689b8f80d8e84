// Tables of numbers that cores keep from step to step.
#include "attention/shared/index_tables.h"

#include <c10/core/UndefinedTensorImpl.h>
#include <c10/util/Exception.h>

#include <catch2/catch.hpp>

#include <algorithm>

namespace xformer::attention {

TEST_CASE("an index table is made once for its name, its numbers and its device") {
  const IndexTables tables;
  int made = 0;
  const auto rows = [&](const char* name, int64_t count) {
    return tables.get(name, {count}, at::kCPU, [&](const at::TensorOptions& numbers) {
      ++made;
      return at::arange(count, numbers);
    });
  };
  CHECK(rows("rows", 3).is_same(rows("rows", 3)));
  CHECK(made == 1);
  CHECK(rows("rows", 4).size(0) == 4);
  CHECK_FALSE(rows("columns", 3).is_same(rows("rows", 3)));
  CHECK(made == 3);
  CHECK(at::equal(tables.numbers(2, at::kCPU), at::tensor({0, 1}, at::kLong)));
}

TEST_CASE("lengths without end leave a bounded number of tables, and the first stay") {
  const IndexTables tables;
  int made = 0;
  const auto of = [&](int64_t count) {
    return tables.get("rows", {count}, at::kCPU, [&](const at::TensorOptions& numbers) {
      ++made;
      return at::arange(count, numbers);
    });
  };
  const auto most = static_cast<int64_t>(IndexTables::kMost);
  for (int64_t count = 1; count <= most + 5; ++count) CHECK(of(count).size(0) == count);
  made = 0;
  for (int64_t count = 1; count <= most + 5; ++count) CHECK(of(count).size(0) == count);
  CHECK(made == 5);
}

TEST_CASE("a table that is made while work is recorded is not kept, and one of the host is refused") {
  const IndexTables tables;
  int made = 0;
  const auto table = [&] {
    return tables.get("table", {2}, at::kCPU, [&](const at::TensorOptions& numbers) {
      ++made;
      return at::zeros({2}, numbers);
    });
  };
  {
    const RecordingScope scope;
    const at::Tensor first = table();
    CHECK_FALSE(first.is_same(table()));
    CHECK(made == 2);
    CHECK_THROWS_AS(host_table(at::zeros({2}), at::kCPU), c10::Error);
  }
  const at::Tensor kept = table();
  CHECK(made == 3);
  const RecordingScope scope;
  CHECK(kept.is_same(table()));
}

TEST_CASE("a text that is written leaves a bounded number of tables, training keeps those of all its lengths") {
  const auto most = static_cast<int64_t>(IndexTables::kMost);
  for (const bool training : {false, true}) {
    const TablesByLength<at::Tensor> tables;
    const auto of = [&](int64_t length) {
      return tables.get(length, at::kCPU, training, [&] { return at::arange(length, at::kLong); });
    };
    std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> seen;
    for (int64_t length = 1; length <= most + 5; ++length) {
      const at::Tensor table = of(length);
      CHECK(table.size(0) == length);
      CHECK(table.is_same(of(length)));
      seen.emplace_back(table.getIntrusivePtr());
    }
    const auto alive = std::count_if(seen.begin(), seen.end(), [](const auto& one) { return !one.expired(); });
    CHECK(alive == most + (training ? 5 : 1));
  }
}

TEST_CASE("a table of a length that recorded work reads stays") {
  const auto most = static_cast<int64_t>(IndexTables::kMost);
  const TablesByLength<at::Tensor> tables;
  const auto of = [&](int64_t length) {
    return tables.get(length, at::kCPU, /*training=*/false, [&] { return at::arange(length, at::kLong); });
  };
  for (int64_t length = 1; length <= most + 1; ++length) (void)of(length);
  at::Tensor recorded;
  {
    const RecordingScope scope;
    recorded = of(most + 1);
  }
  (void)of(most + 2);
  CHECK(recorded.is_same(of(most + 1)));
}

}  // namespace xformer::attention
