// Descriptors are found by name and alias, and two of one name are a bug.
#include <catch2/catch.hpp>

#include "core/registry.h"
#include "scratch.h"

namespace xformer::registry_test {

using Catch::Matchers::Contains;

struct Entry {
  std::string name;
  std::vector<std::string> aliases;
};

TEST_CASE("a registry finds by name and alias, whatever the dash") {
  const Registry<Entry> registry("attention", {{"softmax", {"full"}}, {"mra2-s", {}}});
  CHECK(registry.get("softmax").name == "softmax");
  CHECK(registry.get("Full").name == "softmax");
  CHECK(registry.get("MRA2_s").name == "mra2-s");
  CHECK(registry.find("none") == nullptr);
  CHECK(registry.names() == std::vector<std::string>{"full", "mra2-s", "softmax"});
  CHECK(registry.all().front().name == "mra2-s");
}

TEST_CASE("an unknown name is a UserError with the nearest right one") {
  const Registry<Entry> registry("attention", {{"softmax", {}}, {"linformer", {}}});
  CHECK_THAT(scratch::message_of<UserError>([&] { (void)registry.get("linfomer"); }),
             Contains("unknown attention 'linfomer'") && Contains("'linformer'"));
}

TEST_CASE("a name described twice is an InternalError") {
  CHECK_THROWS_AS((Registry<Entry>("attention", {{"a", {}}, {"b", {"a"}}})), InternalError);
}

}  // namespace xformer::registry_test
