// A corpus as streams of pieces, one a split: its documents one behind the other, each with the piece </s> at its end.
// Packed once and mapped; what is cut out of the streams, and how long it is, is up to the tasks.
#pragma once

#include <memory>

#include "core/schema.h"
#include "data/source.h"
#include "data/text/piece_vocabulary.h"

namespace xformer::data {

struct PieceOptions {
  int64_t pieces = 32000, vocabulary_lines = 1'000'000, split_seed = 0;
  std::string vocabulary = "trained", piece_kind = "unigram", normalization = "nmt_nfkc";
  double coverage = 0.9995, dev_share = 0.05, test_share = 0.05;
  bool byte_fallback = true;
  std::string documents = "auto", text_key = "text";
};
[[nodiscard]] const Schema<PieceOptions>& piece_schema();
void check_pieces(const PieceOptions& options);  // UserError

class PieceStream {
 public:
  PieceStream(std::unique_ptr<DataSource> pages, std::shared_ptr<const PieceVocabulary> vocabulary);
  [[nodiscard]] int64_t size(Split split) const { return sizes_[static_cast<size_t>(split)]; }  // pieces
  // Those from `begin` on. Thread-safe.
  void read(Split split, int64_t begin, std::span<int32_t> into) const;
  [[nodiscard]] const PieceVocabulary& vocabulary() const { return *vocabulary_; }
  // Its hash, origin, what was dropped and details: {"vocabulary", "splits": {"train": {"documents", "pieces", ..}},
  // ..}.
  [[nodiscard]] const DataInfo& info() const { return pages_->info(); }

 private:
  std::unique_ptr<DataSource> pages_;
  std::shared_ptr<const PieceVocabulary> vocabulary_;
  std::array<int64_t, 3> sizes_{};
};

// Of the files in the location (corpus_files.h). A document without pieces is left out. DataErrors are those of the
// readers; a vocabulary of another size than data.pieces, or without </s>; a split without a piece.
[[nodiscard]] std::shared_ptr<PieceStream> open_piece_stream(const std::string& task, const PieceOptions& options,
                                                             const DataLocation& location,
                                                             const ProgressCallback& progress);

}  // namespace xformer::data
