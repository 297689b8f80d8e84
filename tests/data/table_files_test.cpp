// The published layouts of tables: arrays, Adult, California Housing; made by hand, damaged, and genuine.
#include "data/tables/table_files.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <map>
#include <optional>

#include "data/table_folder.h"
#include "data/tables/table_csv.h"
#include "readers/npy.h"
#include "readers/npy_file.h"

namespace xformer::data::table_test {

using Catch::Matchers::Contains;
using npy_file::elements;
using Names = std::vector<std::string>;
using Rows = std::vector<int64_t>;

std::string floats(const std::vector<float>& values, const std::string& shape) {
  return npy_file::file("<f4", shape, elements(values));
}
std::string bytes(const std::vector<uint8_t>& values) {
  return npy_file::file("|u1", "(" + std::to_string(values.size()) + ",)", elements(values));
}

// Two numbers, a category and two classes in 3, 1 and 2 rows.
std::map<std::string, std::string> arrays() {
  const auto words = [](const std::vector<std::u32string>& values) {
    return npy_file::file("<U3", "(" + std::to_string(values.size()) + ", 1)", npy_file::characters(values, 3));
  };
  return {{"info.json", R"({"task_type": "binclass", "n_classes": 2})"},
          {"N_train.npy", floats({1, 2, 3, NAN, 5, 6}, "(3, 2)")},
          {"N_val.npy", floats({7, 8}, "(1, 2)")},
          {"N_test.npy", floats({9, 10, 11, 12}, "(2, 2)")},
          {"C_train.npy", words({U"b", U"a", U"b"})},
          {"C_val.npy", words({U"a"})},
          {"C_test.npy", words({U"new", U"a"})},
          {"y_train.npy", bytes({0, 1, 1})},
          {"y_val.npy", bytes({1})},
          {"y_test.npy", bytes({0, 1})}};
}

namespace {

std::vector<double> numbers_of(const TablePart& part) {
  std::vector<double> result;
  for (size_t i = 0; i < part.number_count(); ++i) result.push_back(part.number(i));
  return result;
}

}  // namespace

TEST_CASE("the arrays of the rtdl layout are read as they are, in the folder or in ft_layout") {
  const bool nested = GENERATE(false, true);
  Files files;
  for (const auto& [name, content] : arrays()) files.put({{(nested ? "ft_layout/" : "") + name, content}});
  const Table table = files.read();
  CHECK(table.kind == TableKind::kBinary);
  CHECK(table.numeric_names == Names{"N1", "N2"});
  CHECK(table.categorical_names == Names{"C1"});
  const TablePart& train = table.part(Split::kTrain);
  CHECK((train.rows == 3 && train.number(2) == 3 && std::isnan(train.number(3))));
  CHECK(train.categories == Names{"b", "a", "b"});
  CHECK(train.labels == Names{"0", "1", "1"});
  CHECK(numbers_of(table.part(Split::kTest)) == std::vector<double>{9, 10, 11, 12});
  CHECK_THAT(table.part(Split::kTest).where(1), Contains("*_test.npy, record 2"));
  CHECK((table.files.size() == 10 && !table.own_split));
}

TEST_CASE("numbers or categories may be absent, and classes may be text or numbers") {
  auto files = arrays();
  for (const char* name : {"N_train.npy", "N_val.npy", "N_test.npy"}) files.erase(name);
  for (const auto& [name, values] : {std::pair("train", std::u32string(U"nyy")), {"val", U"y"}, {"test", U"ny"}}) {
    std::vector<std::u32string> letters;
    for (const char32_t letter : values) letters.emplace_back(1, letter);
    files["y_" + std::string(name) + ".npy"] =
        npy_file::file("<U1", "(" + std::to_string(letters.size()) + ", 1)", npy_file::characters(letters, 1));
  }
  files["info.json"] = R"({"name": "x", "task_type": "multiclass", "num_classes": 2})";
  const Table table = Files(files).read();
  CHECK((table.numeric_names.empty() && table.part(Split::kTrain).number_count() == 0));
  CHECK(table.part(Split::kTrain).labels == Names{"n", "y", "y"});
  auto numbers = arrays();
  for (const char* name : {"C_train.npy", "C_val.npy", "C_test.npy"}) numbers.erase(name);
  numbers["info.json"] = R"({"task_type": "regression", "n_classes": 1})";
  const Table regression = Files(numbers).read();
  CHECK((regression.kind == TableKind::kRegression && regression.categorical_names.empty()));
  CHECK(regression.part(Split::kTrain).targets == std::vector<double>{0, 1, 1});
}

TEST_CASE("arrays that do not fit each other are refused by name") {
  const auto refusal = [](const std::string& name, const std::string& content) {
    auto files = arrays();
    if (content.empty()) files.erase(name);
    else files[name] = content;
    return Files(files).refusal();
  };
  CHECK_THAT(refusal("N_val.npy", floats({1, 2, 3, 4}, "(2, 2)")),
             Contains("N_val.npy has 2 rows, but y_val.npy has 1"));
  CHECK_THAT(refusal("y_test.npy", bytes({0})), Contains("N_test.npy has 2 rows, but y_test.npy has 1"));
  CHECK_THAT(refusal("N_test.npy", floats({1, 2}, "(2, 1)")),
             Contains("N_test.npy has 1 columns, but N_train.npy has 2"));
  CHECK_THAT(refusal("C_val.npy", ""), Contains("C_train.npy exists, but C_val.npy is missing"));
  CHECK_THAT(refusal("N_train.npy", ""),
             Contains("N_train.npy is missing, but N_val.npy exists") || Contains("N_train.npy is missing"));
  CHECK_THAT(refusal("y_val.npy", ""), Contains("y_val.npy"));
  CHECK_THAT(refusal("info.json", ""), Contains("info.json"));
  CHECK_THAT(refusal("info.json", "[1]"), Contains("info.json: expected a JSON object"));
  CHECK_THAT(refusal("info.json", "{}"), Contains("task_type") && Contains("found none"));
  CHECK_THAT(refusal("info.json", R"({"task_type": "regresion"})"), Contains("did you mean 'regression'?"));
  CHECK_THAT(refusal("info.json", R"({"task_type": "binclass", "n_classes": 3})"),
             Contains("states 3 classes, but y_train.npy has 2"));
  CHECK_THAT(refusal("y_train.npy", bytes({0, 1, 2})), Contains("expected two classes for binclass, found 3"));
  CHECK_THAT(refusal("y_train.npy", bytes({1, 1, 1})), Contains("the target has one class, '1'"));
  CHECK_THAT(refusal("y_test.npy", bytes({0, 7})),
             Contains("*_test.npy, record 2: class '7' occurs in no row of train"));
  CHECK_THAT(refusal("N_val.npy", floats({1, INFINITY}, "(1, 2)")),
             Contains("*_val.npy, record 1: expected a number in column 'N2', found an infinite one"));
  CHECK_THAT(refusal("N_train.npy", floats({1, NAN, 2, NAN, 3, NAN}, "(3, 2)")), Contains("column 'N2' has no value"));
  CHECK_THAT(refusal("N_train.npy", npy_file::file("<U1", "(3, 1)", npy_file::characters({U"a", U"b", U"c"}, 1))),
             Contains("N_train.npy: expected numbers, found text (<U1)"));
  CHECK_THAT(refusal("C_train.npy", npy_file::file("|O", "(3, 1)", "pickle")), Contains("C_train.npy: dtype '|O'"));
  CHECK_THAT(refusal("y_train.npy", floats({0, 1, 0, 1, 0, 1}, "(3, 2)")), Contains("one column of targets, found 2"));
  CHECK_THAT(refusal("y_train.npy", floats({0, NAN, 1}, "(3,)")),
             Contains("y_train.npy: expected a category or a class in element 2"));
}

const std::string kWorker =
    "39, Private, 77516, HS-grad, 13, Never-married, Sales, Wife, White, Male, 2174, 0, 40, ?, ";

TEST_CASE("Adult's rows are divided by the index files, and labels of the test file lose their full stop") {
  const auto indices = [](const std::vector<int64_t>& rows) {
    return npy_file::file("<i8", "(" + std::to_string(rows.size()) + ",)", elements(rows));
  };
  Files files(FileMap{{"adult.data", kWorker + "<=50K\n" + kWorker + ">50K\n" + kWorker + "<=50K\n\n"},
                      {"adult.test", "|1x3 Cross validator\n" + kWorker + ">50K.\n\n"},
                      {"ft_split/idx_train.npy", indices({2, 1})},
                      {"ft_split/idx_val.npy", indices({0})}});
  const Table table = files.read("", "adult");
  CHECK((table.numeric_names.size() == 6 && table.categorical_names.size() == 8 && table.kind == TableKind::kBinary));
  CHECK(table.part(Split::kTrain).labels == Names{"<=50K", ">50K"});
  CHECK(table.part(Split::kTrain).places == Rows{3, 2});
  CHECK(table.part(Split::kTest).labels == Names{">50K"});
  CHECK(table.part(Split::kDev).categories.back() == "?");
  CHECK_FALSE(table.own_split);

  files.put({{"ft_split/idx_val.npy", indices({1})}});
  CHECK_THAT(files.refusal("", "adult"), Contains("idx_val.npy: row 1 in record 1 is taken already"));
  files.put({{"ft_split/idx_val.npy", indices({3})}});
  CHECK_THAT(files.refusal("", "adult"), Contains("idx_val.npy: expected row numbers from 0 to 2, found 3"));
  files.put({{"ft_split/idx_val.npy", indices({})}});
  CHECK_THAT(files.refusal("", "adult"), Contains("name 2 of 3 rows: they belong to another version"));
  std::filesystem::remove(files.folder / "ft_split/idx_val.npy");
  CHECK_THAT(files.refusal("", "adult"), Contains("idx_val.npy"));
  files.put({{"adult.data", "1, 2, 3\n"}});
  CHECK_THAT(files.refusal("", "adult"), Contains("adult.data:1: expected 15 fields, found 3"));
}

TEST_CASE("California's features are derived as documented, with or without the header") {
  std::string rows;
  for (int i = 1; i <= 10; ++i)
    rows += "-122.23,37.88,41.0,880.0,129.0,322.0,126.0,8.3252," + std::to_string(i * 100000) + "\n";
  const std::string header =
      "longitude,latitude,housingMedianAge,totalRooms,totalBedrooms,population,households,medianIncome,"
      "medianHouseValue\n";
  for (const std::string& content : {rows, header + rows}) {
    const Table table = Files(FileMap{{"cal_housing.data", content}}).read("", "california-housing");
    CHECK((table.part(Split::kTrain).rows == 6 && table.part(Split::kDev).rows == 2 &&
           table.part(Split::kTest).rows == 2));
    CHECK(table.numeric_names.front() == "MedInc");
    std::vector<double> expected;
    for (const float value : {8.3252F, 41.0F, static_cast<float>(880.0 / 126), static_cast<float>(129.0 / 126), 322.0F,
                              static_cast<float>(322.0 / 126), 37.88F, -122.23F})
      expected.push_back(value);
    const auto& numbers = table.part(Split::kDev).numbers;
    CHECK(std::vector<double>(numbers.begin(), numbers.begin() + 8) == expected);
    CHECK(table.part(Split::kTest).targets[0] ==
          static_cast<double>(table.part(Split::kTest).places[0] - (content == rows ? 0 : 1)));
  }
  CHECK_THAT(Files(FileMap{{"cal_housing.data", "longitude,b\n1,2\n"}}).refusal("", "california-housing"),
             Contains("cal_housing.data:1: expected the columns longitude, latitude"));
}

TEST_CASE("a folder without the files of a table says what is there") {
  CHECK_THAT(Files(FileMap{{"a.txt", ""}, {"b/c", ""}}).refusal(),
             Contains("no table in") && Contains("found a.txt, b/"));
  CHECK_THAT(Files().refusal("", "adult"), Contains("adult.data and adult.test") && Contains("the folder is empty"));
  CHECK_THAT(Files(FileMap{{"train.csv", ""}}).refusal("target=price kind=regression"), Contains("found no test.csv"));
  CHECK_THAT(Files().refusal("target=price kind=regression"),
             Contains("data.csv, or train.csv and test.csv") && Contains("the folder is empty"));
  CHECK_THAT(
      Files(FileMap{{"train.csv", ""}}).refusal(),
      Contains("found train.csv") && Contains("--set 'data.schema=target=price categorical=city,zip kind=regression'"));
  // What cannot be looked into hides no folder beside it.
  const scratch::Folder folder;
  std::filesystem::create_symlink("loop", folder / "loop");
  std::filesystem::create_directory(folder / "adult");
  scratch::put(folder / "adult" / "adult.data", "");
  CHECK(find_table("adult", folder.path(), "") == folder / "adult");
  CHECK_THAT(scratch::message_of<DataError>([] { (void)read_table("adult", "/nonexistent", "", 0); }),
             Contains("no folder /nonexistent"));
}

TEST_CASE("too few rows to be split are said to be too few") {
  CHECK_THAT(Files(FileMap{{"data.csv", "x,y\n1,a\n2,b\n3,c\n"}}).refusal("target=y kind=classification"),
             Contains("data.csv: too few rows to draw train, dev and test from"));
}

TEST_CASE("what is odd with a table and no fault is a remark") {
  const auto remarks = [](const FileMap& files, const std::string& schema) {
    return remarks_on(Files(files).read(schema));
  };
  const std::string schema = "target=y kind=regression categorical=c";
  const auto files = [](const std::string& head, const std::string& row) {
    return FileMap{{"train.csv", head + "\n1,2,u,1\n" + row + "\n"},
                   {"val.csv", head + "\n1,2,u,1\n"},
                   {"test.csv", head + "\n1,2,u,1\n"}};
  };
  CHECK(remarks(files("a,b,c,y", "1,2,u,2"), schema).empty());
  CHECK(remarks(files(",b,c,y", "1,2,u,2"), schema) ==
        Names{"column 1 has no name and is read as numbers: an index of rows?"});
  CHECK(remarks(files("a,a,c,y", "1,2,u,2"), schema) == Names{"column 2 has the name of an earlier one, 'a'"});
  CHECK(remarks(files("a,b,c,y", "1,,,2"), schema) ==
        Names{"missing numbers: 1 in 'b' (the column's mean of train stands in)",
              "empty categories: 1 in 'c' (a category of their own)"});
  FileMap stated = arrays();
  stated["info.json"] = R"({"task_type": "binclass", "n_classes": 2, "n_num_features": 3, "n_cat_features": 1})";
  const Names found = remarks(stated, "");
  CHECK(found.at(0) == "info.json states n_num_features 3, the arrays have 2 columns");
  CHECK(found.size() == 2);  // and a missing number
}

TEST_CASE("the README's example of a schema is one") {
  const std::string readme = scratch::get(Path(__FILE__).parent_path() / "../../datasets/tabular/README.md");
  const std::string mark = "--set 'data.schema=";
  const size_t at = readme.find(mark);
  REQUIRE(at != readme.npos);
  const size_t begin = at + mark.size();
  const CsvSchema schema = parse_csv_schema(readme.substr(begin, readme.find('\'', begin) - begin));
  CHECK((schema.target == "price" && schema.categorical == Names{"city", "zip"} && schema.regression));
}

// The genuine sets under $XFORMER_TEST_DATA, or nothing with a word why.
std::optional<Path> real_tables() {
  auto folder = scratch::real_data("tabular");
  if (!folder) {
    WARN("skipped: XFORMER_TEST_DATA names no folder with tabular/");
    SUCCEED();
  }
  return folder;
}

std::map<std::string, int64_t> histogram(const Names& values) {
  std::map<std::string, int64_t> counts;
  for (const std::string& value : values) ++counts[value];
  return counts;
}

Rows sizes(const Table& table) {
  return {table.part(Split::kTrain).rows, table.part(Split::kDev).rows, table.part(Split::kTest).rows};
}

TEST_CASE("genuine Adult has the documented rows, labels and missing values") {
  const auto folder = real_tables();
  if (!folder) return;
  const Table table = read_table("adult", *folder / "adult", "", 0);
  CHECK(sizes(table) == Rows{26048, 6513, 16281});
  CHECK((!table.own_split && table.numeric_names.size() == 6 && table.categorical_names.size() == 8));
  CHECK(histogram(table.part(Split::kTest).labels) == std::map<std::string, int64_t>{{">50K", 3846}, {"<=50K", 12435}});
  auto labels = histogram(table.part(Split::kTrain).labels);
  for (const auto& [label, count] : histogram(table.part(Split::kDev).labels)) labels[label] += count;
  CHECK(labels == std::map<std::string, int64_t>{{">50K", 7841}, {"<=50K", 24720}});
  // Stratified: both parts have the whole's share of 24.08 %.
  CHECK(histogram(table.part(Split::kDev).labels)[">50K"] == 1568);
  const auto missing = [&](Split split, size_t column) {
    const Names& values = table.part(split).categories;
    int64_t count = 0;
    for (size_t i = column; i < values.size(); i += 8) count += values[i] == "?" ? 1 : 0;
    return count;
  };
  for (const auto& [column, train, test] : {std::tuple(size_t{0}, 1836, 963), {3, 1843, 966}, {7, 583, 274}}) {
    CHECK(missing(Split::kTrain, column) + missing(Split::kDev, column) == train);
    CHECK(missing(Split::kTest, column) == test);
  }
}

TEST_CASE("genuine California: the derived features are those of the published arrays") {
  const auto folder = real_tables();
  if (!folder) return;
  const Table published = read_table("california-housing", *folder / "california_housing", "", 0);
  CHECK(sizes(published) == Rows{13209, 3303, 4128});
  CHECK((!published.own_split && published.kind == TableKind::kRegression && published.numeric_names.size() == 8));
  const Table derived = read_california_table(*folder / "california_housing", 0);
  CHECK(sizes(derived) == Rows{13209, 3303, 4128});
  CHECK(derived.own_split);
  // By row of cal_housing.data, whose header is line 1.
  std::map<int64_t, std::vector<double>> by_row;
  for (const TablePart& part : derived.parts)
    for (size_t row = 0; row < part.places.size(); ++row) {
      auto& values = by_row[part.places[row] - 2];
      values.assign(part.numbers.begin() + static_cast<int64_t>(row * 8),
                    part.numbers.begin() + static_cast<int64_t>(row * 8 + 8));
      values.push_back(part.targets[row]);
    }
  REQUIRE(by_row.size() == 20640);
  int64_t different = 0;
  for (const Split split : kAllSplits) {
    const std::string name = split == Split::kDev ? "val" : split_name(split);
    const auto indices = readers::npy::read(*folder / "california_housing/ft_layout" / ("idx_" + name + ".npy"));
    const TablePart& part = published.part(split);
    for (size_t row = 0; row < part.places.size(); ++row) {
      std::vector<double> values;
      for (size_t i = 0; i < 8; ++i) values.push_back(part.number(row * 8 + i));
      values.push_back(part.targets[row]);
      different += values == by_row[static_cast<int64_t>(std::get<readers::npy::Numbers>(indices.values)[row])] ? 0 : 1;
    }
  }
  CHECK(different == 0);
}

TEST_CASE("genuine cpu_act, Covertype and HIGGS subsets have the documented rows") {
  const auto folder = real_tables();
  if (!folder) return;
  const Table cpu = read_table("cpu_act", *folder / "cpu_act", "", 0);
  CHECK(sizes(cpu) == Rows{5242, 1311, 1639});
  CHECK((cpu.kind == TableKind::kRegression && cpu.numeric_names.size() == 21));

  const scratch::Folder links;
  std::filesystem::create_symlink(*folder / "covtype_20k/covtype.20k.data.gz", links / "data.csv.gz");
  const Table covertype = read_table("covertype", links.path(), "target=55 kind=classification header=no", 0);
  CHECK(sizes(covertype) == Rows{12800, 3200, 4000});
  CHECK((covertype.kind == TableKind::kMulticlass && covertype.numeric_names.size() == 54 && covertype.own_split));
  std::map<std::string, int64_t> classes;
  for (const TablePart& part : covertype.parts)
    for (const auto& [label, count] : histogram(part.labels)) classes[label] += count;
  CHECK(classes == std::map<std::string, int64_t>{
                       {"1", 2942}, {"2", 6022}, {"3", 2160}, {"4", 2160}, {"5", 2396}, {"6", 2160}, {"7", 2160}});
  CHECK(histogram(covertype.part(Split::kTest).labels)["3"] == 432);  // a fifth of 2,160

  const scratch::Folder higgs;
  std::filesystem::create_symlink(*folder / "higgs_7k/binary.train", higgs / "train.csv");
  std::filesystem::create_symlink(*folder / "higgs_7k/binary.test", higgs / "test.csv");
  const Table table =
      read_table("higgs-small", higgs.path(), "target=1 kind=classification header=no delimiter=tab", 0);
  CHECK(sizes(table) == Rows{5600, 1400, 500});
  auto labels = histogram(table.part(Split::kTrain).labels);
  for (const auto& [label, count] : histogram(table.part(Split::kDev).labels)) labels[label] += count;
  CHECK(labels == std::map<std::string, int64_t>{{"1", 3716}, {"0", 3284}});
  CHECK(table.part(Split::kTest).numbers.size() == 500 * 28);
}

}  // namespace xformer::data::table_test
