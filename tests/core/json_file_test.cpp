#include "core/json_file.h"

#include <catch2/catch.hpp>

#include "core/error.h"
#include "scratch.h"

namespace xformer {

TEST_CASE("a file takes what it extends, its own values win") {
  const scratch::Folder folder;
  std::filesystem::create_directory(folder / "inner");
  scratch::put(folder / "base.json", R"({"a": 1, "b": {"x": 1, "y": 1}, "c": {"x": 1, "y": 1}})");
  scratch::put(folder / "inner/middle.json", R"({"extends": "../base.json", "b": {"y": 2}, "c": {"y": 2}})");
  const Path top = scratch::put(folder / "top.json", R"({"extends": "inner/middle.json", "a": 3})");
  CHECK(read_extended_json(top, {"b"}) == Json::parse(R"({"a": 3, "b": {"x": 1, "y": 2}, "c": {"y": 2}})"));
}

TEST_CASE("what is no such file is said with its place") {
  const scratch::Folder folder;
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(read_json_file(scratch::put(folder / "a.json", "{\"a\": }")), Contains("a.json: not valid JSON"));
  CHECK_THROWS_AS(read_json_file(folder / "missing.json"), DataError);
  CHECK_THROWS_WITH(read_extended_json(scratch::put(folder / "list.json", "[1]")),
                    Contains("expected one JSON object"));
  CHECK_THROWS_WITH(read_extended_json(scratch::put(folder / "number.json", R"({"extends": 3})")),
                    Contains("extends: expected the path"));
  CHECK_THROWS_WITH(read_extended_json(scratch::put(folder / "self.json", R"({"extends": "self.json"})")),
                    Contains("in a circle"));
}

}  // namespace xformer
