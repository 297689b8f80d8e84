#include "core/json_file.h"

#include <catch2/catch.hpp>

#include "core/error.h"
#include "scratch.h"

namespace xformer {

TEST_CASE("what is no such file is said with its place") {
  const scratch::Folder folder;
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(read_json_file(scratch::put(folder / "a.json", "{\"a\": }")), Contains("a.json: not valid JSON"));
  CHECK_THROWS_AS(read_json_file(folder / "missing.json"), DataError);
}

}  // namespace xformer
