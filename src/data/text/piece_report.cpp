#include "data/text/piece_report.h"

#include "core/text.h"

namespace xformer::data {

void report_pieces(const DataInfo& info, CheckReport& report) {
  const Json& splits = info.details.at("splits");
  uint64_t documents = 0, pieces = 0, unknown = 0;
  std::vector<std::string> rates;
  for (const auto& [name, facts] : splits.items()) {
    report.splits[name] = facts;
    documents += facts.at("documents").get<uint64_t>();
    pieces += facts.at("pieces").get<uint64_t>();
    unknown += facts.at("unknown").get<uint64_t>();
    const auto number = [&facts = facts](const char* key) { return facts.at(key).get<double>(); };
    rates.push_back(fmt::format("{} {:.3f}", name, number("pieces") / std::max(number("words"), 1.0)));
    report.splits[name]["pieces_per_word"] = number("pieces") / std::max(number("words"), 1.0);
    report.splits[name]["bytes_per_piece"] = number("bytes") / number("pieces");
  }
  report.add("every document is text in UTF-8", CheckOutcome::kPassed,
             fmt::format("{} documents, {} pieces of {}", format_count(documents), format_count(pieces),
                         format_count(info.details.at("vocabulary").at("pieces").get<uint64_t>())));
  report.add("pieces a word, </s> behind a document among them", CheckOutcome::kPassed,
             fmt::format("{}", fmt::join(rates, ", ")));
  if (unknown > 0)
    report.add("every character can be written in pieces", CheckOutcome::kNote,
               fmt::format("pieces that stand for characters which the vocabulary lacks: {} of {}",
                           format_count(unknown), format_count(pieces)));
  if (info.details.at("split") == "own")
    report.add("the files say what is train, dev and test", CheckOutcome::kNote,
               "what no file is named for is drawn from train's documents, by data.split_seed");
}

}  // namespace xformer::data
