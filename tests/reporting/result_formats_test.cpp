// Results in every format: what each holds, numbers that agree between them, and pages that need nothing else.
#include "reporting/result_formats.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "latex.h"
#include "made_records.h"

namespace xformer::reporting::result_formats_test {

using namespace made;
using Catch::Matchers::Contains;

namespace {

// Two models on two tasks over four seeds: a tells itself from b on `clear`, not on `close`.
std::vector<RunRecord> two_models() {
  std::vector<RunRecord> records;
  for (const int64_t seed : {0, 1, 2, 3}) {
    const double noise = 0.01 * static_cast<double>(seed);
    records.push_back(run("a", "clear", seed, 0.8 + noise));
    records.push_back(run("b", "clear", seed, 0.6 + noise + (seed == 0 ? 0.002 : 0)));
    records.push_back(run("a", "close", seed, 0.80 + 3 * noise));
    records.push_back(run("b", "close", seed, 0.81 + (seed % 2 == 0 ? noise : -noise)));
  }
  for (RunRecord& record : records) {
    record.train_seconds = 90;
    record.evaluation_seconds = 30;
    record.peak_device_bytes = record.model == "a" ? 2000000 : 1000000;
  }
  return records;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> result;
  for (const std::string_view line : split(text, '\n')) result.emplace_back(line);
  return result;
}

}  // namespace

TEST_CASE("every test behind a mark is given: difference, interval, t, degrees of freedom, both p") {
  const std::vector<RunRecord> records = two_models();
  const ResultTable table = result_table(records, {});
  REQUIRE(table.tests.size() == 2);
  // a - b on `close`: -1, 3, 3 and 11 points; mean 4, deviation 5.0332, t = 4 / (5.0332 / 2).
  const SeedTest& close = table.tests[1];
  CHECK(close.test.t == Approx(1.5894).epsilon(1e-3));
  const Json json = as_json(table)["tests"][1];
  CHECK((json["task"] == "close" && json["best"] == "a" && json["other"] == "b" && json["unit"] == "%"));
  CHECK(json["difference"].get<double>() == Approx(4));
  CHECK(json["low"].get<double>() == Approx(4 - 3.18245 * 5.033223 / 2).epsilon(1e-4));
  CHECK(json["high"].get<double>() == Approx(4 + 3.18245 * 5.033223 / 2).epsilon(1e-4));
  CHECK(json["degrees_of_freedom"] == 3);
  CHECK(json["p"].get<double>() == Approx(student_two_sided(close.test.t, 3)));
  CHECK(json["holm_p"] == json["p"]);
  CHECK_THAT(as_markdown(table, {.tests = true}),
             Contains("| close, % | a | b | 4.00 | -4.01 | 12.01 | 1.589 | 3 | 0."));
  CHECK_THAT(as_markdown(table), !Contains("| close, % | a | b |"));
  CHECK_THAT(as_latex(table, LatexNumbers::kSiunitx, {.tests = true}), Contains("\\label{tab:-tests}"));
  CHECK_THAT(as_html(table), Contains("<td data-value=\"1.589"));
  CHECK_THAT(as_csv(table), Contains("b,close,%,80.5,"));
  // One common seed is no test, and says so.
  const std::vector<RunRecord> few{run("a", "t", 0, 0.9), run("b", "t", 0, 0.6), run("b", "t", 1, 0.6)};
  CHECK_THAT(as_markdown(result_table(few, {}), {.tests = true}), Contains("no test: 1 common seed\n"));
  CHECK(as_json(result_table(few, {}))["tests"][0]["p"].is_null());
  // Nor is none, which has no degrees of freedom rather than fewer.
  const std::vector<RunRecord> none{run("a", "t", 0, 0.9), run("b", "t", 1, 0.6)};
  CHECK_THAT(as_csv(result_table(none, {})), Contains(",,,0,,,,,b-t-1.json\n"));
}

TEST_CASE("Holm's adjustment is over the tests of a column that could be made") {
  std::vector<RunRecord> records = two_models();
  records.push_back(run("c", "clear", 0, 0.5));
  for (const int64_t seed : {0, 1, 2, 3}) records.push_back(run("d", "clear", seed, 0.5 + 0.001 * (seed % 2)));
  const ResultTable table = result_table(records, {});
  std::vector<double> p, adjusted;
  for (const SeedTest& one : table.tests)
    if (table.columns[one.column].label == "clear") p.push_back(one.test.p), adjusted.push_back(one.adjusted_p);
  REQUIRE(p.size() == 3);
  CHECK((std::isnan(p[1]) && std::isnan(adjusted[1])));
  CHECK(std::max(adjusted[0], adjusted[2]) == Approx(std::max({2 * std::min(p[0], p[2]), p[0], p[2]})));
  CHECK_FALSE(cell(table, "a", "clear").supported);  // c has too few seeds to be told from
}

TEST_CASE("CSV has a line for every cell, quoted where it must be") {
  std::vector<RunRecord> records{run("a", "t", 0, 0.6), run("a", "t", 0, 0.6)};
  records[0].plan = {{"data.length", 1}};
  records[1].plan = {{"data.length", 2}};
  const std::string text = as_csv(result_table(records, {}));
  CHECK_THAT(text, Contains("a,\"t, length=1\",%,60,,1,1,0,0,,,,,,,,,,,,,,,a-t-0.json\n"));
}

TEST_CASE("the long table has a line for each number of each run, in the unit of the means") {
  const std::vector<RunRecord> records = two_models();
  const std::string text = as_long_csv(result_table(records, {}));
  CHECK(lines_of(text)[0] == "model,task,seed,split,metric,value,unit,record");
  CHECK_THAT(text, Contains("\na,clear,0,test,accuracy,80,%,a-clear-0.json\n"));
  CHECK_THAT(text, Contains("\na,close,1,train,time,2,min,a-close-1.json\n"));
  CHECK(lines_of(text).size() == 1 + 16 * 4 + 1);  // score, memory, parameters and time of 16 runs
  const Json json = as_json(result_table(records, {}));
  CHECK(json["cells"][0]["runs"][0]["score"] == 80.0);
  CHECK(json["cells"][0]["mean"] == 81.5);
  CHECK(json["cells"][2]["mean"].dump() == "61.55");  // no 61.550000000000004
}

TEST_CASE("another quantity takes the place of scores, and time is a column of its own") {
  const std::vector<RunRecord> records = two_models();
  CHECK_THAT(as_markdown(result_table(records, {})),
             Contains("| time, min |") && Contains("| 84.50 ± 3.87 | 83.00 | 4.0 |"));
  const ResultTable memory = result_table(records, {}, {.metric = "memory"});
  CHECK_THAT(as_markdown(memory), Contains("clear, MB") && Contains("| a | 2.0 ± 0.0 |") && !Contains("chance"));
  CHECK(cell(memory, "b", "clear").best);
  // What is counted is no sample: nothing is tested, and nothing is said of tests.
  const ResultTable counted = result_table(records, {}, {.metric = "parameters"});
  CHECK((counted.tests.empty() && counted.comparisons.empty()));
  CHECK_THAT(as_markdown(counted), !Contains("t test"));
  // What was not measured is not there: an old record's speed of 0 after four steps.
  std::vector<RunRecord> slow = records;
  slow[0].speed = RunRecord::Speed{};
  CHECK_THAT(as_markdown(result_table(slow, {}, {.metric = "speed"})), Contains("4 not measured"));
  slow[0].speed->input_work_ms = 1.25;  // nor what making a batch takes, before it was
  CHECK_THAT(as_markdown(result_table(slow, {}, {.metric = "input"})), Contains("clear, ms") && Contains("| a | 1.25"));
  CHECK_THROWS_WITH(result_table(records, {}, {.metric = "sped"}), Contains("'speed'"));
}

TEST_CASE("columns, digits and turning are the same for what people read") {
  const std::vector<RunRecord> records = two_models();
  ResultTable table = result_table(records, {{"clear", "a", "p", 80, Json::object()}});
  CHECK_THAT(as_markdown(table, {.digits = 1}), Contains("81.5 ± 1.3") && Contains("+1.5"));
  CHECK_THAT(as_markdown(table, {.published = false, .difference = false}), !Contains("clear published"));
  const std::string turned = as_latex(table, LatexNumbers::kSiunitx, {.transpose = true});
  CHECK_THAT(turned, Contains(" & {a} & {b} \\\\") && Contains("clear published, \\% & 80.00 & {--}"));
  keep_columns(table, {"clo*"});
  CHECK_THAT(as_markdown(table), Contains("| model | close, % |") && !Contains("clear, %"));
  CHECK_THAT(as_csv(table), !Contains("clear"));
  CHECK((table.tests.size() == 1 && table.tests[0].column == 0));
  CHECK(table.rows[0].average);  // that of the whole table
  CHECK_THROWS_AS(keep_columns(table, {"nowhere"}), UserError);
}

TEST_CASE("an interval stands beside what it is of when it is asked for: over examples, or over seeds") {
  std::vector<RunRecord> records{run("a", "t", 0, 0.6), run("b", "t", 0, 0.6), run("b", "t", 1, 0.7)};
  const ResultTable table = result_table(records, {});
  // Wilson: (p + z^2 / 2n -+ z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n) of 600 of 1,000.
  CHECK_THAT(as_markdown(table, {.interval = true}), Contains("t 95 % interval, %") && Contains("56.93 to 62.99"));
  // Student's of two: the mean -+ 12.7062 x 7.0711 / sqrt(2).
  CHECK_THAT(as_markdown(table, {.interval = true}),
             Contains("| b | 65.00 ± 7.07 | 1.47 to 128.53 |") &&
                 Contains("of one run's accuracy over its test examples (Wilson); of a mean over seeds, by Student's"));
  CHECK_THAT(as_markdown(table), !Contains("56.93"));
  CHECK_THAT(as_latex(table, LatexNumbers::kSiunitx, {.interval = true}), Contains("56.93 to 62.99"));
  for (RunRecord& record : records) make_error(record);
  const std::string errors = as_markdown(result_table(records, {}), {.interval = true});
  CHECK_THAT(errors, Contains("interval, RMSE") && !Contains("Wilson"));  // an error has none over examples
  CHECK_THAT(errors, Contains("| a | 0.6000 <sup>a,b</sup> | - |"));
  const std::vector<RunRecord> seeds{run("a", "t", 0, 0.6), run("a", "t", 1, 0.6)};
  CHECK_THAT(as_markdown(result_table(seeds, {}), {.interval = true}), !Contains("interval, "));
}

TEST_CASE("what else runs measured stands beside their scores, with its spread, or without where it is counted") {
  std::vector<RunRecord> records = two_models();
  for (RunRecord& record : records)
    if (record.task == "clear") {
      record.metrics.push_back({{"auc", "AUC", "%", true, 2}, "test", *record.score() + 0.1});
      record.metrics.push_back({{"auc", "AUC", "%", true, 2}, "dev", 0.0});
    }
  records[0].train = RunRecord::Train{12, 0.5};
  const ResultTable table = result_table(records, {});
  const std::string text = as_markdown(table, {.beside = {"auc", "parameters", "train_loss"}});
  CHECK_THAT(text, Contains("| model | clear, % | clear AUC, % | clear parameters | clear training loss | close, % | "
                            "close parameters | close training loss | average, % | time, min |"));
  CHECK_THAT(text, Contains("| a | **81.50 ± 1.29** | 91.50 ± 1.29 | 100 | 0.500 | 84.50 ± 3.87 | 100 |"));
  CHECK_THAT(text, Contains("| 71.55 ± 1.22 | 100 | - |"));  // b; its training loss nobody wrote down
  // Of those four: 91.5 -+ 3.182446 x 1.290994 / 2.
  CHECK_THAT(as_markdown(table, {.interval = true, .beside = {"auc", "parameters"}}),
             Contains("interval of the AUC, %") && Contains("89.45 to 93.55") && !Contains("interval of the param"));
  CHECK((metric_of(table, 0, "auc") && metric_of(table, 1, "memory") && !metric_of(table, 1, "auc")));
}

TEST_CASE("a column that no record knows the metric of has that of its published values") {
  std::vector<RunRecord> records{run("a", "t", 0, 0)};
  records[0].path.clear();
  records[0].metrics.clear();
  PublishedValue value{"t", "a", "a paper", 0.4671};
  value.metric = "rmse";
  CHECK_THAT(as_markdown(result_table(records, {value})),
             Contains("| t, RMSE |") && Contains("| 0.4671 |") && !Contains("Records:"));
}

TEST_CASE("an average needs to be asked for, of all or of some") {
  const std::vector<RunRecord> records = two_models();
  CHECK_FALSE(result_table(records, {}, {.average_over = std::nullopt}).rows[0].average);
  CHECK_THAT(as_markdown(result_table(records, {})), Contains("Average: over clear, close."));
  CHECK_THAT(as_markdown(result_table(records, {}), {.average = false}), !Contains("Average"));
}

TEST_CASE("the page holds all runs, its links lead into it, and nothing comes from elsewhere") {
  std::vector<RunRecord> records{run("a<b", "t", 0, 0.6), run("a<b", "t", 1, 0.7), run("c", "u", 0, 0.6)};
  records[0].metrics.push_back({accuracy_metric(), "dev", 0.6});
  records[0].dev = {{1, {{"accuracy", 0.5}}}, {2, {{"accuracy", 0.6}}}};
  forget_score(records[2]);
  records[2].status = "diverged";
  const std::string page = as_html(result_table(records, {{"t", "a<b", "a \"paper\"", 65}}));
  CHECK_THAT(page, Contains("a&lt;b") && !Contains("a<b"));
  CHECK_THAT(page, Contains("65.00 ± 7.07") && Contains(">+0.00</td>") && Contains("1 diverged"));
  CHECK_THAT(page, Contains("class=\"missing\">- <sup") && !Contains("class=\"missing\">-</td>"));
  CHECK_THAT(page, Contains("&quot;paper&quot;") && Contains("<svg") && Contains("data-value=\"65\""));
  size_t links = 0;
  for (size_t at = page.find("href=\"#"); at != std::string::npos; at = page.find("href=\"#", at + 1), ++links) {
    const std::string name = page.substr(at + 7, page.find('"', at + 7) - at - 7);
    CHECK(page.find("id=\"" + name + "\"") != std::string::npos);
  }
  CHECK(links == 3);
  // Nothing is fetched: the only address is the name of SVG's vocabulary.
  for (size_t at = page.find("http"); at != std::string::npos; at = page.find("http", at + 1))
    CHECK(page.compare(at, 26, "http://www.w3.org/2000/svg") == 0);
}

TEST_CASE("the page has the title and notes of its experiment, downloads, and a chart of all models of a task") {
  std::vector<RunRecord> records = two_models();
  for (RunRecord& record : records) {
    record.metrics.push_back({accuracy_metric(), "dev", 0.6});
    record.dev = {{1, {{"accuracy", 0.5}}}, {2, {{"accuracy", 0.6}}}};
  }
  ResultTable table = result_table(records, {});
  table.title = "A < B";
  table.notes = {"not as printed"};
  const std::string page = as_html(table);
  CHECK_THAT(page, Contains("<title>A &lt; B</title>") && Contains("<h1>A &lt; B</h1>") &&
                       Contains("<li>not as printed</li>") && Contains("<div class=\"scroll\">"));
  CHECK_THAT(page, Contains("<a download=\"runs.csv\" href=\"data:text/csv;charset=utf-8,model%2Ctask%2Cseed"));
  size_t charts = 0;
  for (size_t at = page.find("<svg"); at != std::string::npos; at = page.find("<svg", at + 1)) ++charts;
  CHECK(charts == 2);  // one for each task, none for each run
}

TEST_CASE("Table 9 compiles within the line, with every value, mark and note") {
  // Ten models with long names, three tasks of five seeds, published values and averages, some runs missing.
  std::vector<RunRecord> records;
  std::vector<PublishedValue> published;
  for (const char* model : {"linformer", "linear", "fmm", "performer", "luna"})
    for (const bool scales : {false, true}) {
      const std::string name = (scales ? "mrs-" : "") + std::string(model);
      for (const char* task : {"listops", "retrieval", "text"}) {
        published.push_back({task, name, "a paper", 37.25});
        for (int64_t seed = 0; seed < 5; ++seed) {
          records.push_back(run(name, task, seed, 0.36 + 0.01 * static_cast<double>(seed % 3)));
          records.back().train_seconds = 12345;
          if (seed == 4 && scales) records.back().path.clear();
          if (seed == 3 && std::string(model) == "fmm") {
            records.back().status = "out-of-memory";
            forget_score(records.back());
          }
        }
      }
      published.push_back({"average", name, "a paper", 58.5});
    }
  ResultTable table = result_table(records, published);
  table.title = "Table 9: Long Range Arena & 100 % of it";
  table.name = "mrsformer-table-9";
  table.notes = {"The paper trains ListOps for 15,000 steps; table-9_norm.json divides by sqrt(n)."};
  const std::string text = as_latex(table, LatexNumbers::kSiunitx, {.tests = true});
  CHECK_THAT(text, Contains("\\multicolumn{3}{c}{listops (\\%)}") && Contains("{ours} & {published} & {difference}"));
  CHECK_THAT(text, !Contains("without record &") && Contains("1 without record\\par"));
  if (!latex::is_there()) {
    WARN("skipped: there is no pdflatex with siunitx and booktabs (texlive-latex-recommended, texlive-science)");
    return;
  }
  for (const ResultView& view : {ResultView{.tests = true}, ResultView{.transpose = true}})
    for (const LatexNumbers numbers : {LatexNumbers::kSiunitx, LatexNumbers::kPlain}) {
      const scratch::Folder folder;
      const std::string log = latex::log_of(as_latex(table, numbers, view), folder.path());
      CHECK_THAT(log, !Contains("\n!") && !Contains("Overfull") && Contains("Output written on document.pdf"));
    }
}

}  // namespace xformer::reporting::result_formats_test
