// A vocabulary of pieces of words: a model of SentencePiece, read from a file or trained on lines of text.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace xformer::data {

class PieceVocabulary {
 public:
  // `model` is the file's content. A damaged one is a DataError with `origin`; ResourceError where SentencePiece's
  // library is not there.
  PieceVocabulary(std::string_view model, const std::string& origin);

  [[nodiscard]] int32_t size() const { return static_cast<int32_t>(pieces_.size()); }
  [[nodiscard]] const std::string& sha256() const { return sha256_; }  // of the file
  [[nodiscard]] int32_t end_of_text() const { return end_of_text_; }   // the piece </s>; -1: there is none
  [[nodiscard]] int32_t unknown() const { return unknown_; }
  // As the model has it: a blank in front of a word is U+2581.
  [[nodiscard]] const std::string& piece(int32_t id) const { return pieces_.at(static_cast<size_t>(id)); }
  // How many words begin with a piece: the blanks that it holds.
  [[nodiscard]] uint8_t words(int32_t id) const { return words_[static_cast<size_t>(id)]; }
  // Appends the pieces of a text in UTF-8. Thread-safe.
  void encode(std::string_view text, std::vector<int32_t>& into) const;
  [[nodiscard]] std::string decode(std::span<const int32_t> ids) const;

 private:
  std::shared_ptr<void> model_;
  std::string sha256_;
  std::vector<std::string> pieces_;
  std::vector<uint8_t> words_;
  int32_t end_of_text_ = -1, unknown_ = 0;
};

struct PieceTraining {
  int64_t pieces = 32000;
  std::string kind = "unigram";            // or "bpe"
  std::string normalization = "nmt_nfkc";  // SentencePiece's rule of this name
  double coverage = 0.9995;                // share of all characters that have pieces of their own
  bool byte_fallback = true;               // others are written in 256 pieces of a byte each; else they are unknown
};

// The next line, valid until the following call; false after the last.
using NextTextLine = std::function<bool(std::string_view& line)>;
// The content of a model's file, a function of options and lines alone. Too little text for so many pieces is a
// DataError in SentencePiece's words.
[[nodiscard]] std::string train_pieces(const PieceTraining& options, const NextTextLine& next);

}  // namespace xformer::data
