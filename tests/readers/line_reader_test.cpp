// Lines of plain and gzip files, and every way such a file can be bad.
#include <catch2/catch.hpp>

#include "core/error.h"
#include "gzip_maker.h"
#include "readers/line_reader.h"
#include "scratch.h"

namespace xformer::line_reader_test {

using Catch::Matchers::Contains;
using readers::LineReader;
using scratch::gzip;
using Lines = std::vector<std::string>;

Lines lines_of(const Path& path, size_t longest = LineReader::kLongestLine) {
  LineReader reader(path, longest);
  Lines lines;
  for (std::string_view line; reader.next(line);) lines.emplace_back(line);
  return lines;
}

std::string refusal(const Path& path, size_t longest = LineReader::kLongestLine) {
  return scratch::message_of<DataError>([&] { (void)lines_of(path, longest); });
}

std::string many_lines(Lines& lines) {
  std::string content;
  for (int i = 0; i < 3000; ++i) {
    lines.push_back(std::string(static_cast<size_t>(i * 37 % 211), 'x') + std::to_string(i));
    content += lines.back() + '\n';
  }
  return content;
}

TEST_CASE("line ends may be LF or CRLF, and the last may be missing") {
  const scratch::Folder folder;
  CHECK(lines_of(scratch::put(folder / "a", "one\ntwo\r\n\nfour")) == Lines{"one", "two", "", "four"});
  CHECK(lines_of(scratch::put(folder / "b", "one\n")) == Lines{"one"});
  CHECK(lines_of(scratch::put(folder / "c", "\n")) == Lines{""});
  CHECK(lines_of(scratch::put(folder / "d", "")).empty());
}

TEST_CASE("a gzip file gives the lines of its content, whatever its name") {
  const scratch::Folder folder;
  Lines lines;
  const std::string content = many_lines(lines);
  CHECK(lines_of(scratch::put(folder / "plain.gz", content)) == lines);
  CHECK(lines_of(scratch::put(folder / "packed.tsv", gzip(content))) == lines);
  CHECK(lines_of(scratch::put(folder / "empty.gz", gzip(""))).empty());
}

TEST_CASE("gzip members may follow each other and zeros may follow them") {
  const scratch::Folder folder;
  CHECK(lines_of(scratch::put(folder / "two", gzip("a\nb") + gzip("c\n"))) == Lines{"a", "bc"});
  CHECK(lines_of(scratch::put(folder / "zeros", gzip("a\n") + std::string(1000, '\0'))) == Lines{"a"});
  CHECK_THAT(refusal(scratch::put(folder / "junk", gzip("a\n") + "junk")), Contains("junk") && Contains("damaged"));
}

TEST_CASE("a gzip file cut at any byte is a DataError that names it") {
  const scratch::Folder folder;
  const std::string packed = gzip("some words\nand some more\n");
  for (size_t size = 2; size < packed.size(); ++size) {
    const Path path = scratch::put(folder / "cut.gz", packed.substr(0, size));
    INFO("cut to " << size << " of " << packed.size());
    CHECK_THAT(refusal(path), Contains(path.string()) && Contains("cut off"));
  }
}

TEST_CASE("a damaged gzip file is a DataError that names it") {
  const scratch::Folder folder;
  Lines lines;
  std::string packed = gzip(many_lines(lines));
  for (size_t i = 0; i < 50; ++i) packed[packed.size() / 2 + i] ^= 0x55;
  const Path path = scratch::put(folder / "bad.gz", packed);
  CHECK_THAT(refusal(path), Contains(path.string()) && Contains("damaged"));
}

TEST_CASE("a line at the limit is read and one above it refused with file and line") {
  const scratch::Folder folder;
  const std::string longest(100, 'x');
  CHECK(lines_of(scratch::put(folder / "fits", "a\n" + longest + "\r\n" + longest), 100) ==
        Lines{"a", longest, longest});
  for (const char* end : {"", "\n", "\r\n"}) {
    const Path path = scratch::put(folder / "long", "a\n" + longest + "x" + end);
    CHECK_THAT(refusal(path, 100), Contains(path.string() + ":2:") && Contains("at most 100 B") && Contains("'xxx"));
  }
}

TEST_CASE("a line of 10 MB is refused, plain and packed") {
  const scratch::Folder folder;
  const std::string content = "a\nb\n" + std::string(10'000'000, 'x') + "\n";
  const Path plain = scratch::put(folder / "plain", content), packed = scratch::put(folder / "packed", gzip(content));
  CHECK_THAT(refusal(plain), Contains(plain.string() + ":3:") && Contains("1.0 MB"));
  CHECK_THAT(refusal(packed), Contains(packed.string() + ":3:") && Contains("1.0 MB"));
}

TEST_CASE("a NUL byte is refused with file, line and column") {
  const scratch::Folder folder;
  const Path path = scratch::put(folder / "binary", std::string_view("a\nbc\0d\n", 7));
  CHECK_THAT(refusal(path), Contains(path.string() + ":2:") && Contains("column 3"));
}

TEST_CASE("a UTF-8 byte order mark is no part of the first line, and other encodings are named") {
  const scratch::Folder folder;
  const auto put = [&](std::string_view content) { return scratch::put(folder / "text", content); };
  CHECK(lines_of(put("\xef\xbb\xbfone\n\xef\xbb\xbftwo\n")) == Lines{"one", "\xef\xbb\xbftwo"});
  CHECK(lines_of(put(gzip("\xef\xbb\xbfone\n"))) == Lines{"one"});
  CHECK_THAT(refusal(put(std::string_view("\xff\xfeo\0n\0e\0\n\0", 10))), Contains("UTF-16") && Contains("iconv"));
  CHECK_THAT(refusal(put(std::string_view("\xfe\xff\0o\0\n", 6))), Contains("found UTF-16"));
  CHECK_THAT(refusal(put(std::string_view("o\0n\0e\0\n\0", 8))), Contains("or text in UTF-16"));
  CHECK_THAT(refusal(put("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n")),
             Contains("Git LFS pointer") && Contains("git lfs pull"));
}

TEST_CASE("lines that end in CR alone are named, in a short file and in one longer than a line may be") {
  const scratch::Folder folder;
  CHECK_THAT(refusal(scratch::put(folder / "a", "one\rtwo\rthree")), Contains("CR alone") && Contains("tr "));
  std::string many;
  while (many.size() < 3 * LineReader::kLongestLine) many += "some words\r";
  CHECK_THAT(refusal(scratch::put(folder / "b", many)), Contains("CR alone"));
  CHECK(lines_of(scratch::put(folder / "c", "a\rb\nc\n")) == Lines{"a\rb", "c"});
  CHECK_THAT(refusal(scratch::put(folder / "d", std::string_view("a\rb\0c", 5))), Contains("binary file"));
}

TEST_CASE("a missing file and a folder are DataErrors that name the path") {
  const scratch::Folder folder;
  CHECK_THAT(refusal(folder / "none"), Contains((folder / "none").string()) && Contains("No such file"));
  CHECK_THAT(refusal(folder.path()), Contains("found a folder"));
}

TEST_CASE("a reader knows where it is") {
  const scratch::Folder folder;
  LineReader reader(scratch::put(folder / "a", "one\ntwo\n"));
  std::string_view line;
  CHECK(reader.line_number() == 0);
  REQUIRE(reader.next(line));
  REQUIRE(reader.next(line));
  CHECK(reader.where() == (folder / "a").string() + ":2");
  CHECK_FALSE(reader.next(line));
  CHECK(reader.bytes_read() == 8);
}

}  // namespace xformer::line_reader_test
