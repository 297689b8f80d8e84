// libFuzzer target: any text either gives rows of as many fields as there are columns or an xformer::Error, and any
// text either is a date of the four formats or is not. The first byte chooses the format of rows and of dates.
#include <filesystem>

#include "core/error.h"
#include "memory_file.h"
#include "readers/named_rows.h"

namespace {

using namespace xformer::readers;

// JSON lines are known by their name, which a file in memory has not: a link to it does.
class NamedLink {
 public:
  explicit NamedLink(const std::string& target)
      : path_(std::filesystem::temp_directory_path() / ("fuzzed-" + std::to_string(::getpid()) + ".jsonl")) {
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

void read_all(const xformer::Path& path) {
  NamedRowReader rows(path, ';');
  for (std::vector<std::string_view> fields; rows.next(fields);)
    if (fields.size() != rows.columns().size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto format = static_cast<DateFormat>(data[0] / 2 % 4);
  if (const auto date = parse_date(text, format); date && format == DateFormat::kSeconds)
    if (parse_date(std::to_string(*date), format) != date) std::abort();
  try {
    const MemoryFile file(text);
    if (data[0] % 2 == 0) read_all(file.path());
    else read_all(NamedLink(file.path()).path());
  } catch (const xformer::Error&) {
    return 0;
  }
  return 0;
}
