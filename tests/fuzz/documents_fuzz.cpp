// libFuzzer target: any text either gives documents or an xformer::Error; a document has a character, is UTF-8, has no
// blank around it and is no longer than the limit. The first byte chooses the format.
#include <filesystem>

#include "core/error.h"
#include "core/text.h"
#include "core/utf8.h"
#include "memory_file.h"
#include "readers/documents.h"

namespace {

using namespace xformer::readers;

// Formats are known by the name, which a file in memory has not: a link to it does.
class NamedLink {
 public:
  NamedLink(const std::string& target, const char* ending)
      : path_(std::filesystem::temp_directory_path() / ("fuzzed-" + std::to_string(::getpid()) + ending)) {
    std::filesystem::remove(path_);
    std::filesystem::create_symlink(target, path_);
  }
  ~NamedLink() { std::filesystem::remove(path_); }
  NamedLink(const NamedLink&) = delete;
  NamedLink& operator=(const NamedLink&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  constexpr size_t kLongest = 300;
  const MemoryFile file({reinterpret_cast<const char*>(data) + 1, size - 1});
  const NamedLink link(file.path(), data[0] % 5 == 4 ? ".jsonl" : ".txt");
  try {
    DocumentReader reader(link.path(), {static_cast<DocumentEnd>(data[0] % 4), "text"}, kLongest);
    for (std::string text; reader.next(text);)
      if (text.empty() || text.size() > kLongest || xformer::trim(text).size() != text.size() ||
          xformer::first_damaged_byte(text) != text.size())
        std::abort();
  } catch (const xformer::Error&) {
    return 0;
  }
  return 0;
}
