// libFuzzer target: any text either gives rows of equal width or an xformer::Error, and rows that were read are
// written in quotes and read back unchanged. The first byte chooses delimiter, header and skipped lines.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "core/error.h"
#include "readers/csv.h"

namespace {

using namespace xformer::readers;
using Rows = std::vector<std::vector<std::string>>;

// A file in memory: the reader takes paths.
class MemoryFile {
 public:
  explicit MemoryFile(const std::string& content) : descriptor_(::memfd_create("fuzz", 0)) {
    if (descriptor_ < 0 || ::write(descriptor_, content.data(), content.size()) != static_cast<ssize_t>(content.size()))
      std::abort();
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

Rows rows_of(const std::string& content, const CsvFormat& format) {
  const MemoryFile file(content);
  CsvReader reader(file.path(), format);
  Rows rows;
  if (format.header) rows.push_back(reader.header());
  for (std::vector<std::string_view> fields; reader.next(fields);) rows.emplace_back(fields.begin(), fields.end());
  return rows;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  CsvFormat format;
  format.delimiter = ",\t;"[data[0] % 3];
  format.header = (data[0] & 4) != 0;
  if ((data[0] & 8) != 0) format.skip_prefixes = {"|"};
  Rows rows;
  try {
    rows = rows_of(std::string(reinterpret_cast<const char*>(data) + 1, size - 1), format);
  } catch (const xformer::Error&) {
    return 0;
  }
  std::string quoted;
  for (const auto& row : rows) {
    if (row.size() != rows[0].size()) std::abort();
    for (size_t i = 0; i < row.size(); ++i) {
      quoted += i == 0 ? "\"" : std::string(1, format.delimiter) + "\"";
      for (const char letter : row[i]) quoted += letter == '"' ? "\"\"" : std::string(1, letter);
      quoted += '"';
    }
    quoted += '\n';
  }
  if (rows_of(quoted, format) != rows) std::abort();
  return 0;
}
