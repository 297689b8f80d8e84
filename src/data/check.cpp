#include "data/check.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "core/error.h"
#include "core/text.h"
#include "data/duplicates.h"
#include "data/listops/listops_files.h"
#include "data/listops/listops_generator.h"
#include "readers/listops.h"

namespace xformer::data {
namespace {

namespace listops = readers::listops;

// Sizes of the LRA release, and of the original data, of which only the test set is read here.
constexpr std::array<int64_t, 3> kLraSizes{96000, 2000, 2000};
constexpr std::array<int64_t, 3> kOriginalSizes{0, 0, 10000};

struct SplitFacts {
  std::vector<int64_t> lengths;
  std::array<int64_t, listops::kClasses> labels{};
  std::string unreadable;  // the message of the row at which reading stopped
};

struct Facts {
  std::array<std::optional<SplitFacts>, 3> splits;
  int64_t wrong = 0, malformed = 0;
  std::string first_wrong, first_malformed;

  void see(Split split, const std::string& where, std::span<const uint8_t> tokens, int64_t label) {
    SplitFacts& facts = *splits[static_cast<size_t>(split)];
    facts.lengths.push_back(static_cast<int64_t>(tokens.size()));
    ++facts.labels[static_cast<size_t>(label)];
    try {
      const int64_t value = listops::evaluate(tokens);
      if (value == label) return;
      if (wrong++ == 0) first_wrong = fmt::format("{}: labelled {}, evaluates to {}", where, label, value);
    } catch (const DataError& error) {
      if (malformed++ == 0) first_malformed = fmt::format("{}: {}", where, error.what());
    }
  }
};

Json summary(const SplitFacts& facts) {
  std::vector<int64_t> lengths = facts.lengths;
  Json result{{"examples", lengths.size()}, {"labels", facts.labels}};
  if (lengths.empty()) return result;
  std::sort(lengths.begin(), lengths.end());
  const double sum = static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}));
  result["length"] = {{"min", lengths.front()},
                      {"median", median(lengths)},
                      {"mean", sum / static_cast<double>(lengths.size())},
                      {"max", lengths.back()}};
  return result;
}

void read_files(const ListOpsFiles& files, Facts& facts, DuplicateFinder& duplicates,
                const ProgressCallback& progress) {
  const uint64_t total = files.bytes();
  uint64_t done = 0;
  for (const Split split : kAllSplits) {
    const auto& path = files.paths[static_cast<size_t>(split)];
    if (!path) continue;
    SplitFacts& split_facts = facts.splits[static_cast<size_t>(split)].emplace();
    try {
      listops::RowReader rows(*path, files.layout);
      for (listops::Row row; rows.next(row);) {
        duplicates.see(split, rows.line_number(), row.tokens, static_cast<double>(row.label));
        facts.see(split, rows.where(), row.tokens, row.label);
        if (progress && rows.line_number() % 256 == 0) progress("checking ListOps", done + rows.bytes_read(), total);
      }
      done += rows.bytes_read();
    } catch (const DataError& error) {
      split_facts.unreadable = error.what();
    }
  }
}

void read_generated(const ListOpsOptions& options, Facts& facts, DuplicateFinder& duplicates,
                    const ProgressCallback& progress) {
  for (auto& split : facts.splits) split.emplace();
  const auto accept = [&](Split split, std::span<const uint8_t> tokens, int64_t label) {
    const auto index = static_cast<int64_t>(facts.splits[static_cast<size_t>(split)]->lengths.size());
    duplicates.see(split, index, tokens, static_cast<double>(label));
    facts.see(split, fmt::format("{} example {}", split_name(split), index), tokens, label);
  };
  ListOpsGenerator(options).generate(accept, progress);
}

CheckOutcome failed_if(bool bad) { return bad ? CheckOutcome::kFailed : CheckOutcome::kPassed; }

void judge_files(const ListOpsFiles& files, const Facts& facts, CheckReport& report) {
  const std::array<std::string, 3> names = files.names();
  for (const Split split : kAllSplits) {
    const auto& split_facts = facts.splits[static_cast<size_t>(split)];
    const std::string claim = fmt::format("{} is there and readable", split_name(split));
    if (!split_facts) {
      report.add(claim, CheckOutcome::kNote,
                 fmt::format("there is no file of the {} split: training needs all three, eval and data check do not",
                             split_name(split)));
      continue;
    }
    const std::string count =
        fmt::format("{}: {} rows", names[static_cast<size_t>(split)], format_count(split_facts->lengths.size()));
    report.add(claim, failed_if(!split_facts->unreadable.empty()),
               split_facts->unreadable.empty() ? count : split_facts->unreadable);
  }
}

void judge_sizes(listops::Layout layout, const Facts& facts, CheckReport& report) {
  const std::array<int64_t, 3>& published = layout == listops::Layout::kLra ? kLraSizes : kOriginalSizes;
  std::vector<std::string> differences;
  for (const Split split : kAllSplits) {
    const auto place = static_cast<size_t>(split);
    if (!facts.splits[place]) continue;
    const size_t count = facts.splits[place]->lengths.size();
    if (static_cast<int64_t>(count) != published[place])
      differences.push_back(fmt::format("{} has {} examples, published {}", split_name(split), format_count(count),
                                        format_count(static_cast<uint64_t>(published[place]))));
  }
  report.add(kPublishedCounts, differences.empty() ? CheckOutcome::kPassed : CheckOutcome::kNote,
             differences.empty() ? "the counts agree" : fmt::format("{}", fmt::join(differences, "; ")));
}

void judge_rows(const Facts& facts, const DuplicateFinder& duplicates, CheckReport& report) {
  size_t rows = 0;
  bool whole = true;
  for (const auto& split : facts.splits) {
    if (!split) continue;
    rows += split->lengths.size();
    whole = whole && split->unreadable.empty();
  }
  if (rows == 0) return;  // nothing to be judged: what could not be read is said above
  const std::string all = whole ? "" : fmt::format(" of the {} rows that could be read", format_count(rows));
  report.add("every expression is complete", failed_if(facts.malformed > 0),
             facts.malformed == 0 ? "all" + all + " are"
                                  : fmt::format("{} are not; {}", facts.malformed, facts.first_malformed));
  report.add("every label is the value of its expression", failed_if(facts.wrong > 0),
             facts.wrong == 0 ? "all" + all + " are" : fmt::format("{} are not; {}", facts.wrong, facts.first_wrong));
  report.add("no expression occurs in two splits", failed_if(duplicates.across() > 0),
             duplicates.across() == 0 ? "none" + all + " does"
                                      : fmt::format("{} do; {}", duplicates.across(), duplicates.first_across()));
  int64_t within = 0;
  for (const Split split : kAllSplits) within += duplicates.within(split);
  report.add("no expression occurs twice in its split", within == 0 ? CheckOutcome::kPassed : CheckOutcome::kNote,
             within == 0
                 ? "none" + all + " does"
                 : fmt::format("{} rows repeat an expression of their split; {}", within, duplicates.first_within()));
}

}  // namespace

void CheckReport::add(std::string check, CheckOutcome outcome, std::string detail) {
  passed = passed && outcome != CheckOutcome::kFailed;
  items.push_back({std::move(check), outcome, std::move(detail)});
}

std::string CheckReport::text() const {
  std::string result;
  for (const CheckItem& item : items) {
    const bool note = item.outcome == CheckOutcome::kNote, right = item.outcome == CheckOutcome::kPassed;
    if (note) result += fmt::format("note  {}\n", item.detail);
    else
      result += fmt::format("{}  {}{}{}\n", right ? "ok  " : "FAIL", item.check, item.detail.empty() ? "" : ": ",
                            item.detail);
  }
  return result;
}

Json CheckReport::json() const {
  Json checks = Json::array();
  for (const CheckItem& item : items)
    checks.push_back({{"check", item.check},
                      {"passed", item.outcome != CheckOutcome::kFailed},
                      {"note", item.outcome == CheckOutcome::kNote},
                      {"detail", item.detail}});
  return {{"passed", passed}, {"checks", checks}, {"splits", splits}};
}

CheckReport check_listops(const Json& options, const DataLocation& location, const ProgressCallback& progress) {
  const ListOpsOptions settings = listops_schema().read(options);
  CheckReport report;
  Facts facts;
  if (location.folder.empty()) {
    DuplicateFinder duplicates({"train", "dev", "test"});
    read_generated(settings, facts, duplicates, progress);
    judge_sizes(listops::Layout::kLra, facts, report);
    judge_rows(facts, duplicates, report);
  } else {
    const ListOpsFiles files = find_listops_files(location.folder, /*require_all_splits=*/false);
    DuplicateFinder duplicates(files.names());
    read_files(files, facts, duplicates, progress);
    judge_files(files, facts, report);
    judge_sizes(files.layout, facts, report);
    judge_rows(facts, duplicates, report);
  }
  for (const Split split : kAllSplits)
    if (facts.splits[static_cast<size_t>(split)])
      report.splits[split_name(split)] = summary(*facts.splits[static_cast<size_t>(split)]);
  return report;
}

}  // namespace xformer::data
