// A file of SentencePiece's (its ModelProto, in protobuf's wire format), looked through before the library reads it:
// that trusts what stands in the file, so a damaged one would be read beyond its end.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace xformer::readers {

struct PieceModelFacts {
  int64_t pieces = 0;
  int64_t unknown = 0, control = 0, bytes = 0;  // of these: <unk>, such as </s>, and those of one byte each
};

// DataErrors, with `origin`: fields cut off or of another type than theirs, a piece that is empty, no UTF-8 or longer
// than 65,535 bytes, a score that is no number, no piece at all, other than one <unk>, and a table of normalisation
// that leads out of itself.
[[nodiscard]] PieceModelFacts look_through_piece_model(std::string_view file, const std::string& origin);

}  // namespace xformer::readers
