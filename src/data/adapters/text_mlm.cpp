// Masked language modelling of documents in pieces of words (tasks-more 10): `text-mlm/c4`, C4's pages, and
// `text-mlm/<name>`, any corpus of plain text or JSON lines.
//
// A sequence is [CLS], a stretch of one document, [SEP], and where there is room the beginning of the next document and
// another [SEP]: two segments at most, which a field numbers. 15 % of its pieces are to be found (data/text/masking.h):
// in training others at every look, in evaluation the same for every model. Ids are 0 padding, 1 [CLS], 2 [SEP], 3
// [MASK], and from 4 on the pieces.
#include <algorithm>

#include "core/error.h"
#include "data/check.h"
#include "data/narrow_ids.h"
#include "data/text/masking.h"
#include "data/text/piece_report.h"
#include "data/text/segment_pairs.h"

namespace xformer::data::adapters::text_mlm {
namespace {

enum MarkId : int32_t { kClass = 1, kSeparator = 2, kMaskId = 3, kFirstPiece = 4 };

struct Options : PieceOptions {
  int64_t length = 2048, mask_seed = 0;
  double mask_share = 0.15;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::length, "length", "places of a sequence, [CLS] and [SEP] among them (N)", between(4, 1e6))
          .add(&Options::mask_share, "mask_share", "share of a sequence's pieces that is to be found",
               between(0.001, 1))
          .add(&Options::mask_seed, "mask_seed", "seed of the masks of dev and test, apart from the run's seed",
               at_least(0))
          .include(piece_schema());
  return kSchema;
}

Options read_options(const Json& given) {
  Options options = schema().read(given);
  if (options.documents == "auto") options.documents = "blank-line";
  check_pieces(options);
  return options;
}

DataShape shape_of(const Options& options) {
  DataShape shape;
  shape.max_len = options.length;
  shape.vocabulary = options.pieces + kFirstPiece;
  shape.further = {{.name = "segments", .element = Element::kU8, .axes = Axes::kToken, .range = 2}};
  shape.target = place_target(options.pieces, {.causal = false,
                                               .symbol = "piece",
                                               .scoring = fmt::format("{:g} % masked", 100 * options.mask_share),
                                               .perplexity = true});
  return shape;
}

class MaskedSource : public DataSource {
 public:
  MaskedSource(const Options& options, std::shared_ptr<PieceStream> stream, const Path& cache,
               const ProgressCallback& progress)
      : options_(options),
        stream_(std::move(stream)),
        pairs_(*stream_, options.length, cache, progress),
        info_(stream_->info()) {
    info_.shape = shape_of(options);
    for (const Split split : kAllSplits) {
      info_.sizes[static_cast<size_t>(split)] = pairs_.size(split);
      seeds_[static_cast<size_t>(split)] =
          derive_seed(static_cast<uint64_t>(options.mask_seed), "text-mlm/masks/" + split_name(split));
    }
    info_.details["mask_share"] = options.mask_share;
  }

  [[nodiscard]] int64_t size(Split split) const override { return info_.sizes[static_cast<size_t>(split)]; }
  [[nodiscard]] const DataInfo& info() const override { return info_; }
  [[nodiscard]] Example read(Split split, int64_t index) const override {
    Stream numbers(seeds_[static_cast<size_t>(split)], static_cast<uint64_t>(index));
    return example(split, index, numbers);
  }
  [[nodiscard]] Example augmented(Split split, int64_t index, Stream& numbers) const override {
    return example(split, index, numbers);
  }
  [[nodiscard]] std::string shown(const Example& example) const override {
    const PieceVocabulary& vocabulary = stream_->vocabulary();
    const std::span<const int32_t> labels = example.further[1].as<int32_t>();
    std::string cut, asked;
    example.ids[0].visit([&](const auto& ids) {
      for (size_t i = 0; i < ids.size(); ++i) {
        const auto id = static_cast<int32_t>(ids[i]);
        cut += (i == 0 ? "" : "|");
        cut += id == kClass       ? "[CLS]"
               : id == kSeparator ? "[SEP]"
               : id == kMaskId    ? "[MASK]"
                                  : vocabulary.piece(id - kFirstPiece);
        if (labels[i] != kNoLabel) asked += (asked.empty() ? "" : "|") + vocabulary.piece(labels[i]);
      }
    });
    const auto all = std::count_if(labels.begin(), labels.end(), [](int32_t label) { return label != kNoLabel; });
    return fmt::format("{}\nto be found: {}\n{} places, {} to be found", cut, asked, labels.size(), all);
  }

 private:
  [[nodiscard]] Example example(Split split, int64_t index, Stream& numbers) const {
    struct Buffers {
      std::vector<int32_t> pieces, ids, labels;
      std::vector<uint8_t> segments;
      NarrowIds narrow;
    };
    static thread_local Buffers buffers;
    const SegmentPair pair = pairs_.at(split, index);
    const int64_t behind = pair.second > 0 ? 1 + pair.second : 0;  // with the </s> between them, which is left out
    buffers.pieces.resize(static_cast<size_t>(pair.first + behind));
    stream_->read(split, pair.begin, buffers.pieces);
    std::vector<int32_t>& ids = buffers.ids;
    ids.assign(1, kClass);
    const auto append = [&](int64_t begin, int64_t count) {
      for (int64_t i = 0; i < count; ++i) ids.push_back(buffers.pieces[static_cast<size_t>(begin + i)] + kFirstPiece);
      ids.push_back(kSeparator);
    };
    append(0, pair.first);
    buffers.segments.assign(ids.size(), 0);
    if (pair.second > 0) append(pair.first + 1, pair.second);
    buffers.segments.resize(ids.size(), 1);
    buffers.labels.assign(ids.size(), kNoLabel);
    for (const MaskedPlace& one :
         drawn_masks(pair.first + pair.second, options_.pieces, {.share = options_.mask_share}, numbers)) {
      const auto place = static_cast<size_t>(1 + one.place + (one.place < pair.first ? 0 : 1));
      buffers.labels[place] = ids[place] - kFirstPiece;
      if (one.kind == MaskKind::kMask) ids[place] = kMaskId;
      if (one.kind == MaskKind::kReplaced) ids[place] = static_cast<int32_t>(one.drawn) + kFirstPiece;
    }
    Example result;
    result.ids[0] = buffers.narrow.of(ids, info_.shape.vocabulary);
    result.further = {Elements(buffers.segments), Elements(buffers.labels)};
    return result;
  }

  Options options_;
  std::shared_ptr<PieceStream> stream_;
  SegmentPairs pairs_;
  DataInfo info_;
  std::array<uint64_t, 3> seeds_{};
};

std::unique_ptr<DataSource> open(const std::string& name, const Json& given, const DataLocation& location,
                                 const ProgressCallback& progress) {
  const Options options = read_options(given);
  return std::make_unique<MaskedSource>(options, open_piece_stream(name, options, location, progress), location.cache,
                                        progress);
}

CheckReport check(const std::string& name, const Json& given, const DataLocation& location,
                  const ProgressCallback& progress) {
  const auto source = open(name, given, location, progress);
  CheckReport report;
  report_pieces(source->info(), report);
  for (const Split split : kAllSplits) report.splits[split_name(split)]["examples"] = source->size(split);
  return report;
}

DatasetDescriptor descriptor(const std::string& set) {
  const bool c4 = set == "c4";
  DatasetDescriptor result;
  result.name = "text-mlm/" + set;
  result.title = c4 ? "masked pieces of pages of the web (C4)" : "masked pieces of any documents";
  result.paper =
      c4 ? "Raffel et al., Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer, "
           "2020; as in Ren et al., Combiner, 2021"
         : "this project's own";
  result.source = c4 ? "C4's shards of JSON lines (c4-train.00000-of-01024.json.gz, c4-validation...), a folder of them"
                     : "any documents as plain text or JSON lines";
  result.default_family = "token-encoder";
  result.options = schema().options();
  result.accepts_length = true;
  result.shape = [](const Json& options) { return shape_of(read_options(options)); };
  result.check_options = [](const Json& options) { static_cast<void>(read_options(options)); };
  result.open = [name = result.name](const Json& options, const DataLocation& location,
                                     const ProgressCallback& progress) {
    return open(name, options, location, progress);
  };
  result.check = [name = result.name](const Json& options, const DataLocation& location,
                                      const ProgressCallback& progress) {
    return check(name, options, location, progress);
  };
  result.show = [](const Example& example, const DataInfo&) { return fmt::format("{} places", example.ids[0].size()); };
  return result;
}

}  // namespace

std::vector<DatasetDescriptor> describe() {
  DatasetDescriptor any = descriptor("<name>");
  any.member = [](const std::string& name) { return descriptor(name); };
  return {descriptor("c4"), any};
}

}  // namespace xformer::data::adapters::text_mlm
