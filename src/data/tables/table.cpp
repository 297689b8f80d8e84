#include "data/tables/table.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "core/error.h"
#include "core/names.h"
#include "core/random.h"
#include "core/text.h"
#include "core/utf8.h"

namespace xformer::data {
namespace {

constexpr int64_t kPart = 5;             // one row of so many goes to test, and of the rest to dev
constexpr double kLargestNumber = 1e30;  // so that sums of squares are finite, and what is not scaled is a float

void check_numbers(const Table& table, const TablePart& part) {
  const size_t columns = table.numeric_names.size();
  std::vector<bool> any(columns);
  for (size_t i = 0; i < part.number_count(); ++i) {
    const double number = part.number(i);
    XF_CHECK(!(std::abs(number) >= kLargestNumber), DataError, "{}: expected a number in column {}, found {}",
             part.where(static_cast<int64_t>(i / columns)), xformer::quoted(table.numeric_names[i % columns]),
             std::isinf(number) ? "an infinite one"
                                : fmt::format("{:g}; those below {:g} are read", number, kLargestNumber));
    if (!std::isnan(number)) any[i % columns] = true;
  }
  if (&part != &table.part(Split::kTrain)) return;  // elsewhere the mean of train stands in
  for (size_t column = 0; column < columns; ++column)
    XF_CHECK(any[column], DataError, "{}: column {} has no value in any row of train; leave it out", part.source,
             xformer::quoted(table.numeric_names[column]));
}

void check_targets(const Table& table) {
  for (const TablePart& part : table.parts)
    for (int64_t row = 0; row < part.rows; ++row)
      XF_CHECK(std::abs(part.targets[static_cast<size_t>(row)]) < kLargestNumber, DataError,
               "{}: expected a finite number below {:g} as target, found {}", part.where(row), kLargestNumber,
               part.targets[static_cast<size_t>(row)]);
  const TablePart& train = table.part(Split::kTrain);
  const auto [least, most] = std::minmax_element(train.targets.begin(), train.targets.end());
  XF_CHECK(*least < *most, DataError, "{}: the target is {} in all {} rows of train; expected different values",
           train.source, *least, train.rows);
}

void check_labels(const Table& table) {
  const TablePart& train = table.part(Split::kTrain);
  const std::set<std::string> classes(train.labels.begin(), train.labels.end());
  XF_CHECK(classes.size() >= 2, DataError,
           "{}: the target has one class, {}, in all {} rows of train; expected two or more", train.source,
           xformer::quoted(train.labels[0]), train.rows);
  XF_CHECK(table.kind != TableKind::kBinary || classes.size() == 2, DataError,
           "{}: expected two classes for {}, found {}", train.source, table_kind_name(table.kind), classes.size());
  for (const TablePart& part : table.parts)
    for (int64_t row = 0; row < part.rows; ++row) {
      const std::string& label = part.labels[static_cast<size_t>(row)];
      XF_CHECK(!label.empty(), DataError, "{}: the target is empty; expected a class", part.where(row));
      XF_CHECK(is_utf8(label), DataError, "{}: expected a class in UTF-8, found {}", part.where(row),
               xformer::quoted(label));
      XF_CHECK(classes.contains(label), DataError,
               "{}: class {} occurs in no row of train, which has {} classes; a model cannot learn it", part.where(row),
               xformer::quoted(label), classes.size());
    }
}

}  // namespace

std::string table_kind_name(TableKind kind) {
  return kind == TableKind::kBinary ? "binclass" : kind == TableKind::kMulticlass ? "multiclass" : "regression";
}

std::string TablePart::where(int64_t row) const {
  return fmt::format("{}, {} {}", source, unit, places[static_cast<size_t>(row)]);
}

void check_table(const Table& table) {
  const size_t numeric = table.numeric_names.size(), categorical = table.categorical_names.size();
  XF_CHECK(numeric + categorical > 0, DataError, "{}: expected columns beside the target, found none",
           table.part(Split::kTrain).source);
  for (const TablePart& part : table.parts) {
    XF_CHECK(part.rows > 0 || !table.own_split, DataError,
             "{}: too few rows to draw train, dev and test from, where every class keeps one in train; give the splits "
             "as files of their own",
             part.source);
    XF_CHECK(part.rows > 0, DataError, "{}: expected rows, found none", part.source);
    const auto rows = static_cast<size_t>(part.rows);
    XF_ASSERT(part.number_count() == rows * numeric && part.categories.size() == rows * categorical &&
                  (table.kind == TableKind::kRegression ? part.targets.size() : part.labels.size()) == rows &&
                  part.places.size() == rows,
              "{} is a table of {} rows", part.source, rows);
    check_numbers(table, part);
  }
  if (table.kind == TableKind::kRegression) check_targets(table);
  else check_labels(table);
}

std::vector<std::string> remarks_on(const Table& table) {
  std::vector<int64_t> missing(table.numeric_names.size()), empty(table.categorical_names.size());
  for (const TablePart& part : table.parts) {
    for (size_t i = 0; i < part.number_count(); ++i) missing[i % missing.size()] += std::isnan(part.number(i)) ? 1 : 0;
    for (size_t i = 0; i < part.categories.size(); ++i) empty[i % empty.size()] += part.categories[i].empty() ? 1 : 0;
  }
  std::vector<std::string> result = table.remarks;
  const auto say = [&](const char* what, const char* then, const std::vector<int64_t>& counts,
                       const std::vector<std::string>& names) {
    std::vector<std::string> columns;
    for (size_t i = 0; i < counts.size(); ++i)
      if (counts[i] > 0) columns.push_back(fmt::format("{} in {}", counts[i], xformer::quoted(names[i])));
    if (!columns.empty()) result.push_back(fmt::format("{}: {} ({})", what, first_names(columns, 12), then));
  };
  say("missing numbers", "the column's mean of train stands in", missing, table.numeric_names);
  say("empty categories", "a category of their own", empty, table.categorical_names);
  return result;
}

std::pair<std::vector<int64_t>, std::vector<int64_t>> take_fifth(const std::vector<int64_t>& rows,
                                                                 const std::vector<std::string>& labels,
                                                                 uint64_t seed) {
  struct Group {
    std::vector<int64_t> rows;
    int64_t taken = 0, remainder = 0;
  };
  std::map<std::string, Group> by_label;
  for (const int64_t row : rows) by_label[labels.empty() ? "" : labels[static_cast<size_t>(row)]].rows.push_back(row);
  const auto total = static_cast<int64_t>(rows.size()), wanted = (total + kPart - 1) / kPart;
  int64_t missing = wanted;
  std::vector<Group*> groups;
  for (auto& [label, group] : by_label) {
    const auto count = static_cast<int64_t>(group.rows.size());
    group.taken = count * wanted / total;
    group.remainder = count * wanted % total;
    missing -= group.taken;
    groups.push_back(&group);
  }
  std::vector<Group*> by_remainder = groups;
  std::stable_sort(by_remainder.begin(), by_remainder.end(),
                   [](const Group* left, const Group* right) { return left->remainder > right->remainder; });
  for (Group* group : by_remainder)
    if (missing > 0 && group->taken + 1 < static_cast<int64_t>(group->rows.size())) ++group->taken, --missing;

  std::vector<int64_t> rest, fifth;
  Stream stream(seed);
  for (Group* group : groups) {
    auto& members = group->rows;
    for (size_t i = 0; i < members.size(); ++i) {
      // Fisher and Yates' shuffle, as far as it is needed.
      const bool take = i < static_cast<size_t>(group->taken);
      if (take) std::swap(members[i], members[i + stream.next_below(members.size() - i)]);
      (take ? fifth : rest).push_back(members[i]);
    }
  }
  std::sort(rest.begin(), rest.end());
  std::sort(fifth.begin(), fifth.end());
  return {rest, fifth};
}

TablePart select_rows(const TablePart& part, const std::vector<int64_t>& rows) {
  XF_ASSERT(part.number_file == nullptr, "{} has its split already", part.source);
  TablePart result;
  result.rows = static_cast<int64_t>(rows.size());
  result.source = part.source;
  result.unit = part.unit;
  const auto select = [&](const auto& from, auto& to) {
    if (part.rows == 0) return;
    const auto width = static_cast<int64_t>(from.size()) / part.rows;
    to.reserve(rows.size() * static_cast<size_t>(width));
    for (const int64_t row : rows) to.insert(to.end(), from.begin() + row * width, from.begin() + (row + 1) * width);
  };
  select(part.numbers, result.numbers);
  select(part.categories, result.categories);
  select(part.labels, result.labels);
  select(part.targets, result.targets);
  select(part.places, result.places);
  return result;
}

void split_table(Table& table, const TablePart& whole, uint64_t seed) {
  std::vector<int64_t> rows(static_cast<size_t>(whole.rows));
  std::iota(rows.begin(), rows.end(), 0);
  const auto [rest, test] = take_fifth(rows, whole.labels, derive_seed(seed, "table/test"));
  table.part(Split::kTest) = select_rows(whole, test);
  split_off_dev(table, select_rows(whole, rest), seed);
}

void split_off_dev(Table& table, const TablePart& rest, uint64_t seed) {
  std::vector<int64_t> rows(static_cast<size_t>(rest.rows));
  std::iota(rows.begin(), rows.end(), 0);
  const auto [train, dev] = take_fifth(rows, rest.labels, derive_seed(seed, "table/dev"));
  table.own_split = true;
  table.part(Split::kTrain) = select_rows(rest, train);
  table.part(Split::kDev) = select_rows(rest, dev);
}

}  // namespace xformer::data
