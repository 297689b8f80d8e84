#include "readers/fasta.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"

namespace xformer::readers {
namespace {

constexpr int8_t kForeign = -1, kBlank = -2;

// By byte its place in kNucleotides, or what else it is.
constexpr std::array<int8_t, 256> places() {
  std::array<int8_t, 256> result{};
  result.fill(kForeign);
  for (size_t i = 0; i < kNucleotides.size(); ++i)
    for (const int upper_to_lower : {0, 'a' - 'A'})
      result[static_cast<size_t>(kNucleotides[i] + upper_to_lower)] = static_cast<int8_t>(i);
  result['U'] = result['u'] = result['T'];
  result[' '] = result['\t'] = kBlank;
  return result;
}
constexpr std::array<int8_t, 256> kPlaces = places();

}  // namespace

int64_t Nucleotides::ambiguous() const { return length - counts[0] - counts[1] - counts[2] - counts[3]; }

bool Nucleotides::add(std::string_view text, size_t most, size_t& foreign) {
  for (size_t i = 0; i < text.size(); ++i) {
    const int8_t place = kPlaces[static_cast<uint8_t>(text[i])];
    if (place == kBlank) continue;
    if (place == kForeign) {
      foreign = i;
      return false;
    }
    ++counts[static_cast<size_t>(place)];
    ++length;
    if (letters.size() < most) letters += kNucleotides[static_cast<size_t>(place)];
  }
  return true;
}

std::string foreign_letter(std::string_view text, size_t foreign) {
  return fmt::format("expected letters of nucleic acids ({}, U), found {} in column {}", kNucleotides,
                     xformer::quoted(text.substr(foreign, 1)), foreign + 1);
}

FastaReader::FastaReader(const Path& path, size_t most) : lines_(path, kLongestLine), most_(most) {
  for (std::string_view line; !description_ && lines_.next(line);) {
    if (trim(line).empty() || line.starts_with(';')) continue;
    XF_CHECK(line.starts_with('>'), DataError, "{}: expected FASTA, which begins with '>' and a description, found {}",
             lines_.where(), xformer::quoted(line));
    description_ = line.substr(1);
    description_line_ = lines_.line_number();
  }
  XF_CHECK(description_, DataError, "{}: expected FASTA, found no record in it", path.string());
}

std::string FastaReader::where(const FastaRecord& record) const {
  return fmt::format("{}:{}", lines_.path().string(), record.line);
}

bool FastaReader::next(FastaRecord& record) {
  if (!description_) return false;
  record = {std::string(trim(*description_)), {}, description_line_};
  description_.reset();
  for (std::string_view line; !description_ && lines_.next(line);) {
    if (line.starts_with('>')) {
      description_ = line.substr(1);
      description_line_ = lines_.line_number();
    } else if (!line.starts_with(';')) {
      size_t foreign = 0;
      XF_CHECK(record.sequence.add(line, most_, foreign), DataError, "{}: {}", lines_.where(),
               foreign_letter(line, foreign));
    }
  }
  XF_CHECK(record.sequence.length > 0, DataError, "{}: expected a sequence behind the description {}, found none",
           where(record), xformer::quoted(record.description));
  return true;
}

}  // namespace xformer::readers
