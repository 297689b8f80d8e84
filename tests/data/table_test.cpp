// Tables in CSV files, their schemas, how rows are divided, and each refusal with its place.
#include "data/tables/table.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/error.h"
#include "data/table_folder.h"
#include "data/tables/table_csv.h"

namespace xformer::data::table_test {

using Catch::Matchers::Contains;
using Names = std::vector<std::string>;
using Rows = std::vector<int64_t>;

const std::string kPrices = "target=price categorical=city kind=regression";

std::map<std::string, std::string> prices() {
  return {{"train.csv", "id,city,rooms,price\n1,Bonn,3,100\n2,Ulm,,250.5\n3,Bonn,4,90\n"},
          {"val.csv", "id,city,rooms,price\n4,Ulm,2,120\n"},
          {"test.csv", "id,city,rooms,price\n5,Kiel,1,80\n6,Ulm,5,300\n"}};
}

TEST_CASE("a table of CSV files has the columns of its schema") {
  const Table table = Files(prices()).read(kPrices + " ignore=id");
  CHECK(table.kind == TableKind::kRegression);
  CHECK(table.numeric_names == Names{"rooms"});
  CHECK(table.categorical_names == Names{"city"});
  CHECK((!table.own_split && table.files.size() == 3));
  const TablePart& train = table.part(Split::kTrain);
  CHECK(train.categories == Names{"Bonn", "Ulm", "Bonn"});
  CHECK(train.targets == std::vector<double>{100, 250.5, 90});
  CHECK((train.numbers.size() == 3 && train.numbers[0] == 3 && std::isnan(train.numbers[1])));
  CHECK(table.part(Split::kDev).targets == std::vector<double>{120});
  CHECK(table.part(Split::kTest).categories == Names{"Kiel", "Ulm"});  // a category that train lacks is no error
  CHECK_THAT(table.part(Split::kTest).where(1), Contains("test.csv, line 3"));
}

TEST_CASE("columns without a header go by number, with any delimiter") {
  std::string content;
  for (int i = 0; i < 50; ++i) content += std::to_string(i % 3) + "\tx\t" + std::to_string(i) + "\n";
  const Table table =
      Files(FileMap{{"data.csv", content}}).read("target=1 kind=classification ignore=2 header=no delimiter=tab");
  CHECK(table.kind == TableKind::kMulticlass);
  CHECK(table.numeric_names == Names{"3"});
  CHECK(table.own_split);
  CHECK((table.part(Split::kTrain).rows == 32 && table.part(Split::kDev).rows == 8 &&
         table.part(Split::kTest).rows == 10));
}

TEST_CASE("a schema takes names with blanks and commas in quotes") {
  const CsvSchema schema = parse_csv_schema(
      R"(  target="sale price" categorical=a,"b, c" Kind=REGRESSION header=no delimiter=semicolon ignore=id )");
  CHECK(schema.target == "sale price");
  CHECK(schema.categorical == Names{"a", "b, c"});
  CHECK(schema.ignore == Names{"id"});
  CHECK((schema.regression && !schema.header && schema.delimiter == ';'));
  const CsvSchema plain = parse_csv_schema("kind=classification target=y");
  CHECK((!plain.regression && plain.header && plain.delimiter == ',' && plain.categorical.empty()));
}

TEST_CASE("a wrong schema is refused with the nearest word") {
  const auto refusal = [](const char* text) {
    return scratch::message_of<UserError>([&] { (void)parse_csv_schema(text); });
  };
  CHECK_THAT(refusal("kind=regression"), Contains("expected target=COLUMN"));
  CHECK_THAT(refusal("target=y"), Contains("expected kind=classification or regression"));
  CHECK_THAT(refusal("target=y kind=regresion"), Contains("'regresion'") && Contains("did you mean 'regression'?"));
  CHECK_THAT(refusal("target=y kind=regression categorial=a"), Contains("did you mean 'categorical'?"));
  CHECK_THAT(refusal("target=y kind=regression header=maybe"), Contains("known: no, yes"));
  CHECK_THAT(refusal("target=y kind=regression delimiter=tabs"), Contains("did you mean 'tab'?"));
  CHECK_THAT(refusal("target=a,b kind=regression"), Contains("expected one target column, found a, b"));
  CHECK_THAT(refusal("target=a target=b kind=regression"), Contains("target is set twice"));
  CHECK_THAT(refusal("target=a kind=regression ignore=a,,b"), Contains("empty value"));
  CHECK_THAT(refusal("target=\"a kind=regression"), Contains("quote in the value of target is not closed"));
  CHECK_THAT(refusal("price kind=regression"), Contains("expected KEY=VALUE") && Contains("'price'"));
}

TEST_CASE("a schema that does not fit the file is refused with the nearest column") {
  const Files files(prices());
  CHECK_THAT(files.refusal<UserError>("target=prize kind=regression"),
             Contains("train.csv: no column 'prize'; did you mean 'price'?"));
  CHECK_THAT(files.refusal<UserError>("target=xyzzy kind=regression"), Contains("there are id, city, rooms, price"));
  CHECK_THAT(files.refusal<UserError>("target=9 header=no kind=regression"), Contains("column number from 1 to 4"));
  CHECK_THAT(files.refusal<UserError>("target=price ignore=price kind=regression"), Contains("named more than once"));
  CHECK_THAT(files.refusal("target=price ignore=id,city,rooms kind=regression"), Contains("columns beside the target"));
  CHECK_THAT(Files(FileMap{{"data.csv", "a,a,b\n1,2,3\n"}}).refusal<DataError>("target=a kind=regression"),
             Contains("two columns are called 'a'"));
}

TEST_CASE("bad rows of CSV tables are refused with file, line and column") {
  const auto refusal = [](const std::string& name, const std::string& content, const std::string& schema = kPrices) {
    Files files(prices());
    files.put({{name, content}});
    return files.refusal(schema);
  };
  const std::string head = "id,city,rooms,price\n", row = "1,Bonn,3,100\n";
  CHECK_THAT(refusal("train.csv", head + row + "2,Ulm,many,9\n"),
             Contains("train.csv:3: expected a number in column 'rooms', found 'many'") && Contains("categorical="));
  for (const std::string number : {"nan", "NaN", "inf", "1e999"})
    CHECK_THAT(refusal("test.csv", head + row + "2,Ulm," + number + ",9\n"),
               Contains("test.csv:3: expected a number in column 'rooms', found '" + number + "'"));
  CHECK_THAT(
      refusal("test.csv", head + row + "2,Ulm,-1e30,9\n"),
      Contains("test.csv, line 3: expected a number in column 'rooms', found -1e+30; those below 1e+30 are read"));
  CHECK_THAT(refusal("val.csv", head + "2,Ulm,1,1e300\n"),
             Contains("val.csv, line 2: expected a finite number below 1e+30 as target, found 1e+300"));
  CHECK_THAT(refusal("val.csv", head + "2,Ulm,1,\n"),
             Contains("val.csv:2: expected a number in column 'price', found ''"));
  CHECK_THAT(refusal("train.csv", head + row + "1,2,3\n"),
             Contains("train.csv:3: expected 4 fields as in line 1, found 3"));
  CHECK_THAT(refusal("test.csv", "id,rooms,city,price\n" + row), Contains("test.csv:1: expected the columns id, city"));
  CHECK_THAT(refusal("test.csv", head), Contains("test.csv: expected rows, found none"));
  CHECK_THAT(refusal("train.csv", head + row + row), Contains("the target is 100 in all 2 rows of train"));
  CHECK_THAT(refusal("train.csv", head + "1,Bonn,,100\n2,Ulm,,7\n"),
             Contains("column 'rooms' has no value in any row"));
  const std::string classes = "target=city kind=classification";
  CHECK_THAT(refusal("train.csv", head + row + row, classes), Contains("the target has one class, 'Bonn'"));
  CHECK_THAT(refusal("val.csv", head + "4,,2,120\n", classes), Contains("val.csv, line 2: the target is empty"));
  CHECK_THAT(refusal("train.csv", head + row + "2,K\xf6ln,1,9\n", classes),
             Contains("train.csv, line 3: expected a class in UTF-8, found "));
  CHECK_THAT(refusal("val.csv", head + row, classes),
             Contains("test.csv, line 2: class 'Kiel' occurs in no row of train, which has 2 classes"));
  CHECK_THAT(
      Files(FileMap{{"train.csv", "1,2\n"}, {"test.csv", "1,2,3\n"}}).refusal("target=1 header=no kind=regression"),
      Contains("test.csv:1: expected 2 fields, found 3"));
}

TEST_CASE("without val.csv a fifth of train becomes dev") {
  std::string content;
  for (int i = 0; i < 25; ++i) content += std::to_string(i) + "," + std::to_string(i % 2) + "\n";
  const Files files(FileMap{{"train.csv", content}, {"test.csv", "7,1\n"}});
  const std::string schema = "target=2 kind=classification header=no";
  const Table table = files.read(schema), again = files.read(schema), other = files.read(schema, "table", 1);
  CHECK(table.part(Split::kDev).places == again.part(Split::kDev).places);
  CHECK(table.part(Split::kDev).places != other.part(Split::kDev).places);
  CHECK((table.part(Split::kTrain).rows == 20 && table.part(Split::kDev).rows == 5 &&
         table.part(Split::kTest).rows == 1));
  CHECK((table.own_split && table.kind == TableKind::kBinary));
}

TEST_CASE("a fifth is drawn by the seed, and each class gives its share") {
  Rows rows(1003);
  Names labels(1003);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] = static_cast<int64_t>(i);
    labels[i] = i < 3 ? "rare" + std::to_string(i) : i < 200 ? "some" : "most";
  }
  const auto [rest, fifth] = take_fifth(rows, labels, 1);
  CHECK((fifth.size() == 201 && rest.size() == 802));  // rounded up
  Rows both = rest;
  both.insert(both.end(), fifth.begin(), fifth.end());
  std::sort(both.begin(), both.end());
  CHECK(both == rows);
  std::map<std::string, int> taken;
  for (const int64_t row : fifth) ++taken[labels[static_cast<size_t>(row)]];
  // 197 and 803 of 1003: shares of 201 are 39.48 and 160.92, of a single row 0.2, which stays in the rest.
  CHECK(((taken["some"] == 39 || taken["some"] == 40) && taken["most"] + taken["some"] == 201 && taken.size() == 2));
  CHECK((std::is_sorted(rest.begin(), rest.end()) && std::is_sorted(fifth.begin(), fifth.end())));
  CHECK(take_fifth(rows, labels, 1).second == fifth);
  CHECK(take_fifth(rows, labels, 2).second != fifth);
  CHECK(take_fifth(rows, {}, 1).second.size() == 201);
}

TEST_CASE("a split leaves no class out of train and gives every row once") {
  std::string content;
  for (int i = 0; i < 100; ++i) content += "c" + std::to_string(i < 90 ? 0 : i - 90) + "," + std::to_string(i) + "\n";
  const Files files(FileMap{{"data.csv", content}});
  const std::string schema = "target=1 kind=classification header=no";
  const Table table = files.read(schema), again = files.read(schema), other = files.read(schema, "table", 1);
  std::multiset<int64_t> lines;
  for (const TablePart& part : table.parts) lines.insert(part.places.begin(), part.places.end());
  CHECK((lines.size() == 100 && *lines.begin() == 1 && *lines.rbegin() == 100 &&
         std::set(lines.begin(), lines.end()).size() == 100));
  for (const TablePart& part : table.parts)  // rows stay whole
    for (size_t row = 0; row < part.places.size(); ++row)
      CHECK(part.numbers[row] == static_cast<double>(part.places[row] - 1));
  CHECK(table.part(Split::kTrain).places == again.part(Split::kTrain).places);
  CHECK(table.part(Split::kTrain).places != other.part(Split::kTrain).places);
}

}  // namespace xformer::data::table_test
