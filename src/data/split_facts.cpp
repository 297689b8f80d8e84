// What there is to say of any dataset's splits: sizes, labels, lengths.
#include <algorithm>
#include <map>

#include "data/check.h"
#include "data/duplicates.h"

namespace xformer::data {

Json split_facts(const DataSource& source, Split split) {
  const DataShape& shape = source.info().shape;
  const int64_t count = source.size(split);
  std::map<int64_t, int64_t> labels;
  std::vector<int64_t> lengths;
  double targets = 0, sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const Example example = source.read(split, i);
    ++labels[example.label];
    targets += example.target;
    lengths.push_back(example_length(example, shape));
    sum += static_cast<double>(lengths.back());
  }
  Json result{{"examples", count}};
  if (count == 0) return result;
  const auto n = static_cast<double>(count);
  if (shape.target.has("target")) result["mean_target"] = targets / n;
  else
    for (const auto& [label, times] : labels) result["labels"][std::to_string(label)] = times;
  std::sort(lengths.begin(), lengths.end());
  result["length"] = {{"min", lengths.front()},
                      {"median", lengths[lengths.size() / 2]},
                      {"mean", sum / n},
                      {"max", lengths.back()},
                      {"longer_than_the_model_reads", std::count_if(lengths.begin(), lengths.end(),
                                                                    [&](int64_t one) { return one > shape.max_len; })}};
  return result;
}

void describe_splits(const DataSource& source, CheckReport& report) {
  for (const Split split : kAllSplits)
    if (source.size(split) > 0) report.splits[split_name(split)] = split_facts(source, split);
}

void check_duplicates(const DataSource& source, CheckReport& report) {
  DuplicateFinder duplicates({"train", "dev", "test"});
  std::vector<uint8_t> input;
  const std::vector<Part> parts = parts_of(source.info().shape);
  const auto append = [&](std::string_view bytes) {
    // The size in front, so that no two pairs of sequences have the same bytes.
    const auto size = std::to_string(bytes.size());
    input.insert(input.end(), size.begin(), size.end());
    input.push_back(0);
    input.insert(input.end(), bytes.begin(), bytes.end());
  };
  for (const Split split : kAllSplits) {
    if (split == Split::kDev && source.info().details.value("dev", "") == "test") continue;
    for (int64_t i = 0; i < source.size(split); ++i) {
      const Example example = source.read(split, i);
      input.clear();
      for (const Part& part : parts)
        if (part.field.of_tokens()) append(part.elements(example).bytes());
      duplicates.see(split, i, input);
    }
  }
  report_duplicates(duplicates, report);
}

void report_duplicates(const DuplicateFinder& duplicates, CheckReport& report) {
  const auto say = [&](const char* check, int64_t count, const std::string& first) {
    report.add(check, count == 0 ? CheckOutcome::kPassed : CheckOutcome::kNote,
               count == 0 ? "none does" : fmt::format("{} do; the first: {}", count, first));
  };
  say("no input occurs in two splits", duplicates.across(), duplicates.first_across());
  int64_t within = 0;
  for (const Split split : kAllSplits) within += duplicates.within(split);
  say("no input occurs twice in one split", within, duplicates.first_within());
}

void compare_sizes(const DataSource& source, const std::array<int64_t, 3>& published, CheckReport& report) {
  std::vector<std::string> differences, sizes;
  for (const Split split : kAllSplits) {
    const int64_t meant = published[static_cast<size_t>(split)];
    sizes.push_back(fmt::format("{} {}", split_name(split), meant));
    if (source.size(split) != meant)
      differences.push_back(fmt::format("{} has {}, published are {}", split_name(split), source.size(split), meant));
  }
  report.add("the sizes are the published ones", differences.empty() ? CheckOutcome::kPassed : CheckOutcome::kNote,
             fmt::format("{}", fmt::join(differences.empty() ? sizes : differences, "; ")));
}

}  // namespace xformer::data
