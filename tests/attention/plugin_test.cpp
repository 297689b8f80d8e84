// `plugin:FILE`: which files are refused before anything of them runs. That libraries compute is in
// tests/repo/own_attention_test.sh, which compiles some.
#include "attention/plugin.h"

#include "attention/support.h"
#include "scratch.h"

namespace xformer::attention::plugin_test {

using namespace support;
using scratch::message_of;

bool says(const std::string& text, const std::string& part) {
  CAPTURE(text, part);
  return text.find(part) != std::string::npos;
}

TEST_CASE("files that are no attention for this program are refused with the reason", "[plugin]") {
  const scratch::Folder folder;
  const auto refusal = [&](const std::string& content) {
    const Path path = scratch::put(folder / "LibMine.so", content);
    const std::string message = message_of<DataError>([&] { (void)resolve("plugin:" + path.string()); });
    CHECK(says(message, path.string()));
    return message;
  };
  CHECK(says(message_of<DataError>([&] { (void)resolve("plugin:" + (folder / "none.so").string()); }), "none.so"));
  CHECK(says(refusal("no library"), "xformer_attention()"));
  // What it was compiled with is told before anything is loaded.
  const std::string ours = XFORMER_INTERFACE, end(1, '\0');
  const std::string other = refusal(std::string(XFORMER_INTERFACE_MARK "headers 0, LibTorch 9.9") + end + "more");
  CHECK(says(other, "was compiled for another xformer, with headers 0, LibTorch 9.9;"));
  CHECK(says(other, "this program has headers " XFORMER_HEADERS));
  CHECK(says(refusal("before " + ours + "1" + end), "another xformer"));  // longer
  CHECK(says(refusal("before " + ours + end), "cannot be loaded"));
  // mrs- and a family in front find the same file.
  CHECK(says(message_of<DataError>([&] { (void)resolve("MRS_plugin:" + (folder / "None.so").string()); }), "None.so"));
}

TEST_CASE("a hash as an option holds for one file", "[plugin]") {
  const OptionInfo hash = hash_option("my.so", "abc");
  CHECK(hash.fallback == "abc");
  CHECK(hash.rule.holds("abc"));
  CHECK_FALSE(hash.rule.holds("abd"));
  CHECK(own_file_at("mrs-plugin:a/script:b.so") == 4);
  CHECK(own_file_at("vit/script:a.pt") == 4);
  CHECK(own_file_at("linformer") == std::string::npos);
}

}  // namespace xformer::attention::plugin_test
