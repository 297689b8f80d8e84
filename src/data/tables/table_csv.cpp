#include "data/tables/table_csv.h"

#include <algorithm>
#include <limits>
#include <set>

#include "core/error.h"
#include "core/names.h"
#include "core/text.h"
#include "data/tables/schema_words.h"
#include "readers/csv.h"

namespace xformer::data {
namespace {

using readers::CsvReader;
using Items = std::vector<std::string>;

const SchemaLanguage& language() {
  static const SchemaLanguage kLanguage{"table schema",
                                        "target=price categorical=city,zip kind=regression",
                                        {"target", "kind", "categorical", "ignore", "header", "delimiter"}};
  return kLanguage;
}

}  // namespace

CsvSchema parse_csv_schema(std::string_view text) {
  const SchemaWords words(text, language());
  CsvSchema schema;
  XF_CHECK(words.has("target"), UserError, "table schema: expected target=COLUMN, as in '{}'", language().example);
  const Items target = words.items("target");
  XF_CHECK(target.size() == 1, UserError, "table schema: expected one target column, found {}",
           fmt::join(target, ", "));
  schema.target = target[0];
  schema.regression = words.choice("kind", {"classification", "regression"}) == 1;
  schema.categorical = words.items("categorical");
  schema.ignore = words.items("ignore");
  if (words.has("header")) schema.header = words.choice("header", {"no", "yes"}) == 1;
  schema.delimiter = words.delimiter();
  return schema;
}

void CsvTableReader::assign_roles(const std::string& source) {
  roles_.assign(names_.size(), Role::kNumeric);
  std::set<std::string> taken;
  const auto assign = [&](const std::string& name, Role role) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) {
      XF_CHECK(schema_.header, UserError, "{}: expected a column number from 1 to {} (header=no), found '{}'", source,
               names_.size(), name);
      const std::string near = nearest_name(name, names_);
      throw UserError(
          fmt::format("{}: no column '{}'; {}", source, name,
                      near.empty() ? "there are " + first_names(names_, 12) : "did you mean '" + near + "'?"));
    }
    XF_CHECK(std::find(found + 1, names_.end(), name) == names_.end(), DataError, "{}: two columns are called {}",
             source, xformer::quoted(name));
    XF_CHECK(taken.insert(name).second, UserError,
             "table schema: column '{}' is named more than once among target, categorical and ignore", name);
    roles_[static_cast<size_t>(found - names_.begin())] = role;
  };
  assign(schema_.target, Role::kTarget);
  for (const std::string& name : schema_.categorical) assign(name, Role::kCategorical);
  for (const std::string& name : schema_.ignore) assign(name, Role::kIgnored);
}

TablePart CsvTableReader::read(const Path& path) {
  CsvReader reader(path, {schema_.delimiter, schema_.header, schema_.skip_prefixes});
  TablePart part;
  part.source = path.string();
  part.unit = "line";
  std::vector<std::string_view> fields;
  if (names_.empty()) names_ = schema_.names;
  if (schema_.header) {
    if (names_.empty()) names_ = reader.header();
    XF_CHECK(reader.header() == names_, DataError, "{}: expected the columns {}, found {}", reader.where(),
             first_names(names_, 12), first_names(reader.header(), 12));
  }
  while (reader.next(fields)) {
    if (names_.empty())
      for (size_t i = 1; i <= fields.size(); ++i) names_.push_back(std::to_string(i));
    XF_CHECK(fields.size() == names_.size(), DataError, "{}: expected {} fields, found {}", reader.where(),
             names_.size(), fields.size());
    if (roles_.empty()) assign_roles(part.source);
    for (size_t i = 0; i < fields.size(); ++i) {
      const auto number = [&](std::string_view advice) {
        const auto value = readers::parse_number(fields[i]);
        XF_CHECK(value.has_value(), DataError, "{}: expected a number in column {}, found {}{}", reader.where(),
                 xformer::quoted(names_[i]), quoted(fields[i]), advice);
        return *value;
      };
      if (roles_[i] == Role::kCategorical) part.categories.emplace_back(fields[i]);
      else if (roles_[i] == Role::kTarget && schema_.regression) part.targets.push_back(number(""));
      else if (roles_[i] == Role::kTarget) part.labels.emplace_back(fields[i]);
      else if (roles_[i] == Role::kNumeric && fields[i].empty())
        part.numbers.push_back(std::numeric_limits<double>::quiet_NaN());
      else if (roles_[i] == Role::kNumeric)
        part.numbers.push_back(number(" (an empty field is a missing value; columns of words go into categorical=)"));
    }
    part.places.push_back(reader.line_number());
    ++part.rows;
  }
  XF_CHECK(part.rows > 0, DataError, "{}: expected rows, found none", part.source);
  return part;
}

void CsvTableReader::describe(Table& table) const {
  for (size_t i = 0; i < names_.size(); ++i) {
    if (roles_[i] == Role::kNumeric) table.numeric_names.push_back(names_[i]);
    if (roles_[i] == Role::kCategorical) table.categorical_names.push_back(names_[i]);
    if (roles_[i] == Role::kTarget || roles_[i] == Role::kIgnored) continue;
    if (names_[i].empty())
      table.remarks.push_back(fmt::format("column {} has no name and is read as numbers: an index of rows?", i + 1));
    else if (std::find(names_.begin(), names_.begin() + static_cast<std::ptrdiff_t>(i), names_[i]) !=
             names_.begin() + static_cast<std::ptrdiff_t>(i))
      table.remarks.push_back(
          fmt::format("column {} has the name of an earlier one, {}", i + 1, xformer::quoted(names_[i])));
  }
  const auto& labels = table.part(Split::kTrain).labels;
  const std::set<std::string> classes(labels.begin(), labels.end());
  table.kind = schema_.regression   ? TableKind::kRegression
               : classes.size() > 2 ? TableKind::kMulticlass
                                    : TableKind::kBinary;
}

std::optional<Path> find_table_file(const Path& folder, const std::string& name) {
  for (const std::string ending : {"", ".gz"})
    if (std::filesystem::exists(folder / (name + ending))) return folder / (name + ending);
  return std::nullopt;
}

Table read_csv_table(const Path& folder, const CsvSchema& schema, uint64_t seed) {
  const auto whole = find_table_file(folder, "data.csv"), train = find_table_file(folder, "train.csv"),
             dev = find_table_file(folder, "val.csv"), test = find_table_file(folder, "test.csv");
  XF_CHECK(whole.has_value() != (train && test), DataError,
           "{}: expected either data.csv or train.csv and test.csv (with or without val.csv), plain or .gz; found {}",
           folder.string(),
           whole   ? "both"
           : train ? "no test.csv"
           : test  ? "no train.csv"
                   : "none of them");
  Table table;
  CsvTableReader reader(schema);
  const auto read = [&](const Path& path) {
    table.files.push_back(path);
    return reader.read(path);
  };
  if (whole) {
    split_table(table, read(*whole), seed);
  } else if (dev) {
    table.part(Split::kTrain) = read(*train);
    table.part(Split::kDev) = read(*dev);
    table.part(Split::kTest) = read(*test);
  } else {
    const TablePart rest = read(*train);
    table.part(Split::kTest) = read(*test);
    split_off_dev(table, rest, seed);
  }
  reader.describe(table);
  check_table(table);
  return table;
}

}  // namespace xformer::data
