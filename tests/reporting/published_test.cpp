// Published values: how they are read, and that each has a place in the table of its experiment.
#include "reporting/published.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "core/error.h"
#include "made_records.h"
#include "reporting/result_formats.h"
#include "scratch.h"

namespace xformer::reporting::published_test {

using namespace made;
using Catch::Matchers::Contains;

namespace {

std::vector<PublishedValue> read(const std::string& json) {
  const scratch::Folder folder;
  scratch::put(folder / "published.json", json);
  return read_published(folder / "published.json");
}

// A run that waits for a name.
RunRecord waiting(const std::string& model, const std::string& task, const std::string& name) {
  RunRecord record = run(model, task, 0, 0);
  record.path.clear();
  record.metrics.clear();
  record.status = kWaiting;
  record.message = name;
  return record;
}

std::vector<std::string> labels(const ResultTable& table, bool of_rows) {
  std::vector<std::string> result;
  if (of_rows)
    for (const ResultRow& row : table.rows) result.push_back(row.label);
  else
    for (const ResultColumn& column : table.columns) result.push_back(column.label + ", " + unit_text(column.metric));
  return result;
}

}  // namespace

TEST_CASE("a published value is a number or a text, with what its publication says of it") {
  const auto values = read(R"([
    {"task": "t", "model": "a", "metric": "accuracy", "value": 39.57, "source": "S", "std": 0.32, "row": 6,
     "quoted_from": "LRA", "qualifier": "about", "digitised": true, "length": 512, "model.dim": 8},
    {"task": "t", "model": "a", "value": null, "text": "FAIL", "source": "S", "condition": "reported", "size": "38M"}])");
  REQUIRE(values.size() == 2);
  CHECK((values[0].value == 39.57 && values[0].deviation == 0.32 && values[0].digitised && values[0].row == 6));
  CHECK((values[0].remark == "quoted from LRA" && values[0].qualifier == "about"));
  CHECK(values[0].options == Json{{"data.length", 512}, {"model.dim", 8}});
  CHECK((std::isnan(values[1].value) && values[1].text == "FAIL" && values[1].remark == "reported, 38M"));
  CHECK(printed(values[1], 2) == "FAIL");
  CHECK((printed(39.5, 2) == "39.50" && printed(3.335, 2) == "3.335" && printed(7647, 0) == "7647"));
  for (const char* wrong :
       {R"("value": null)", R"("value": "39.57")", R"("value": 1, "std": "0.3")", R"("value": 1, "digitised": 1)"}) {
    INFO(wrong);
    CHECK_THROWS_WITH(read(R"([{"task": "t", "model": "a", "source": "S", )" + std::string(wrong) + "}]"),
                      Contains("published.json: entry 0"));
  }
}

TEST_CASE("what waits is a row with its published value and the name that it waits for") {
  const std::vector<RunRecord> records{run("a", "t", 0, 0.6), waiting("new", "t", "new")};
  const ResultTable table = result_table(records, {{"t", "new", "S", 71.5}}, {.all_published = true});
  CHECK(labels(table, true) == std::vector<std::string>{"a", "new"});
  const ResultCell& own = cell(table, "new", "t");
  CHECK((own.waits_for == "new" && own.missing == 0 && !own.whole()));
  CHECK_THAT(as_markdown(table), Contains("| new | - <sup>a</sup> | 71.50 |") &&
                                     Contains("<sup>a</sup> waits for new\n") && Contains("Published: S.\n"));
  CHECK_THAT(as_csv(table), Contains("new,t,%,,,0,0,0,0,71.5,,,S,waits for new,"));
  CHECK(as_json(table)["cells"][1]["missing"] == "waits for new");
  // A table of which nothing can run yet.
  const std::vector<RunRecord> none{waiting("a", "later", "later")};
  PublishedValue value{"later", "a", "S", 3.335};
  value.metric = "bits_per_dim";
  CHECK_THAT(as_markdown(result_table(none, {value}, {.all_published = true})),
             Contains("| model | later, bits/dim | later published, bits/dim |") && Contains("| 3.335 |") &&
                 Contains("No run has a score yet."));
}

TEST_CASE("published values of no run have rows and columns of their own, where an experiment is shown") {
  const std::vector<RunRecord> records{run("a", "t", 0, 0.6), run("a", "u", 0, 0.8), run("b", "t", 0, 0.5),
                                       run("b", "u", 0, 0.5)};
  PublishedValue memory{"t", "a", "S", 7647};
  memory.metric = "ram";
  PublishedValue quoted{"u", "a", "S", 44};
  quoted.remark = "quoted from LRA";
  quoted.model = "c";
  const std::vector<PublishedValue> published{{"t", "chance", "S", 10.5},  {"average", "chance", "S", 15.25}, memory,
                                              {"elsewhere", "a", "S", 33}, {"average", "a", "S", 72},         quoted};
  const ResultTable table = result_table(records, published, {.all_published = true});
  CHECK(labels(table, true) == std::vector<std::string>{"a", "b", "chance", "c, quoted from LRA"});
  CHECK(labels(table, false) == std::vector<std::string>{"t, %", "t, MB", "u, %", "elsewhere, score"});
  CHECK(cell(table, "c, quoted from LRA", "u").published.at(0).value == 44);
  const std::string text = as_markdown(table);
  CHECK_THAT(text, Contains("| chance | - | 10.50 | - |") && Contains("| 7647 |") && Contains("| 33.00 |") &&
                       Contains("15.25"));
  CHECK_THAT(text, !Contains("no record"));  // of a publication's row nothing is missing
  // What is ours is as without them.
  const ResultTable alone = result_table(records, {});
  CHECK(table.rows[0].average == alone.rows[0].average);
  CHECK(table.rows[0].average == Approx(70));
  CHECK(table.averaged == std::vector<std::string>{"t", "u"});
  CHECK(cell(table, "a", "t").best);
  CHECK(as_long_csv(table) == as_long_csv(alone));
  CHECK(as_json(table)["cells"].size() == 4 + 4);
  // Beside records of anybody's choice only what is theirs is shown.
  CHECK(labels(result_table(records, published), true) == std::vector<std::string>{"a", "b"});
  CHECK(result_table(records, published).columns.size() == 2);
}

TEST_CASE("what runs reached in a further metric stands beside what is published of it") {
  std::vector<RunRecord> records{run("a", "t", 0, 0.6), run("a", "t", 1, 0.7), run("b", "t", 0, 0.5)};
  for (const size_t i : {size_t{0}, size_t{1}})
    records[i].metrics.push_back({{"auc", "AUC", "%", true, 2}, "test", 0.8 + 0.1 * static_cast<double>(i)});
  PublishedValue value{"t", "a", "S", 94.32};
  value.metric = "auc";
  // Means of 80 and 90 with their sample deviation, sqrt(50); the other model has none.
  CHECK_THAT(as_markdown(result_table(records, {value}, {.all_published = true})),
             Contains("| model | t, % | t, AUC, % | t published, AUC, % |") && Contains("| 85.00 ± 7.07 | 94.32 |") &&
                 Contains("| - | - |"));
}

TEST_CASE("where no run is, CSV and JSON have no mean of ours") {
  const std::vector<RunRecord> records{run("a", "t", 0, 0.6)};
  const ResultTable table = result_table(records, {{"t", "chance", "S", 10.5}}, {.all_published = true});
  CHECK_THAT(as_csv(table), Contains("\na,t,%,60,,1,") && Contains("\nchance,t,%,,,0,0,0,0,10.5,,,S,no record,"));
  const Json cell = as_json(table)["cells"][1];
  CHECK((cell["model"] == "chance" && cell["mean"].is_null() && cell["deviation"].is_null()));
}

TEST_CASE("CSV and JSON have averages, the published ones with all that is said of them") {
  const std::vector<RunRecord> records{run("a", "t", 0, 0.6), run("a", "u", 0, 0.8), run("b", "t", 0, 0.5)};
  std::vector<PublishedValue> published{
      {kAverage, "a", "S", 72.5}, {kAverage, "a", "S", 71.25}, {kAverage, "b", "F", NAN}};
  published[0].deviation = 0.25;
  published[1].row = 6;
  published[2].text = "FAIL";
  const ResultTable table = result_table(records, published);
  CHECK_THAT(as_csv(table), Contains("\na,average,%,70,,,,,,72.5; 71.25,0.25; ,,\"S; S, row 6\",,,,,,,,,,,\n") &&
                                Contains("\nb,average,%,,,,,,,FAIL,,,F,,,,,,,,,,,\n"));
  const std::string csv = as_csv(table);
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 1 + 4 + 2);
  const Json rows = as_json(table)["rows"];
  CHECK(rows[0]["average"] == 70.0);
  CHECK(rows[0]["published_average"] == Json{{"value", 72.5}, {"source", "S"}, {"deviation", 0.25}});
  CHECK(rows[0]["also_published_average"] == Json::array({Json{{"value", 71.25}, {"source", "S, row 6"}}}));
  CHECK(rows[1]["published_average"] == Json{{"value", nullptr}, {"source", "F"}, {"text", "FAIL"}});
  CHECK_FALSE(as_json(result_table(records, {}))["rows"][0].contains("published_average"));
  // Of one task there is no average.
  CHECK_THAT(as_csv(result_table({records.front()}, {})), !Contains("average,"));
}

TEST_CASE("two published values of one cell both stand in it, each with its source") {
  const std::vector<RunRecord> records{run("a", "t", 0, 0.6)};
  std::vector<PublishedValue> published{{"t", "a", "S", 63.5}, {"t", "a", "S", 62.49}};
  published[0].row = 1, published[1].row = 6;
  published[1].deviation = 0.2;
  const ResultTable table = result_table(records, published);
  CHECK_THAT(as_markdown(table), Contains("| 63.50 / 62.49 ± 0.20 <sup>a,b</sup> | -3.50 |") &&
                                     Contains("<sup>a</sup> 63.50: S, row 1\n") &&
                                     Contains("<sup>b</sup> 62.49: S, row 6\n"));
  CHECK_THAT(as_csv(table), Contains(",63.5; 62.49,; 0.2,-3.5,\"S, row 1; S, row 6\""));
  const Json json = as_json(table)["cells"][0];
  CHECK((json["published"]["value"] == 63.5 && json["also_published"][0]["source"] == "S, row 6"));
  CHECK_NOTHROW(as_latex(table, LatexNumbers::kSiunitx));
}

TEST_CASE("a publication's deviation, a figure's reading and a text are shown as what they are") {
  const std::vector<RunRecord> records{run("a", "t", 0, 0.6), run("b", "t", 0, 0.6), run("c", "t", 0, 0.6)};
  std::vector<PublishedValue> published{{"t", "a", "S", 39.57}, {"t", "b", "F", 99.5}, {"t", "c", "S", NAN}};
  published[0].deviation = 0.32;
  published[1].digitised = true;
  published[2].text = "FAIL";
  const ResultTable table = result_table(records, published);
  const std::string text = as_markdown(table);
  CHECK_THAT(text, Contains("| 39.57 ± 0.32 | +20.43 |") && Contains("Published: S; F (± as printed there)."));
  CHECK_THAT(text, Contains("| 99.50 <sup>") && Contains("</sup> read off a figure\n"));
  CHECK_THAT(text, Contains("| FAIL | - |"));  // no difference from a text
  CHECK_THAT(as_html(table), Contains(">39.57 ± 0.32</td>") && Contains(">FAIL</td>"));
  CHECK_THAT(as_csv(table), Contains(",39.57,0.32,") && Contains(",FAIL,,,S,"));
  CHECK(as_json(table)["cells"][1]["published"]["digitised"] == true);
}

TEST_CASE("a deviation that is printed elsewhere says where") {
  const auto published = read(R"([
    {"task": "t", "model": "a", "value": 2.77, "source": "S", "std": 0.003, "std_source": "appendix E"},
    {"task": "t", "model": "b", "value": 3.5, "source": "S"}])");
  std::vector<RunRecord> records{run("a", "t", 0, 0.6), run("b", "t", 0, 0.6)};
  const ResultTable table = result_table(records, published);
  CHECK_THAT(as_markdown(table),
             Contains("Published: S; appendix E (±).") && Contains("published: S, ± from appendix E\n"));
  CHECK_THAT(as_csv(table), Contains(",\"S, ± from appendix E\","));
  CHECK(as_json(table)["cells"][0]["published"]["source"] == "S, ± from appendix E");
  CHECK(as_json(table)["cells"][1]["published"]["source"] == "S");
}

TEST_CASE("a published metric has its own title, unit, direction and decimals") {
  const auto heading = [](const std::string& metric, double number) {
    PublishedValue value{"t", "a", "S", number};
    value.metric = metric;
    const ResultTable table = result_table({}, {value}, {.all_published = true});
    return labels(table, false).at(0) + (table.columns[0].metric.higher_is_better ? " up " : " down ") +
           shown(table, {}).rows.at(0).at(1).text;
  };
  CHECK(heading("rouge1", 44.21) == "t, ROUGE-1, % up 44.21");
  CHECK(heading("gini", 62.8) == "t, Gini, % up 62.80");
  CHECK(heading("auc", 100) == "t, AUC, % up 100.00");
  CHECK(heading("f1", 99.9) == "t, F1, % up 99.90");
  CHECK(heading("bits_per_dim", 2.77) == "t, bits/dim down 2.770");
  CHECK(heading("perplexity", 4.552) == "t, perplexity down 4.552");
  CHECK(heading("train_time", 4.5) == "t, hours down 4.50");
  CHECK(heading("ram", 7647) == "t, MB down 7647");
  CHECK(heading("rmse", 0.468) == "t, RMSE down 0.4680");
  CHECK(heading("steps_per_second", 8.1) == "t, steps/s up 8.1");
}

}  // namespace xformer::reporting::published_test
