// What there is to say of any dataset's splits: sizes, labels, lengths.
#include <algorithm>
#include <cmath>
#include <map>

#include "core/names.h"
#include "core/text.h"
#include "data/check.h"
#include "data/duplicates.h"

namespace xformer::data {

double median(const std::vector<int64_t>& sorted) {
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? static_cast<double>(sorted[middle])
                                : static_cast<double>(sorted[middle - 1] + sorted[middle]) / 2;
}

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
  else if (shape.target.has("label") && !shape.target.of_places()) {
    double entropy = 0;
    for (const auto& [label, times] : labels) {
      result["labels"][std::to_string(label)] = times;
      const double share = static_cast<double>(times) / n;
      entropy -= share * std::log(share);
    }
    result["label_entropy"] = entropy;
  }
  std::sort(lengths.begin(), lengths.end());
  result["length"] = {{"min", lengths.front()},
                      {"median", median(lengths)},
                      {"mean", sum / n},
                      {"max", lengths.back()},
                      {"longer_than_the_model_reads", std::count_if(lengths.begin(), lengths.end(),
                                                                    [&](int64_t one) { return one > shape.max_len; })}};
  return result;
}

Json example_json(const Example& example, const DataSource& source, Split split, int64_t index) {
  const DataInfo& info = source.info();
  Json result{{"split", split_name(split)}, {"index", index}};
  if (const std::string file = source.name(split, index); !file.empty()) result["file"] = file;
  const Json names = info.details.value("classes", Json::array());
  if (info.shape.target.has("label") && static_cast<size_t>(example.label) < names.size())
    result["class"] = names[static_cast<size_t>(example.label)];
  for (const Part& part : parts_of(info.shape)) {
    const Field& field = part.field;
    if (!field.of_tokens()) {
      const double fact = part.fact(example);
      result[field.name] = field.whole() ? Json(static_cast<int64_t>(fact)) : Json(fact);
      continue;
    }
    Json values = Json::array();
    const int64_t offset = field.name == "tokens" ? info.shape.id_offset : 0;
    part.elements(example).visit([&](const auto& elements) {
      for (const auto one : elements) {
        if (field.whole()) values.push_back(static_cast<int64_t>(one) + offset);
        else values.push_back(one);
      }
    });
    result[field.name].push_back(std::move(values));
  }
  return result;
}

namespace {

// Classes that training sees once or never, by the facts of its split.
void note_rare_classes(const DataSource& source, CheckReport& report) {
  const Json labels = report.splits.value("train", Json::object()).value("labels", Json::object());
  if (labels.empty()) return;
  const Json names = source.info().details.value("classes", Json::array());
  std::vector<std::string> once, never;
  for (int64_t label = 0; label < std::max<int64_t>(source.info().shape.target.classes(), 2); ++label) {
    const int64_t count = labels.value(std::to_string(label), int64_t{0});
    if (count > 1) continue;
    const auto place = static_cast<size_t>(label);
    (count == 1 ? once : never)
        .push_back(place < names.size() ? xformer::quoted(names[place].get<std::string>()) : std::to_string(label));
  }
  const auto say = [&](const std::vector<std::string>& classes, const char* count) {
    if (!classes.empty())
      report.add("every class has two training examples or more", CheckOutcome::kNote,
                 fmt::format("{} training example of class {}", count, first_names(classes, 12)));
  };
  say(once, "only one");
  say(never, "no");
}

}  // namespace

void describe_splits(const DataSource& source, CheckReport& report) {
  for (const Split split : kAllSplits)
    if (source.size(split) > 0) report.splits[split_name(split)] = split_facts(source, split);
  note_rare_classes(source, report);
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
    if (split == Split::kDev && source.info().dev_is_test()) continue;
    for (int64_t i = 0; i < source.size(split); ++i) {
      const Example example = source.read(split, i);
      input.clear();
      for (const Part& part : parts)
        if (part.field.of_tokens()) append(part.elements(example).bytes());
      duplicates.see(split, i, input,
                     source.info().shape.target.has("target") ? static_cast<double>(example.target)
                                                              : static_cast<double>(example.label));
    }
  }
  report_duplicates(duplicates, source, report);
}

void check_drawn_splits(const DataSource& source, CheckReport& report) {
  if (source.info().details["split"] == "own")
    report.add("the files say what is train, dev and test", CheckOutcome::kNote,
               "the splits are drawn by data.split_seed, the same share of every class");
  check_duplicates(source, report);
  describe_splits(source, report);
}

void report_duplicates(const DuplicateFinder& duplicates, const DataSource& source, CheckReport& report) {
  const bool left_out = source.info().dev_is_test();
  if (left_out)
    report.add("dev and test are two splits", CheckOutcome::kNote,
               "the dev split is the test split: what is selected on dev is selected on test");
  const auto say = [&](const char* check, int64_t count, const char* what, const std::string& first,
                       const char* none = "none does") {
    report.add(check, count == 0 ? CheckOutcome::kPassed : CheckOutcome::kNote,
               count == 0 ? none : fmt::format("{}: {}; the first: {}", what, count, first));
  };
  say("no input occurs in two splits", duplicates.across(), "inputs that an earlier split has too",
      duplicates.first_across(), left_out ? "none does; dev, which is test, was left out" : "none does");
  int64_t within = 0;
  for (const Split split : kAllSplits) within += duplicates.within(split);
  say("no input occurs twice in one split", within, "inputs that their split has already", duplicates.first_within());
  say("no input occurs with two answers", duplicates.contradictions(), "inputs that occur with another answer too",
      duplicates.first_contradiction());
}

void compare_sizes(const DataSource& source, const std::array<int64_t, 3>& published, CheckReport& report) {
  std::vector<std::string> differences, sizes;
  for (const Split split : kAllSplits) {
    const int64_t meant = published[static_cast<size_t>(split)];
    sizes.push_back(fmt::format("{} {}", split_name(split), meant));
    if (source.size(split) != meant)
      differences.push_back(fmt::format("{} has {}, published are {}", split_name(split), source.size(split), meant));
  }
  report.add(kPublishedCounts, differences.empty() ? CheckOutcome::kPassed : CheckOutcome::kNote,
             fmt::format("{}", fmt::join(differences.empty() ? sizes : differences, "; ")));
}

}  // namespace xformer::data
