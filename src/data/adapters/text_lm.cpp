// Language modelling of documents in pieces of words (tasks-more 9): `text-lm/wiki-40b`, the articles of Wiki-40B, and
// `text-lm/<name>`, any corpus of plain text or JSON lines.
//
// A split is a stream of its own, document behind document, each with the piece </s> at its end. Its place i holds the
// piece to be predicted as label, and as id the piece before it, counted from 1; id 0 stands in front of the stream's
// first. So every piece is a label once. Beside it stands how many words begin with it.
#include "core/error.h"
#include "core/text.h"
#include "data/check.h"
#include "data/narrow_ids.h"
#include "data/text/piece_report.h"
#include "data/text/piece_stream.h"
#include "data/text/stream_options.h"

namespace xformer::data::adapters::text_lm {
namespace {

struct Options : StreamOptions, PieceOptions {
  Options() { length = 2048; }
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema = Schema<Options>().include(stream_schema("pieces")).include(piece_schema());
  return kSchema;
}

Options read_options(bool wiki, const Json& given) {
  Options options = schema().read(given);
  if (options.documents == "auto") options.documents = wiki ? "article" : "blank-line";
  check_stream(options);
  check_pieces(options);
  return options;
}

DataShape shape_of(const Options& options) {
  DataShape shape;
  shape.max_len = options.length;
  shape.vocabulary = options.pieces + 1;
  shape.zero_is_padding = false;
  shape.target = place_target(options.pieces,
                              {.symbol = "piece", .scoring = scoring_name(options), .perplexity = true, .words = true});
  if (options.windows == "lanes") shape.target.parameters["lanes"] = true;
  return shape;
}

class WindowSource : public DataSource {
 public:
  WindowSource(const Options& options, std::shared_ptr<PieceStream> stream)
      : options_(options), stream_(std::move(stream)), info_(stream_->info()) {
    const int64_t pieces = stream_->size(Split::kTrain);
    XF_CHECK(pieces >= options.length, DataError, "train has {} pieces; expected at least data.length = {}",
             format_count(static_cast<uint64_t>(pieces)), options.length);
    info_.shape = shape_of(options);
    for (const Split split : kAllSplits) info_.sizes[static_cast<size_t>(split)] = windows(split).count();
    info_.details["scoring"] = scoring_name(options);
  }

  [[nodiscard]] int64_t size(Split split) const override { return info_.sizes[static_cast<size_t>(split)]; }
  [[nodiscard]] const DataInfo& info() const override { return info_; }
  [[nodiscard]] Example read(Split split, int64_t index) const override {
    return example(split, windows(split).at(index));
  }
  [[nodiscard]] Example augmented(Split split, int64_t index, Stream& numbers) const override {
    if (options_.windows != "random") return read(split, index);
    const int64_t last = stream_->size(split) - options_.length;
    return example(split,
                   {static_cast<int64_t>(numbers.next_below(static_cast<uint64_t>(last + 1))), options_.length, 0});
  }
  [[nodiscard]] std::string shown(const Example& example) const override {
    const std::span<const int32_t> labels = example.further[0].as<int32_t>();
    std::vector<int32_t> pieces;
    int64_t context = 0;
    example.ids[0].visit([&](const auto& ids) {
      // A place that is context has its piece as the id behind it.
      for (size_t i = 0; i < labels.size(); ++i) {
        context += labels[i] == kNoLabel ? 1 : 0;
        if (labels[i] != kNoLabel) pieces.push_back(labels[i]);
        else if (i + 1 < ids.size()) pieces.push_back(static_cast<int32_t>(ids[i + 1]) - 1);
      }
    });
    const PieceVocabulary& vocabulary = stream_->vocabulary();
    std::string cut;
    for (const int32_t piece : pieces) cut += (cut.empty() ? "" : "|") + vocabulary.piece(piece);
    return fmt::format("{}\n{}\n{} pieces, the first {} context (scoring {})", vocabulary.decode(pieces), cut,
                       labels.size(), context, scoring_name(options_));
  }

 private:
  [[nodiscard]] StreamWindows windows(Split split) const {
    return windows_of(options_, stream_->size(split), split == Split::kTrain);
  }

  [[nodiscard]] Example example(Split split, const StreamWindow& window) const {
    struct Buffers {
      std::vector<int32_t> pieces, labels;
      std::vector<uint8_t> words;
      NarrowIds ids;
    };
    static thread_local Buffers buffers;
    const auto length = static_cast<size_t>(window.length);
    const bool first = window.begin == 0;
    // The pieces, with the one in front of them.
    buffers.pieces.assign(length + 1, -1);
    stream_->read(split, window.begin - (first ? 0 : 1), std::span(buffers.pieces).subspan(first ? 1 : 0));
    buffers.labels.assign(buffers.pieces.begin() + 1, buffers.pieces.end());
    std::fill_n(buffers.labels.begin(), window.counted_from, kNoLabel);
    buffers.words.resize(length);
    for (size_t i = 0; i < length; ++i)
      buffers.words[i] = buffers.labels[i] == kNoLabel ? 0 : stream_->vocabulary().words(buffers.labels[i]);
    buffers.pieces.pop_back();
    for (int32_t& piece : buffers.pieces) ++piece;
    Example result;
    result.ids[0] = buffers.ids.of(buffers.pieces, info_.shape.vocabulary);
    result.further = {Elements(buffers.labels), Elements(buffers.words)};
    return result;
  }

  Options options_;
  std::shared_ptr<PieceStream> stream_;
  DataInfo info_;
};

std::unique_ptr<DataSource> open(const std::string& name, const Options& options, const DataLocation& location,
                                 const ProgressCallback& progress) {
  return std::make_unique<WindowSource>(options, open_piece_stream(name, options, location, progress));
}

CheckReport check(const std::string& name, const Options& options, const DataLocation& location,
                  const ProgressCallback& progress) {
  const auto source = open(name, options, location, progress);
  CheckReport report;
  report_pieces(source->info(), report);
  for (const Split split : kAllSplits) report.splits[split_name(split)]["examples"] = source->size(split);
  return report;
}

DatasetDescriptor descriptor(const std::string& set) {
  const bool wiki = set == "wiki-40b";
  DatasetDescriptor result;
  result.name = "text-lm/" + set;
  result.title = wiki ? "next piece of Wikipedia's articles (Wiki-40B)" : "next piece of any documents";
  result.paper =
      wiki ? "Guo et al., Wiki-40B: Multilingual Language Model Dataset, 2020; as in Ren et al., Combiner, 2021"
           : "this project's own";
  result.source = wiki ? "Wiki-40B's articles as plain text or JSON lines (not TFRecord): train, validation, test"
                       : "any documents as plain text or JSON lines";
  result.default_family = "decoder";
  result.options = schema().options();
  result.accepts_length = true;
  result.shape = [wiki](const Json& options) { return shape_of(read_options(wiki, options)); };
  result.check_options = [wiki](const Json& options) { static_cast<void>(read_options(wiki, options)); };
  result.open = [wiki, name = result.name](const Json& options, const DataLocation& location,
                                           const ProgressCallback& progress) {
    return open(name, read_options(wiki, options), location, progress);
  };
  result.check = [wiki, name = result.name](const Json& options, const DataLocation& location,
                                            const ProgressCallback& progress) {
    return check(name, read_options(wiki, options), location, progress);
  };
  result.show = [](const Example& example, const DataInfo&) { return fmt::format("{} pieces", example.ids[0].size()); };
  return result;
}

}  // namespace

std::vector<DatasetDescriptor> describe() {
  DatasetDescriptor any = descriptor("<name>");
  any.member = [](const std::string& name) { return descriptor(name); };
  return {descriptor("wiki-40b"), any};
}

}  // namespace xformer::data::adapters::text_lm
