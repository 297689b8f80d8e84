#include "data/two_positions.h"

#include <algorithm>

#include "core/error.h"

namespace xformer::data {

std::array<int64_t, 2> two_positions(Stream& numbers, int64_t length) {
  const auto first = static_cast<int64_t>(numbers.next_below(static_cast<uint64_t>(length)));
  auto second = static_cast<int64_t>(numbers.next_below(static_cast<uint64_t>(length - 1)));
  if (second >= first) ++second;
  return {std::min(first, second), std::max(first, second)};
}

void check_generated(const DataSource& source, CheckReport& report, const ProgressCallback& progress,
                     const std::function<std::string(const Example&)>& fault) {
  const DataInfo& info = source.info();
  uint64_t total = 0, done = 0;
  for (const int64_t size : info.sizes) total += static_cast<uint64_t>(size);
  std::string first;
  int64_t faults = 0;
  for (const Split split : kAllSplits) {
    std::map<int64_t, int64_t> labels;
    double sum = 0;
    for (int64_t i = 0; i < source.size(split); ++i, ++done) {
      const Example example = source.read(split, i);
      const std::string wrong = fault(example);
      if (!wrong.empty() && faults++ == 0) first = fmt::format("{} {}: {}", split_name(split), i, wrong);
      ++labels[example.label];
      sum += example.target;
      if (progress && done % 1024 == 0) progress("checking examples", done, total);
    }
    Json facts{{"examples", source.size(split)}, {"length", info.shape.max_len}};
    if (info.shape.target.has("target")) facts["mean_target"] = sum / static_cast<double>(source.size(split));
    else if (!info.shape.target.of_places())
      for (const auto& [label, count] : labels) facts["labels"][std::to_string(label)] = count;
    report.splits[split_name(split)] = facts;
  }
  if (progress) progress("checking examples", total, total);
  report.add("every target follows from its example", faults == 0 ? CheckOutcome::kPassed : CheckOutcome::kFailed,
             faults == 0 ? fmt::format("{} examples", total) : fmt::format("{} do not; {}", faults, first));
}

}  // namespace xformer::data
