#include "data/text/segment_pairs.h"

#include <algorithm>

#include "core/error.h"
#include "data/cache/cache.h"

namespace xformer::data {
namespace {

constexpr int64_t kPairsVersion = 1;  // part of the cache's key: raise it when other sequences come out of a stream
constexpr int64_t kLow = int64_t{1} << 30;  // places of a stream are stored in two numbers
constexpr int64_t kAtOnce = 65'536;

// Calls document(begin, size) for every stretch of the stream between two ends of documents.
template <class Document>
void for_each_document(const PieceStream& stream, Split split, const Document& document) {
  std::vector<int32_t> part;
  int64_t begin = 0;
  for (int64_t done = 0; done < stream.size(split); done += static_cast<int64_t>(part.size())) {
    part.resize(static_cast<size_t>(std::min(kAtOnce, stream.size(split) - done)));
    stream.read(split, done, part);
    for (size_t i = 0; i < part.size(); ++i)
      if (part[i] == stream.vocabulary().end_of_text()) {
        const int64_t end = done + static_cast<int64_t>(i);
        if (end > begin) document(begin, end - begin);
        begin = end + 1;
      }
  }
}

}  // namespace

SegmentPairs::SegmentPairs(const PieceStream& stream, int64_t length, const Path& cache,
                           const ProgressCallback& progress) {
  const auto build = [&](const AddExample& add, DataInfo& info) {
    info.shape.max_len = 4;
    info.shape.vocabulary = kLow * 2;
    info.shape.zero_is_padding = false;
    info.shape.target = class_target(1);
    info.origin = "files";
    for (const Split split : kAllSplits) {
      SegmentPair open;  // a first segment that waits for a second
      std::vector<int32_t> numbers;
      const auto emit = [&](const SegmentPair& pair) {
        numbers = {static_cast<int32_t>(pair.begin / kLow), static_cast<int32_t>(pair.begin % kLow),
                   static_cast<int32_t>(pair.first), static_cast<int32_t>(pair.second)};
        add(split, {{numbers}});
      };
      for_each_document(stream, split, [&](int64_t begin, int64_t size) {
        if (open.first > 0) {
          open.second = std::min(size, length - 3 - open.first);
          emit(open);
          begin += open.second, size -= open.second;
          open = {};
        }
        for (; size > 0; begin += open.first, size -= open.first) {
          open = {begin, std::min(size, length - 2), 0};
          if (open.first < size || open.first > length - 4) emit(open);  // no room for another
          else return;
        }
        open = {};
      });
      if (open.first > 0) emit(open);
    }
  };
  const Json key{{"version", kPairsVersion}, {"stream", stream.info().sha256}, {"length", length}};
  packed_ = open_cached({cache, "segment-pairs", key}, build, progress);
}

SegmentPair SegmentPairs::at(Split split, int64_t index) const {
  const Example example = packed_->read(split, index);
  const std::span<const int32_t> numbers = example.ids[0];
  return {numbers[0] * kLow + numbers[1], numbers[2], numbers[3]};
}

}  // namespace xformer::data
