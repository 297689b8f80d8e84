#include "attention/own_file.h"

#include <fmt/format.h>

#include "core/error.h"

namespace xformer::attention {

std::string own_file_path(const std::string& name) {
  std::string path = name.substr(name.find(':') + 1);
  XF_CHECK(!path.empty(), UserError, "{} needs the path of a file, like {}", name,
           name.starts_with(kScript) ? "script:my_attention.pt" : "plugin:build/libmy_attention.so");
  return path;
}

OptionInfo hash_option(const std::string& path, const std::string& sha256) {
  OptionInfo hash{
      "sha256", OptionType::kText, "of the file: a plan belongs to the file that it was made with", Json(sha256), {}};
  hash.rule.text = fmt::format("with the hash of {} as it is now", path);
  hash.rule.holds = [sha256](const Json& value) { return value == sha256; };
  return hash;
}

}  // namespace xformer::attention
