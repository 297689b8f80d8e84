#include "data/tables/table_files.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/error.h"
#include "core/json.h"
#include "core/names.h"
#include "core/plain_files.h"
#include "core/text.h"
#include "data/tables/table_csv.h"
#include "data/what_is_there.h"
#include "readers/line_reader.h"
#include "readers/npy.h"

namespace xformer::data {
namespace {

namespace fs = std::filesystem;
namespace npy = readers::npy;

constexpr std::array<const char*, 3> kRtdlParts{"train", "val", "test"};
constexpr const char *kAdultSplit = "ft_split", *kRtdlFolder = "ft_layout";

CsvSchema adult_schema() {
  CsvSchema schema;
  schema.header = false;
  schema.names = {
      "age",          "workclass", "fnlwgt", "education",    "education-num", "marital-status", "occupation",
      "relationship", "race",      "sex",    "capital-gain", "capital-loss",  "hours-per-week", "native-country",
      "income"};
  schema.target = "income";
  schema.categorical = {"workclass", "education", "marital-status", "occupation", "relationship",
                        "race",      "sex",       "native-country"};
  schema.skip_prefixes = {"|"};  // the first line of adult.test
  return schema;
}

CsvSchema california_schema() {
  CsvSchema schema;
  schema.names = {"longitude",  "latitude",   "housingMedianAge", "totalRooms",      "totalBedrooms",
                  "population", "households", "medianIncome",     "medianHouseValue"};
  schema.target = "medianHouseValue";
  schema.regression = true;
  return schema;
}

// A whole number as such, so that the label 1 is "1" whether it was stored as a float or an integer.
std::string text_of(double number) {
  return number == std::trunc(number) ? fmt::format("{:.0f}", number + 0.0) : fmt::format("{}", number);  // not "-0"
}

std::vector<std::string> texts_of(npy::Array array, const Path& path) {
  if (array.is_text()) return std::get<npy::Texts>(std::move(array.values));
  std::vector<std::string> texts;
  for (const double number : std::get<npy::Numbers>(array.values)) {
    XF_CHECK(std::isfinite(number), DataError, "{}: expected a category or a class in element {}, found {}",
             path.string(), texts.size() + 1, number);
    texts.push_back(text_of(number));
  }
  return texts;
}

std::vector<double> numbers_of(npy::Array array, const Path& path) {
  XF_CHECK(!array.is_text(), DataError, "{}: expected numbers, found text ({})", path.string(), array.type);
  return std::get<npy::Numbers>(std::move(array.values));
}

struct RtdlInfo {
  TableKind kind = TableKind::kRegression;
  std::optional<int64_t> classes;
  std::optional<int64_t> numbers, categories;  // columns of N and of C
};

RtdlInfo read_info(const Path& path) {
  static_cast<void>(size_of_plain_file(path));  // a pipe would be waited for
  const Json info = Json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  XF_CHECK(info.is_object(), DataError, "{}: expected a JSON object", path.string());
  const auto type = info.find("task_type");
  XF_CHECK(type != info.end() && type->is_string(), DataError,
           "{}: expected \"task_type\": \"binclass\", \"multiclass\" or \"regression\", found none", path.string());
  RtdlInfo result;
  std::vector<std::string> names;
  bool known = false;
  for (const TableKind kind : {TableKind::kBinary, TableKind::kMulticlass, TableKind::kRegression}) {
    names.push_back(table_kind_name(kind));
    if (type->get<std::string>() != names.back()) continue;
    result.kind = kind;
    known = true;
  }
  XF_CHECK(known, DataError, "{}: {}", path.string(),
           unknown_name_message("task_type", type->get<std::string>(), names));
  const auto take = [&](const char* key, std::optional<int64_t>& into) {
    const auto count = info.find(key);
    if (count != info.end() && count->is_number_integer()) into = count->get<int64_t>();
  };
  take("n_classes", result.classes);
  take("num_classes", result.classes);
  take("n_num_features", result.numbers);
  take("n_cat_features", result.categories);
  return result;
}

void remark_columns(Table& table, const RtdlInfo& info, const Path& path) {
  const auto compare = [&](const char* key, const std::optional<int64_t>& stated, size_t there) {
    if (stated && *stated != static_cast<int64_t>(there))
      table.remarks.push_back(
          fmt::format("{} states {} {}, the arrays have {} columns", path.filename().string(), key, *stated, there));
  };
  compare("n_num_features", info.numbers, table.numeric_names.size());
  compare("n_cat_features", info.categories, table.categorical_names.size());
}

void check_classes(const Table& table, const RtdlInfo& info, const Path& path) {
  if (table.kind == TableKind::kRegression || !info.classes) return;
  const auto& labels = table.part(Split::kTrain).labels;
  const auto classes = static_cast<int64_t>(std::set<std::string>(labels.begin(), labels.end()).size());
  XF_CHECK(classes == *info.classes, DataError, "{} states {} classes, but y_train.npy has {}", path.string(),
           *info.classes, classes);
}

// Row numbers of adult.data, each in one of the two files.
std::pair<std::vector<int64_t>, std::vector<int64_t>> read_indices(const Path& train, const Path& dev, int64_t rows) {
  std::vector<bool> taken(static_cast<size_t>(rows));
  int64_t count = 0;
  const auto read = [&](const Path& path) {
    const npy::Array array = npy::read(path);
    std::vector<int64_t> indices;
    for (const double number : numbers_of(array, path)) {
      XF_CHECK(number >= 0 && number < static_cast<double>(rows) && number == std::trunc(number), DataError,
               "{}: expected row numbers from 0 to {}, found {} in record {}", path.string(), rows - 1, number,
               indices.size() + 1);
      const auto row = static_cast<int64_t>(number);
      XF_CHECK(!taken[static_cast<size_t>(row)], DataError, "{}: row {} in record {} is taken already", path.string(),
               row, indices.size() + 1);
      taken[static_cast<size_t>(row)] = true;
      ++count;
      indices.push_back(row);
    }
    return indices;
  };
  auto first = read(train), second = read(dev);
  XF_CHECK(count == rows, DataError, "{} and {} name {} of {} rows: they belong to another version of adult.data",
           train.string(), dev.string(), count, rows);
  return {std::move(first), std::move(second)};
}

Path must_find(const Path& folder, const std::string& name) {
  const auto path = find_table_file(folder, name);
  XF_CHECK(path.has_value(), DataError, "{}: expected {} or {}.gz, found neither", folder.string(), name, name);
  return *path;
}

}  // namespace

Table read_rtdl_table(const Path& folder) {
  Table table;
  const Path info_path = folder / "info.json";
  table.files.push_back(info_path);
  const RtdlInfo info = read_info(info_path);
  table.kind = info.kind;
  for (const Split split : kAllSplits) {
    TablePart& part = table.part(split);
    const std::string name = kRtdlParts[static_cast<size_t>(split)];
    const auto path_of = [&](const char* what) { return folder / fmt::format("{}_{}.npy", what, name); };
    const auto read = [&](const Path& path) {
      table.files.push_back(path);
      return npy::read(path);
    };
    part.source = (folder / fmt::format("*_{}.npy", name)).string();
    npy::Array target = read(path_of("y"));
    part.rows = target.rows();
    XF_CHECK(target.columns() == 1, DataError, "{}: expected one column of targets, found {}", path_of("y").string(),
             target.columns());
    if (table.kind == TableKind::kRegression) part.targets = numbers_of(std::move(target), path_of("y"));
    else part.labels = texts_of(std::move(target), path_of("y"));
    for (int64_t row = 1; row <= part.rows; ++row) part.places.push_back(row);

    for (const char* what : {"N", "C"}) {
      const bool numeric = *what == 'N', expected = fs::exists(folder / fmt::format("{}_train.npy", what));
      const Path path = path_of(what);
      XF_CHECK(expected == fs::exists(path), DataError, "{}: {}_train.npy {}, but {} {}", folder.string(), what,
               expected ? "exists" : "is missing", path.filename().string(), expected ? "is missing" : "exists");
      if (!expected) continue;
      const auto fits = [&](int64_t rows, int64_t columns) {
        XF_CHECK(rows == part.rows, DataError, "{} has {} rows, but {} has {}", path.string(), rows,
                 path_of("y").filename().string(), part.rows);
        auto& names = numeric ? table.numeric_names : table.categorical_names;
        if (split == Split::kTrain)
          for (int64_t i = 1; i <= columns; ++i) names.push_back(fmt::format("{}{}", what, i));
        XF_CHECK(columns == static_cast<int64_t>(names.size()), DataError, "{} has {} columns, but {}_train.npy has {}",
                 path.string(), columns, what, names.size());
      };
      if (numeric) {
        table.files.push_back(path);
        // The bulk of a table (Epsilon has 8 GB of numbers) stays in its file.
        part.number_file = std::make_shared<const npy::NumberFile>(path);
        fits(part.number_file->rows(), part.number_file->columns());
      } else {
        npy::Array array = read(path);
        fits(array.rows(), array.columns());
        part.categories = texts_of(std::move(array), path);
      }
    }
  }
  check_table(table);
  check_classes(table, info, info_path);
  remark_columns(table, info, info_path);
  return table;
}

Table read_adult_table(const Path& folder, uint64_t seed) {
  const Path train_path = must_find(folder, "adult.data"), test_path = must_find(folder, "adult.test");
  Table table;
  table.files = {train_path, test_path};
  CsvTableReader reader(adult_schema());
  const TablePart rest = reader.read(train_path);
  TablePart& test = table.part(Split::kTest);
  test = reader.read(test_path);
  for (std::string& label : test.labels)
    if (label.ends_with('.')) label.pop_back();
  const Path split = fs::exists(folder / kAdultSplit) ? folder / kAdultSplit : folder;
  const Path train_rows = split / "idx_train.npy", dev_rows = split / "idx_val.npy";
  if (fs::exists(train_rows) || fs::exists(dev_rows)) {
    const auto [train, dev] = read_indices(train_rows, dev_rows, rest.rows);
    table.part(Split::kTrain) = select_rows(rest, train);
    table.part(Split::kDev) = select_rows(rest, dev);
    table.files.insert(table.files.end(), {train_rows, dev_rows});
  } else {
    split_off_dev(table, rest, seed);
  }
  reader.describe(table);
  check_table(table);
  return table;
}

Table read_california_table(const Path& folder, uint64_t seed) {
  const Path path = must_find(folder, "cal_housing.data");
  CsvSchema schema = california_schema();
  std::string_view line;
  readers::LineReader lines(path);
  schema.header = lines.next(line) && line.starts_with(schema.names[0]);
  TablePart whole = CsvTableReader(schema).read(path);
  const auto rounded = [](double value) { return static_cast<double>(static_cast<float>(value)); };
  std::vector<double> features;
  features.reserve(whole.numbers.size());
  for (size_t at = 0; at < whole.numbers.size(); at += 8) {
    const auto raw = [&](size_t column) { return whole.numbers[at + column]; };
    const double households = raw(6);
    for (const double value :
         {raw(7), raw(2), raw(3) / households, raw(4) / households, raw(5), raw(5) / households, raw(1), raw(0)})
      features.push_back(rounded(value));
  }
  whole.numbers = std::move(features);
  for (double& target : whole.targets) target = rounded(target / 100000);
  Table table;
  table.files = {path};
  table.numeric_names = {"MedInc",     "HouseAge", "AveRooms", "AveBedrms",
                         "Population", "AveOccup", "Latitude", "Longitude"};
  split_table(table, whole, seed);
  check_table(table);
  return table;
}

namespace {

// "california-housing" -> "californiahousing"; the authors' archive calls Covertype covtype.
std::string squeezed(const std::string& name) {
  std::string result = canonical_name(name);
  std::erase(result, '-');
  return result == "covtype" ? "covertype" : result;
}

bool holds_table(const std::string& dataset, const Path& folder, const std::string& schema) {
  if (!schema.empty())
    return find_table_file(folder, "data.csv") || find_table_file(folder, "train.csv") ||
           find_table_file(folder, "test.csv");
  return fs::exists(folder / "y_train.npy") || fs::exists(folder / kRtdlFolder / "y_train.npy") ||
         (dataset == "adult" && find_table_file(folder, "adult.data")) ||
         (dataset == "california-housing" && find_table_file(folder, "cal_housing.data"));
}

[[noreturn]] void refuse_folder(const std::string& dataset, const Path& folder, const std::string& schema) {
  std::vector<std::string> names;
  for (const Path& one : subfolders(folder)) names.push_back(one.filename().string());
  const std::string own_files = dataset == "adult"                ? "adult.data and adult.test, "
                                : dataset == "california-housing" ? "cal_housing.data, "
                                                                  : "";
  const std::string meant = nearest_name(dataset, names);
  throw DataError(fmt::format(
      "no table in {}: expected {}; {}{}{}", folder.string(),
      schema.empty() ? own_files + "the arrays {N,C,y}_{train,val,test}.npy with info.json, or CSV files and what "
                                   "their columns are, as in --set 'data.schema=target=price categorical=city,zip "
                                   "kind=regression'"
                     : "data.csv, or train.csv and test.csv, plain or .gz",
      what_is_there(folder), meant.empty() ? "" : fmt::format("; did you mean tabular/{}?", meant),
      // A folder within belongs to another set.
      offered_place(folder, [&](const Path& near) {
        return near.parent_path() != folder && holds_table(dataset, near, schema);
      })));
}

}  // namespace

Path find_table(const std::string& dataset, const Path& folder, const std::string& schema) {
  XF_CHECK(fs::is_directory(folder), DataError, "no folder {}: expected one with the files of a table",
           folder.string());
  if (holds_table(dataset, folder, schema)) return folder;
  std::vector<Path> level{folder};
  for (int depth = 0; depth < 3; ++depth) {
    std::vector<Path> below;
    for (const Path& one : level)
      for (const Path& child : subfolders(one)) {
        if (squeezed(child.filename().string()) == squeezed(dataset) && holds_table(dataset, child, schema))
          return child;
        below.push_back(child);
      }
    level = std::move(below);
  }
  refuse_folder(dataset, folder, schema);
}

std::vector<Path> table_files_in(const Path& folder) {
  std::vector<std::string> names{"info.json", "idx_train.npy", "idx_val.npy"};
  for (const char* name :
       {"data.csv", "train.csv", "val.csv", "test.csv", "adult.data", "adult.test", "cal_housing.data"})
    for (const char* ending : {"", ".gz"}) names.push_back(std::string(name) + ending);
  for (const char* what : {"N", "C", "y"})
    for (const char* part : kRtdlParts) names.push_back(fmt::format("{}_{}.npy", what, part));
  std::vector<Path> files;
  for (const Path& place : {folder, folder / kRtdlFolder, folder / kAdultSplit})
    for (const std::string& name : names)
      if (other_than_a_file(place / name).empty()) files.push_back(place / name);
  return files;
}

Table read_table(const std::string& dataset, const Path& folder, const std::string& schema, uint64_t seed) {
  const Path place = find_table(dataset, folder, schema);
  if (!schema.empty()) return read_csv_table(place, parse_csv_schema(schema), seed);
  for (const Path& candidate : {place, place / kRtdlFolder})
    if (fs::exists(candidate / "y_train.npy")) return read_rtdl_table(candidate);
  return dataset == "adult" ? read_adult_table(place, seed) : read_california_table(place, seed);
}

}  // namespace xformer::data
