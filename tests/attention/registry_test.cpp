// Names of attentions and what they resolve to.
#include <algorithm>

#include "attention/support.h"

namespace xformer::attention::registry_test {

using namespace support;

std::string refusal(const std::string& name) {
  try {
    (void)resolve(name);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("attention names resolve exactly, with '_' as '-', and with a decorator in front") {
  CHECK(resolve("linformer").name == "linformer");
  CHECK(resolve("softmax_fused").name == "softmax-fused");
  const Resolved scaled = resolve("mrs_softmax_fused");
  CHECK(scaled.name == "mrs-softmax-fused");
  CHECK(scaled.base->name == "softmax-fused");
  REQUIRE(scaled.decorator != nullptr);
  CHECK(scaled.decorator->name == "mrs");
  CHECK_FALSE(scaled.traits().causal_ok);
}

TEST_CASE("a near miss of an attention name is answered with the nearest right one") {
  CHECK(refusal("mrs-linfomer").find("mrs-linformer") != std::string::npos);
  CHECK(refusal("sofmax").find("softmax") != std::string::npos);
  CHECK_FALSE(refusal("mrs-").empty());
  CHECK(refusal("mrs-mrs-softmax").find("once") != std::string::npos);
}

TEST_CASE("all names are sorted, resolve to themselves, and hold every decorated core") {
  const auto names = all_names();
  CHECK(std::is_sorted(names.begin(), names.end()));
  for (const std::string& name : names) CHECK_NOTHROW(resolve(name));
  for (const std::string base : {"softmax", "softmax-fused", "linformer", "linear", "performer"}) {
    CHECK(std::count(names.begin(), names.end(), base) == 1);
    CHECK(std::count(names.begin(), names.end(), "mrs-" + base) == 1);
  }
}

TEST_CASE("a decorated attention has the options of both") {
  std::vector<std::string> keys;
  for (const OptionInfo& info : resolve("mrs-linformer").options()) keys.push_back(info.name);
  std::sort(keys.begin(), keys.end());
  CHECK(keys == std::vector<std::string>{"projected_len", "scales", "share_kv", "sharing"});
}

}  // namespace xformer::attention::registry_test
