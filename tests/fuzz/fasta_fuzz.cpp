// libFuzzer target: any bytes either give records of FASTA or an xformer::Error; records are whole (every letter is
// counted, as many kept as were asked for), and written anew in lines of another width they are read back unchanged.
// The first byte chooses how many letters are kept.
#include <algorithm>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "memory_file.h"
#include "readers/fasta.h"

namespace {

using namespace xformer::readers;

std::vector<FastaRecord> records_of(const std::string& bytes, size_t most) {
  const MemoryFile file(bytes);
  FastaReader reader(file.path(), most);
  std::vector<FastaRecord> records;
  for (FastaRecord record; reader.next(record);) {
    const Nucleotides& sequence = record.sequence;
    if (std::accumulate(sequence.counts.begin(), sequence.counts.end(), int64_t{0}) != sequence.length) std::abort();
    if (sequence.length < 1 || sequence.letters.size() != std::min(most, static_cast<size_t>(sequence.length)))
      std::abort();
    if (sequence.letters.find_first_not_of(kNucleotides) != std::string::npos) std::abort();
    records.push_back(record);
  }
  if (records.empty()) std::abort();
  return records;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string input(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::vector<FastaRecord> records;
  try {
    records = records_of(input, size_t{1} << 26);
    (void)records_of(input, data[0] % 32);
  } catch (const xformer::Error&) {
    return 0;
  }
  std::string text;
  for (const FastaRecord& record : records) {
    text += ">" + record.description + "\n";
    for (size_t i = 0; i < record.sequence.letters.size(); i += 7) text += record.sequence.letters.substr(i, 7) + "\n";
  }
  const std::vector<FastaRecord> back = records_of(text, size_t{1} << 26);
  if (back.size() != records.size()) std::abort();
  for (size_t i = 0; i < records.size(); ++i)
    if (back[i].description != records[i].description || back[i].sequence.letters != records[i].sequence.letters ||
        back[i].sequence.counts != records[i].sequence.counts)
      std::abort();
  return 0;
}
