// FASTA as it is found: wrapped, compressed, in small letters, with letters that stand for several; and what is none.
#include "readers/fasta.h"

#include <catch2/catch.hpp>

#include "core/error.h"
#include "gzip_maker.h"
#include "scratch.h"

namespace xformer::fasta_test {

using Catch::Matchers::Contains;
using readers::FastaReader;
using readers::FastaRecord;
using readers::kNucleotides;
using scratch::gzip;

namespace {

constexpr size_t kAll = 1'000'000'000;

std::vector<FastaRecord> records_of(const Path& path, size_t most = kAll) {
  FastaReader reader(path, most);
  std::vector<FastaRecord> records;
  for (FastaRecord record; reader.next(record);) records.push_back(record);
  return records;
}

std::string refusal(const std::string& content) {
  const scratch::Folder folder;
  const Path path = scratch::put(folder / "some.fa", content);
  return scratch::message_of<DataError>([&] { (void)records_of(path); });
}

int64_t count_of(const FastaRecord& record, char letter) { return record.sequence.counts[kNucleotides.find(letter)]; }

}  // namespace

TEST_CASE("lines of a record are joined, letters become capitals, U is T", "[fasta]") {
  const scratch::Folder folder;
  const std::string text =
      "; an old comment\n>first  a description, with 3'pad=0\nACGT\nacgt\n\n  uU nN \r\n;between\nRYSWKMBDHV\n"
      ">second\nA";
  for (const std::string& content : {text, gzip(text)}) {
    const std::vector<FastaRecord> records = records_of(scratch::put(folder / "some.fa", content));
    REQUIRE(records.size() == 2);
    CHECK(records[0].description == "first  a description, with 3'pad=0");
    CHECK(records[0].sequence.letters == "ACGTACGTTTNNRYSWKMBDHV");
    CHECK(records[0].sequence.length == 22);
    CHECK((count_of(records[0], 'T') == 4 && count_of(records[0], 'N') == 2 && count_of(records[0], 'V') == 1));
    CHECK(records[0].sequence.ambiguous() == 12);
    CHECK((records[1].description == "second" && records[1].sequence.letters == "A" && records[1].line == 9));
  }
}

TEST_CASE("only the first letters are kept, and all are counted", "[fasta]") {
  const scratch::Folder folder;
  const Path path = scratch::put(folder / "some.fa", ">a\nACG\nTNA\n>b\nGG\n");
  const std::vector<FastaRecord> records = records_of(path, 4);
  REQUIRE(records.size() == 2);
  CHECK((records[0].sequence.letters == "ACGT" && records[0].sequence.length == 6));
  CHECK((count_of(records[0], 'A') == 2 && count_of(records[0], 'N') == 1));
  CHECK(records[1].sequence.letters == "GG");
}

TEST_CASE("a line of ten million letters is read", "[fasta]") {
  const scratch::Folder folder;
  const std::string content = ">chromosome\n" + std::string(10'000'000, 'c') + "\n>next\nA\n";
  const std::vector<FastaRecord> records = records_of(scratch::put(folder / "long.fa.gz", gzip(content)), 100);
  REQUIRE(records.size() == 2);
  CHECK((records[0].sequence.length == 10'000'000 && records[0].sequence.letters == std::string(100, 'C')));
}

TEST_CASE("what is no FASTA of nucleic acids is named with file and line", "[fasta]") {
  CHECK_THAT(refusal(""), Contains("some.fa: expected FASTA, found no record"));
  CHECK_THAT(refusal("\n\n; nothing\n"), Contains("found no record"));
  CHECK_THAT(refusal("ACGT\n"), Contains("some.fa:1: expected FASTA, which begins with '>'") && Contains("ACGT"));
  CHECK_THAT(refusal(">protein\nACGT\nMKLV\n"),
             Contains("some.fa:3: expected letters of nucleic acids") && Contains("found 'L' in column 3"));
  CHECK_THAT(refusal(">gap\nAC-T\n"), Contains("some.fa:2:") && Contains("found '-' in column 3"));
  CHECK_THAT(refusal(">numbers\nAC1T\n"), Contains("found '1'"));
  CHECK_THAT(refusal(">a\nA\n>no letters\n>b\nC\n"),
             Contains("some.fa:3: expected a sequence behind the description") && Contains("no letters"));
  CHECK_THAT(refusal(">last\n"), Contains("some.fa:1: expected a sequence"));
  CHECK_THAT(refusal(std::string(">binary\nAC\0GT\n", 14)), Contains("some.fa:2:") && Contains("NUL"));
  CHECK_THAT(refusal("version https://git-lfs.github.com/spec/v1\n"), Contains("git lfs pull"));
}

TEST_CASE("FASTA in gzip that is cut anywhere behind its first bytes is refused", "[fasta]") {
  const std::string packed = gzip(">a\nACGTACGT\n>b\nGGCC\n");
  for (size_t size = 2; size < packed.size(); ++size) {
    CAPTURE(size);
    CHECK_THAT(refusal(packed.substr(0, size)), Contains("some.fa"));
  }
  std::string damaged = packed;
  damaged[damaged.size() - 6] ^= 1;  // of the checksum
  CHECK_THAT(refusal(damaged), Contains("some.fa") && Contains("damaged"));
}

}  // namespace xformer::fasta_test
