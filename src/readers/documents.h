// The documents of a corpus, one at a time and in bounded memory: JSON lines with the text under one key, as C4 has
// them, or plain text, each plain or gzip.
//
// A name that ends in .json or .jsonl (.gz behind it or not) holds JSON lines. Errors are DataErrors that name file and
// line: a line that is no JSON object, one without the key, text that is no UTF-8, a document that is longer than the
// limit, and what LineReader refuses.
#pragma once

#include "readers/line_reader.h"

namespace xformer::readers {

// Where one document of plain text ends and the next begins.
enum class DocumentEnd {
  kBlankLine,  // lines without a character but blanks stand between them
  kLine,       // a line each
  kFile,       // the whole file is one
  kArticle     // each begins with a line _START_ARTICLE_, as in Wiki-40B
};

struct DocumentFormat {
  DocumentEnd end = DocumentEnd::kBlankLine;
  std::string text_key = "text";
};

class DocumentReader {
 public:
  static constexpr size_t kLongest = size_t{16} << 20;  // bytes: a model of pieces works on a whole document

  DocumentReader(const Path& path, DocumentFormat format, size_t longest = kLongest);
  // The next document that has a character, lines joined by \n and without blanks around it; false after the last.
  [[nodiscard]] bool next(std::string& text);
  [[nodiscard]] std::string where() const { return lines_.where(); }
  [[nodiscard]] uint64_t bytes_read() const { return lines_.bytes_read(); }

 private:
  bool next_object(std::string& text);
  bool next_lines(std::string& text);

  LineReader lines_;
  DocumentFormat format_;
  size_t longest_;
  bool json_, pending_ = false;  // an article's first line was read
};

// Whether a file of this name is one of documents: .txt, .json, .jsonl, .gz behind it or not.
[[nodiscard]] bool is_document_file(const Path& path);

inline constexpr std::string_view kArticleMark = "_START_ARTICLE_";

}  // namespace xformer::readers
