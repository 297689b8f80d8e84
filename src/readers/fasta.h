// FASTA of nucleic acids, plain or gzip: records of a description line, '>' and text, and lines of letters, which are
// joined. And the letters of such sequences wherever they stand.
//
// Letters are IUPAC's (Cornish-Bowden 1985), of either case: A C G T, U for T, and the eleven that stand for several:
// R Y S W K M B D H V N. Blanks, empty lines and lines that begin with ';' are passed over. Errors are DataErrors with
// file and line: another letter, letters before the first '>', a record without letters, a file without a record, and
// those of LineReader.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "readers/line_reader.h"

namespace xformer::readers {

inline constexpr std::string_view kNucleotides = "ACGTRYSWKMBDHVN";

// Any number of letters, of which the first are kept.
struct Nucleotides {
  std::string letters;                                // of kNucleotides
  int64_t length = 0;                                 // of all letters
  std::array<int64_t, kNucleotides.size()> counts{};  // of all letters, by place in kNucleotides

  // Letters of which one stands for several.
  [[nodiscard]] int64_t ambiguous() const;
  // Adds those of `text` and keeps at most `most` in all; false where one is none, which then is `text[foreign]`.
  [[nodiscard]] bool add(std::string_view text, size_t most, size_t& foreign);
};

// What is said of such a letter behind file and line.
[[nodiscard]] std::string foreign_letter(std::string_view text, size_t foreign);

struct FastaRecord {
  std::string description;  // without '>'
  Nucleotides sequence;
  int64_t line = 0;  // of the description
};

class FastaReader {
 public:
  static constexpr size_t kLongestLine = 64'000'000;  // a sequence may stand in one

  // Of each record's letters at most `most` are kept; all are counted.
  FastaReader(const Path& path, size_t most);
  // False after the last record.
  [[nodiscard]] bool next(FastaRecord& record);
  [[nodiscard]] std::string where(const FastaRecord& record) const;  // "a.fa:17"
  [[nodiscard]] uint64_t bytes_read() const { return lines_.bytes_read(); }

 private:
  LineReader lines_;
  size_t most_;
  std::optional<std::string> description_;  // of the record to come
  int64_t description_line_ = 0;
};

}  // namespace xformer::readers
