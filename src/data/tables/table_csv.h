// Tables in delimiter-separated files, by a schema in words: "target=price categorical=city,zip ignore=id
// kind=regression".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tables/table.h"

namespace xformer::data {

struct CsvSchema {
  std::string target;
  std::vector<std::string> categorical, ignore;  // all other columns hold numbers
  bool regression = false;
  bool header = true;  // columns go by their names there, without a header by their numbers from 1
  char delimiter = ',';
  // Known file formats have these, the words above have not:
  std::vector<std::string> names;          // of the columns, whether there is a header or not
  std::vector<std::string> skip_prefixes;  // lines that begin so are no rows
};

// Blanks separate settings; a name with blanks or commas stands in double quotes: target="sale price". UserErrors say
// what was expected and the nearest name.
[[nodiscard]] CsvSchema parse_csv_schema(std::string_view text);

// The files of one table: columns are found in the first, the others must have the same.
class CsvTableReader {
 public:
  explicit CsvTableReader(CsvSchema schema) : schema_(std::move(schema)) {}
  // An empty field in a column of numbers is a missing value; text, "nan" and "inf" are DataErrors.
  [[nodiscard]] TablePart read(const Path& path);
  // Sets the names of the columns and, from the classes in train, the kind.
  void describe(Table& table) const;

 private:
  enum class Role { kNumeric, kCategorical, kTarget, kIgnored };
  void assign_roles(const std::string& source);

  CsvSchema schema_;
  std::vector<std::string> names_;
  std::vector<Role> roles_;
};

// train.csv and test.csv with val.csv (without it a fifth of train becomes dev), or data.csv, split 64/16/20; each may
// end in .gz.
[[nodiscard]] Table read_csv_table(const Path& folder, const CsvSchema& schema, uint64_t seed);

// `name` or `name`.gz in the folder.
[[nodiscard]] std::optional<Path> find_table_file(const Path& folder, const std::string& name);

}  // namespace xformer::data
