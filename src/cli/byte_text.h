// Bytes as text that a terminal can show, as they come.
#pragma once

#include <string>
#include <string_view>

namespace xformer::cli {

// UTF-8 stays as it is; bytes that are none, and control characters but line ends and tabs, become \x and two digits.
class ByteText {
 public:
  // What can be shown now: a character whose bytes are not all there yet waits for the others.
  [[nodiscard]] std::string add(std::string_view bytes);
  // What still waits, where no others come.
  [[nodiscard]] std::string rest();

 private:
  std::string waiting_;
};

}  // namespace xformer::cli
