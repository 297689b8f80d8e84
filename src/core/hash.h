// SHA-256 of bytes and files (Nettle), and MD5 where a publisher states no other, as lower-case hex.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/files.h"

namespace xformer {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void update(std::string_view bytes);
  [[nodiscard]] std::string hex();  // ends the hash; call once

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

[[nodiscard]] std::string sha256(std::string_view bytes);
[[nodiscard]] std::string sha256_of_file(const Path& path);
[[nodiscard]] std::string md5_of_file(const Path& path);

}  // namespace xformer
