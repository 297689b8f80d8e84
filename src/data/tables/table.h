// A table of numbers, categories and a target in three splits, as its files hold it: nothing is scaled or coded yet
// (data/table_preprocess.h). Read by data/table_files.h.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/files.h"
#include "data/source.h"
#include "readers/npy.h"

namespace xformer::data {

enum class TableKind { kBinary, kMulticlass, kRegression };
[[nodiscard]] std::string table_kind_name(TableKind kind);  // "binclass", "multiclass", "regression"

struct TablePart {
  int64_t rows = 0;
  std::vector<double> numbers;          // [rows, numeric columns]; NaN where missing; empty where they are in a file
  std::vector<std::string> categories;  // [rows, categorical columns]
  std::vector<std::string> labels;      // [rows] of classes, else empty
  std::vector<double> targets;          // [rows] of a regression, else empty
  std::string source;                   // the file, for messages
  std::string unit = "record";          // what `places` counts from 1: lines of a text file, records of arrays
  std::vector<int64_t> places;          // [rows]
  std::shared_ptr<const readers::npy::NumberFile> number_file = nullptr;

  [[nodiscard]] size_t number_count() const { return number_file ? number_file->size() : numbers.size(); }
  [[nodiscard]] double number(size_t i) const { return number_file ? (*number_file)[i] : numbers[i]; }
  [[nodiscard]] std::string where(int64_t row) const;  // "a/train.csv, line 17"
};

struct Table {
  TableKind kind = TableKind::kRegression;
  std::vector<std::string> numeric_names, categorical_names;
  std::array<TablePart, 3> parts;  // by Split
  bool own_split = false;   // drawn here by a seed: not to be compared with published splits in the third decimal
  std::vector<Path> files;  // all that were read
  std::vector<std::string> remarks = {};  // what is odd with them and no fault

  [[nodiscard]] const TablePart& part(Split split) const { return parts[static_cast<size_t>(split)]; }
  [[nodiscard]] TablePart& part(Split split) { return parts[static_cast<size_t>(split)]; }
};

// DataErrors for what no model can be trained on: an empty part, no columns, a number of 1e30 or more, a column without
// any value in train, an empty or constant target, classes in dev or test that train lacks. A category that train lacks
// is allowed.
void check_table(const Table& table);

// The table's remarks, and those on what its cells hold: columns with missing numbers or empty categories.
[[nodiscard]] std::vector<std::string> remarks_on(const Table& table);

// (the rest, a fifth rounded up) of `rows`, both ascending. With labels (by row number) each class gives its share, by
// largest remainders, and keeps one row at least.
[[nodiscard]] std::pair<std::vector<int64_t>, std::vector<int64_t>> take_fifth(const std::vector<int64_t>& rows,
                                                                               const std::vector<std::string>& labels,
                                                                               uint64_t seed);

[[nodiscard]] TablePart select_rows(const TablePart& part, const std::vector<int64_t>& rows);

// A fifth of `whole` becomes test, a fifth of the rest dev: 64/16/20.
void split_table(Table& table, const TablePart& whole, uint64_t seed);
// A fifth of `rest` becomes dev, the rest train; the table has its test part already.
void split_off_dev(Table& table, const TablePart& rest, uint64_t seed);

}  // namespace xformer::data
