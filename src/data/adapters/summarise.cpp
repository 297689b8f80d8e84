// Summaries of long texts, byte by byte: `summarise/<name>`, JSON lines of articles and
// their abstracts in the layouts of arXiv, PubMed (Cohan et al. 2018) and BigPatent (Sharma et al. 2019).
//
// The source is the article's first data.length bytes; right is the abstract alone.
#include "core/pair_symbols.h"
#include "data/text/text_pairs.h"
#include "readers/text_pairs.h"

namespace xformer::data::adapters::summarise {
namespace {

PairLine parse_summary(std::string_view line, const std::string& where, const PairOptions& options) {
  const readers::SummaryLine read = readers::parse_summary_line(line, where);
  PairLine pair;
  if (read.article.empty() || read.summary.empty()) pair.nothing = read.article.empty() ? "an article" : "an abstract";
  pair.source_cut = static_cast<int64_t>(read.article.size()) > options.length;
  append_bytes(pair.source, std::string_view(read.article).substr(0, static_cast<size_t>(options.length)));
  pair.text_longer = static_cast<int64_t>(read.summary.size()) >= options.written;
  append_text(pair.texts, read.summary, options.length);
  return pair;
}

DatasetDescriptor summarise_descriptor(const std::string& set) {
  DatasetDescriptor result;
  describe_pairs(result, {"summarise/" + set, "an article and its abstract", Judged::kSummary, parse_summary});
  result.title = "summaries of long texts, byte by byte";
  result.paper =
      "Cohan et al., A Discourse-Aware Attention Model for Abstractive Summarization of Long Documents, 2018; Sharma "
      "et "
      "al., BIGPATENT, 2019; as in Zaheer et al., Big Bird, 2020";
  result.source =
      "JSON lines of articles and abstracts: arXiv and PubMed from https://github.com/armancohan/long-summarization, "
      "BigPatent from https://evasharma.github.io/bigpatent, or any others";
  return result;
}

}  // namespace

std::vector<DatasetDescriptor> describe() {
  DatasetDescriptor any = summarise_descriptor("<name>");
  any.member = [](const std::string& name) { return summarise_descriptor(name); };
  return {any};
}

}  // namespace xformer::data::adapters::summarise
