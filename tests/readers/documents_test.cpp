// Documents of plain text and of JSON lines, under every rule of what ends one, and what is refused.
#include "readers/documents.h"

#include <zlib.h>

#include <catch2/catch.hpp>

#include "core/error.h"
#include "scratch.h"

namespace xformer::documents_test {

using namespace readers;
using Catch::Matchers::Contains;
using Texts = std::vector<std::string>;

namespace {

Texts read(const Path& path, DocumentEnd end = DocumentEnd::kBlankLine, const std::string& key = "text",
           size_t longest = DocumentReader::kLongest) {
  DocumentReader reader(path, {end, key}, longest);
  Texts result;
  for (std::string text; reader.next(text);) result.push_back(text);
  return result;
}

std::string refusal(const std::string& name, const std::string& content, size_t longest = DocumentReader::kLongest) {
  const scratch::Folder folder;
  const Path path = scratch::put(folder / name, content);
  return scratch::message_of<DataError>([&] { (void)read(path, DocumentEnd::kBlankLine, "text", longest); });
}

}  // namespace

TEST_CASE("plain text is cut at blank lines, lines, marks or not at all", "[documents]") {
  const scratch::Folder folder;
  const Path path = scratch::put(folder / "a.txt", "\n  \none\r\n two\n\n \nthree\xC3\xA9\n");
  CHECK(read(path) == Texts{"one\n two", "three\xC3\xA9"});
  CHECK(read(path, DocumentEnd::kLine) == Texts{"one", "two", "three\xC3\xA9"});
  CHECK(read(path, DocumentEnd::kFile) == Texts{"one\n two\n\n \nthree\xC3\xA9"});
  CHECK(read(path, DocumentEnd::kArticle) == Texts{"one\n two\n\n \nthree\xC3\xA9"});
  const Path wiki =
      scratch::put(folder / "w.txt", "\n_START_ARTICLE_\nMill\n_START_PARAGRAPH_\nIt turns.\n\n_START_ARTICLE_\nOak\n");
  CHECK(read(wiki, DocumentEnd::kArticle) ==
        Texts{"_START_ARTICLE_\nMill\n_START_PARAGRAPH_\nIt turns.", "_START_ARTICLE_\nOak"});
  CHECK(read(scratch::put(folder / "empty.txt", "")).empty());
  CHECK(read(scratch::put(folder / "blank.txt", " \n\n\t\n")).empty());
}

TEST_CASE("JSON lines hold a document each under their key, plain or gzip", "[documents]") {
  const scratch::Folder folder;
  const std::string lines =
      "{\"text\": \"one\\ntwo\", \"url\": \"x\"}\n\n{\"n\": 1, \"text\": \"  \"}\n{\"text\": \"\\u00e9\"}\n";
  CHECK(read(scratch::put(folder / "a.jsonl", lines)) == Texts{"one\ntwo", "\xC3\xA9"});
  CHECK(read(scratch::put(folder / "b.json", "{\"body\": \"x\"}"), DocumentEnd::kLine, "body") == Texts{"x"});
  const Path packed = folder / "c4-train.00000-of-01024.json.gz";
  gzFile file = gzopen(packed.c_str(), "wb");
  REQUIRE(gzwrite(file, lines.data(), static_cast<unsigned>(lines.size())) == static_cast<int>(lines.size()));
  REQUIRE(gzclose(file) == Z_OK);
  CHECK(read(packed) == Texts{"one\ntwo", "\xC3\xA9"});
  for (const char* name : {"a.txt", "a.json", "a.jsonl", "a.txt.gz", "a.json.gz"}) CHECK(is_document_file(name));
  for (const char* name : {"a.model", "README.md", "a.gz", "a.tfrecord"}) CHECK_FALSE(is_document_file(name));
}

TEST_CASE("what is no document is refused with file and line", "[documents]") {
  CHECK_THAT(refusal("a.txt", "one\ntw\xFFo\n"), Contains("a.txt:2") && Contains("UTF-8") && Contains("0xff"));
  CHECK_THAT(refusal("a.jsonl", "{\"text\": \"a\xC0\"}\n"), Contains("a.jsonl:1") && Contains("UTF-8"));
  CHECK_THAT(refusal("a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\n"), Contains("a.jsonl:2: expected a JSON object"));
  CHECK_THAT(refusal("a.jsonl", "{\"txt\": \"a\"}\n"), Contains("expected a text under 'text', found no such key"));
  CHECK_THAT(refusal("a.jsonl", "{\"text\": 3}\n"), Contains("expected a text under 'text', found number"));
  CHECK_THAT(refusal("a.txt", "one\ntwo three\nfour\n", 12), Contains("a.txt:") && Contains("more than 12 bytes"));
  CHECK_THAT(refusal("a.jsonl", "{\"text\": \"0123456789abcdef\"}\n", 12),
             Contains("a.jsonl:1") && Contains("16 bytes; expected at most 12"));
  CHECK_THAT(refusal("a.txt", std::string("a\0b", 3)), Contains("a.txt:1"));
}

}  // namespace xformer::documents_test
