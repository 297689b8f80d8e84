#include "attention/own_file.h"

#include <fmt/format.h>

namespace xformer::attention {

OptionInfo hash_option(const std::string& path, const std::string& sha256) {
  OptionInfo hash{
      "sha256", OptionType::kText, "of the file: a plan belongs to the file that it was made with", Json(sha256), {}};
  hash.rule.text = fmt::format("with the hash of {} as it is now", path);
  hash.rule.holds = [sha256](const Json& value) { return value == sha256; };
  return hash;
}

}  // namespace xformer::attention
