// ListOps: its symbols and their ids, its expressions and their values, and the two layouts of its files.
//
// An expression is kept without the round brackets of the files, which only repeat its structure:
// "[MAX 4 3 [MIN 2 3 ] 1 0 ]". The table of ids is fixed, so that a model reads the same language in
// every process.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "readers/line_reader.h"

namespace xformer::readers::listops {

inline constexpr int64_t kVocabulary = 16;  // ids 0 (padding) to 15; 16 is kept free for "unknown"
inline constexpr int64_t kClasses = 10;
inline constexpr uint8_t kFirstDigit = 1, kMin = 11, kMax = 12, kMed = 13, kSm = 14, kClose = 15;

// By id; the symbol of 0 is "<pad>".
inline constexpr std::array<std::string_view, kVocabulary> kSymbols{
    "<pad>", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "[MIN", "[MAX", "[MED", "[SM", "]"};

// SHA-256 of the table as lines "id<TAB>symbol".
[[nodiscard]] std::string vocabulary_sha256();

// Ids of an expression whose symbols are separated by blanks; round brackets are dropped. `where`
// ("file:line") opens the message about a symbol that is not in the table.
void encode(std::string_view expression, std::string_view where, std::vector<uint8_t>& ids);
[[nodiscard]] std::string decode(std::span<const uint8_t> ids);

// The value of a complete expression. A malformed one is a DataError that says what and at which symbol.
[[nodiscard]] int64_t evaluate(std::span<const uint8_t> ids);

enum class Layout {
  kLra,       // header "Source<TAB>Target", then expression<TAB>answer
  kOriginal,  // no header, answer<TAB>expression (Nangia and Bowman 2018)
};

struct Row {
  std::vector<uint8_t> tokens;
  int64_t label = 0;
};

// The rows of one file. An empty file, a wrong header, a row of other than two fields, a label outside 0 to 9
// and an unknown symbol are DataErrors with file and line.
class RowReader {
 public:
  RowReader(const Path& path, Layout layout);
  // False after the last row. The row's vector keeps its memory.
  [[nodiscard]] bool next(Row& row);
  [[nodiscard]] int64_t line_number() const { return lines_.line_number(); }
  [[nodiscard]] std::string where() const { return lines_.where(); }
  [[nodiscard]] uint64_t bytes_read() const { return lines_.bytes_read(); }

 private:
  LineReader lines_;
  Layout layout_;
  bool any_row_ = false;
};

}  // namespace xformer::readers::listops
