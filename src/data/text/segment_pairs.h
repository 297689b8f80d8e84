// A stream of documents as sequences of at most two segments: each begins where the last ended, with what is left of a
// document; where that leaves room, the beginning of the next document follows. Nothing is left out, and nothing twice.
#pragma once

#include "data/text/piece_stream.h"

namespace xformer::data {

struct SegmentPair {
  int64_t begin = 0;              // in the stream
  int64_t first = 0, second = 0;  // pieces; the second segment's begin behind the first and a </s>
};

class SegmentPairs {
 public:
  // Sequences of at most `length` places, of which [CLS] in front and a [SEP] behind each segment take one each; found
  // once and packed. length >= 4.
  SegmentPairs(const PieceStream& stream, int64_t length, const Path& cache, const ProgressCallback& progress);
  [[nodiscard]] int64_t size(Split split) const { return packed_->size(split); }
  [[nodiscard]] SegmentPair at(Split split, int64_t index) const;

 private:
  std::unique_ptr<DataSource> packed_;
};

}  // namespace xformer::data
