// Records as tables: what is averaged, marked, warned of and missing, and the formats.
#include "reporting/result_table.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "core/error.h"
#include "scratch.h"

namespace xformer::reporting::result_table_test {

using Catch::Matchers::Contains;

namespace {

RunRecord run(const std::string& model, const std::string& task, int64_t seed, double score) {
  RunRecord record;
  record.path = fmt::format("{}-{}-{}.json", model, task, seed);
  record.task = task;
  record.model = model;
  record.protocol = "p";
  record.status = "completed";
  record.seed = seed;
  record.metrics = {{accuracy_metric(), "test", score, 0.5}};
  record.test = EvaluationPoint{{}, {{"accuracy", score}}, 0, 1000};
  record.parameters = 100;
  record.software = {{"commit", "0123456789abcdef"}};
  record.data = RunRecord::Data{"fedcba9876543210", "", {}, {}, {}};
  record.command = "xformer train";
  return record;
}

// Never tested.
void forget_score(RunRecord& record) { record.metrics[0].value.reset(); }
void make_error(RunRecord& record) { record.metrics[0].spec = rmse_metric(); }

const ResultCell& cell(const ResultTable& table, const std::string& row, const std::string& column) {
  for (size_t i = 0; i < table.rows.size(); ++i)
    for (size_t j = 0; j < table.columns.size(); ++j)
      if (table.rows[i].label == row && table.columns[j].label == column) return table.cells[i][j];
  FAIL("no cell " << row << ", " << column);
  throw std::logic_error("no cell");
}

}  // namespace

TEST_CASE("a cell is the mean and the deviation over its seeds, and tells how many escaped chance") {
  const std::vector<RunRecord> records{run("a", "t", 0, 0.5), run("a", "t", 1, 0.6), run("a", "t", 2, 0.7)};
  const ResultTable table = result_table(records, {});
  const ResultCell& only = cell(table, "a", "t");
  CHECK((only.mean == Approx(60) && only.deviation == Approx(10) && only.escaped == 2 && only.runs.size() == 3));
  CHECK_THAT(as_markdown(table), Contains("| `a` | 60.00 ± 10.00 (3), 2 of 3 above chance |"));
}

TEST_CASE("what did not end well is named and never averaged over, what is not there too") {
  std::vector<RunRecord> records{run("a", "t", 0, 0.7), run("a", "t", 1, 0), run("b", "t", 0, 0),
                                 run("a", "u", 0, 0.8)};
  for (const size_t i : {size_t{1}, size_t{2}}) forget_score(records[i]);
  records[1].status = "diverged";
  records[2].status = "out-of-memory";
  const ResultTable table = result_table(records, {});
  CHECK(cell(table, "a", "t").mean == Approx(70));
  const std::string text = as_markdown(table);
  CHECK_THAT(text, Contains("70.00 (1), diverged"));
  CHECK_THAT(text, Contains("| `b` | out-of-memory | no record |"));
  CHECK(as_json(table)["cells"][3]["missing"] == "no record");
}

TEST_CASE("two models never share a row, and one model has one") {
  std::vector<RunRecord> records{run("softmax", "listops", 0, 0.3),      run("softmax", "retrieval", 0, 0.6),
                                 run("softmax", "image-folder", 0, 0.5), run("softmax", "adult", 0, 0.7),
                                 run("softmax", "adult", 1, 0.8),        run("mrs-softmax", "adult", 0, 0.8)};
  const char* families[] = {"encoder", "dual-encoder", "vit", "ft-transformer", "ft-transformer", "ft-transformer"};
  for (size_t i = 0; i < records.size(); ++i) records[i].family = families[i];
  const auto labels = [&] {
    std::vector<std::string> result;
    for (const ResultRow& row : result_table(records, {}).rows) result.push_back(row.label);
    return result;
  };
  // Of records that keep no typed name: the family tells them apart, and the encoder of pairs is the encoder.
  CHECK(labels() ==
        std::vector<std::string>{"encoder/softmax", "vit/softmax", "ft-transformer/softmax", "mrs-softmax"});
  records[2].name = "deit";
  records[4].name = "ft";  // another seed of the model that record 3 calls softmax
  records[5].name = "mrs-ft";
  CHECK(labels() == std::vector<std::string>{"softmax", "deit", "ft", "mrs-ft"});
  const ResultTable table = result_table(records, {{"adult", "softmax", "a paper", 71.0}});
  CHECK(cell(table, "ft", "adult").runs.size() == 2);
  CHECK(cell(table, "ft", "adult").published->value == 71.0);
}

TEST_CASE("the best is marked only where a test supports it") {
  std::vector<RunRecord> records;
  for (const int64_t seed : {0, 1, 2, 3}) {
    const double noise = 0.01 * static_cast<double>(seed);
    records.push_back(run("a", "clear", seed, 0.8 + noise));
    records.push_back(run("b", "clear", seed, 0.6 + noise + (seed == 0 ? 0.002 : 0)));
    records.push_back(run("a", "close", seed, 0.80 + 3 * noise));
    records.push_back(run("b", "close", seed, 0.81 + (seed % 2 == 0 ? noise : -noise)));
  }
  records.push_back(run("a", "single", 0, 0.9));
  records.push_back(run("b", "single", 0, 0.6));
  const ResultTable table = result_table(records, {});
  CHECK((cell(table, "a", "clear").best && cell(table, "a", "clear").supported));
  CHECK((cell(table, "a", "close").best && !cell(table, "a", "close").supported));
  CHECK((cell(table, "a", "single").best && !cell(table, "a", "single").supported));
  CHECK_FALSE(cell(table, "b", "clear").best);
  CHECK_THAT(as_markdown(table), Contains("**81.50"));
  CHECK_THAT(as_latex(table), Contains("\\textbf{81.50 $\\pm$ 1.29 (4)}") && Contains("\\toprule"));
}

TEST_CASE("of errors the smallest is best") {
  std::vector<RunRecord> records{run("a", "t", 0, 0.4), run("b", "t", 0, 0.3)};
  for (RunRecord& record : records) make_error(record);
  const ResultTable table = result_table(records, {});
  CHECK((cell(table, "b", "t").best && cell(table, "b", "t").mean == 0.3 && cell(table, "b", "t").escaped == 1));
  CHECK_THAT(as_markdown(table), Contains("t, RMSE") && Contains("0.3000 (1)"));
}

TEST_CASE("columns and rows are named by the options that differ") {
  std::vector<RunRecord> records{run("a", "t", 0, 0.6), run("a", "t", 0, 0.7), run("a", "t", 0, 0.8)};
  records[0].plan = {{"data.length", 128}, {"model.dim", 8}, {"task", "t"}};
  records[1].plan = {{"data.length", 512}, {"model.dim", 8}, {"task", "t"}, {"data.new", 1}};
  records[2].plan = {{"data.length", 512}, {"model.dim", 16}, {"task", "t"}};
  const ResultTable table = result_table(records, {});
  CHECK(cell(table, "a", "t, length=128").mean == Approx(60));
  CHECK(cell(table, "a, dim=8", "t, length=512").mean == Approx(70));
  CHECK(cell(table, "a, dim=16", "t, length=512").mean == Approx(80));
  records[2].plan["model.dim"] = 8;
  CHECK_THROWS_AS(result_table(records, {}), UserError);  // the same seed of the same plan twice
}

TEST_CASE("published values stand beside ours with the difference") {
  const std::vector<RunRecord> records{run("a", "t", 0, 0.6), run("b", "t", 0, 0.5)};
  const ResultTable table = result_table(records, {{"t", "a", "a paper, Table 1", 62.5, Json::object()}});
  const std::string text = as_markdown(table);
  CHECK_THAT(text, Contains("62.50 (-2.50)") && Contains("published: a paper, Table 1"));
  CHECK(as_json(table)["cells"][0]["difference"].get<double>() == Approx(-2.5));
  const scratch::Folder folder;
  scratch::put(folder / "p.json", R"([{"task": "t", "model": "a", "value": 1.5, "source": "s"}])");
  CHECK(read_published(folder / "p.json").front().value == 1.5);
  scratch::put(folder / "q.json", R"([{"task": "t", "model": "a", "value": "1.5", "source": "s"}])");
  CHECK_THROWS_AS(read_published(folder / "q.json"), DataError);
}

TEST_CASE("models of other sizes are warned of") {
  std::vector<RunRecord> records{run("a", "t", 0, 0.6), run("b", "t", 0, 0.5)};
  records[1].parameters = 109;
  CHECK(result_table(records, {}).warnings.empty());
  records[1].parameters = 112;
  const ResultTable table = result_table(records, {});
  REQUIRE(table.warnings.size() == 1);
  CHECK_THAT(table.warnings[0], Contains("a has 100 parameters, b 112"));
}

TEST_CASE("models are compared over six tasks and more") {
  std::vector<RunRecord> records;
  for (int i = 0; i < 6; ++i)
    for (const char* model : {"a", "b"})
      records.push_back(run(model, "t" + std::to_string(i), 0, model[0] == 'a' ? 0.7 + 0.01 * i : 0.6));
  const ResultTable table = result_table(records, {});
  REQUIRE(table.comparisons.size() == 1);
  CHECK(table.comparisons[0].test.p == Approx(2.0 / 64));
  CHECK_THAT(as_markdown(table), Contains("the least possible is 0.0312"));
  records.resize(10);
  CHECK(result_table(records, {}).comparisons.empty());
}

TEST_CASE("CSV has a line for every cell, quoted where it must be") {
  std::vector<RunRecord> records{run("a", "t", 0, 0.6), run("a", "t", 0, 0.6)};
  records[0].plan = {{"data.length", 1}};
  records[1].plan = {{"data.length", 2}};
  const std::string text = as_csv(result_table(records, {}));
  CHECK_THAT(text, Contains("a,\"t, length=1\",%,60,,1,1,0,0,,,,,a-t-0.json\n"));
}

TEST_CASE("the page holds all runs, its links lead into it, and nothing comes from elsewhere") {
  std::vector<RunRecord> records{run("a<b", "t", 0, 0.6), run("a<b", "t", 1, 0.7), run("c", "u", 0, 0.6)};
  records[0].metrics.push_back({accuracy_metric(), "dev", 0.6});
  records[0].dev = {{1, {{"accuracy", 0.5}}}, {2, {{"accuracy", 0.6}}}};
  forget_score(records[2]);
  records[2].status = "diverged";
  const std::string page = as_html(result_table(records, {{"t", "a<b", "a \"paper\"", 65}}));
  CHECK_THAT(page, Contains("a&lt;b") && !Contains("a<b"));
  CHECK_THAT(page, Contains("65.00 ± 7.07 (2)") && Contains("published 65.00 (+0.00)") && Contains("diverged"));
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

TEST_CASE("records are read from files and folders, other JSON is passed over") {
  const scratch::Folder folder;
  const Json json{{"schema_version", 1}, {"status", "completed"},     {"task", "t"},   {"model", "a"},
                  {"accuracy", 0.75},    {"test", {{"examples", 4}}}, {"chance", 0.5}, {"plan", {{"model.dim", 8}}}};
  scratch::put(folder / "a.json", json.dump());
  scratch::put(folder / "b.json", "{\"name\": 1}");
  scratch::put(folder / "c.json", "no JSON");
  const auto records = read_run_records({folder.path().string()});
  REQUIRE(records.size() == 1);
  CHECK((records[0].score() == 0.75 && records[0].test->examples == 4 && records[0].plan["model.dim"] == 8));
  CHECK_THROWS_AS(read_run_records({(folder / "b.json").string()}), DataError);
  CHECK_THROWS_AS(read_run_records({(folder / "none").string()}), DataError);
}

TEST_CASE("what an experiment wants and has not is counted, in the experiment's order") {
  std::vector<RunRecord> records{run("b", "t", 0, 0), run("b", "t", 1, 0.6), run("a", "t", 0, 0), run("a", "t", 1, 0)};
  for (const size_t i : {0, 2, 3}) {
    records[i].path.clear();
    forget_score(records[i]);
    records[i].status.clear();
  }
  const ResultTable table = result_table(records, {{"t", "a", "a paper", 70, Json::object()}});
  REQUIRE(table.rows.size() == 2);
  CHECK(table.rows[0].label == "b");
  CHECK(cell(table, "b", "t").missing == 1);
  CHECK_THAT(as_markdown(table), Contains("60.00 (1), without record") && Contains("| `a` | 2 without record | 70.00"));
}

TEST_CASE("an average stands only where every cell of the row is whole") {
  std::vector<RunRecord> records{run("a", "t", 0, 0.6), run("a", "u", 0, 0.8), run("b", "t", 0, 0.5),
                                 run("b", "u", 0, 0.5)};
  records[3].status = "failed";
  records[3].message = "no disk";
  const ResultTable table =
      result_table(records, {{"t", "a", "p", 61, Json::object()}, {"average", "a", "p", 72.5, Json::object()}});
  CHECK(table.rows[0].average == Approx(70));
  CHECK(table.rows[0].published_average == Approx(72.5));
  CHECK_FALSE(table.rows[1].average);
  CHECK_THAT(as_markdown(table), Contains("| 70.00 | 72.50 |") && Contains("`b`, u, seed 0: failed: no disk"));
  for (RunRecord& record : records) make_error(record);
  CHECK_FALSE(result_table(records, {}).rows[0].average);
}

TEST_CASE("a column without any run is headed and rounded as its task is judged") {
  std::vector<RunRecord> records{run("a", "t", 0, 0)};
  records[0].path.clear();
  records[0].status.clear();
  records[0].metrics = {{rmse_metric(), "test", {}}};
  PublishedValue value{"t", "a", "a paper", 0.4671};
  value.metric = "rmse";
  const ResultTable table = result_table(records, {value});
  CHECK_THAT(as_markdown(table), Contains("| t, RMSE |") && Contains("| no record | 0.4671 |"));
  CHECK_THAT(as_latex(table), Contains("t (RMSE)"));
  CHECK_THAT(as_csv(table), Contains("a,t,RMSE,"));
  CHECK_THAT(as_html(table), Contains("<th>t, RMSE</th>") && Contains("published 0.4671"));
  value.metric = "accuracy";
  CHECK_FALSE(cell(result_table(records, {value}), "a", "t").published);
}

TEST_CASE("what a metric says of itself is what tables show") {
  std::vector<RunRecord> records{run("a", "t", 0, 3.21987), run("b", "t", 0, 2.5)};
  for (RunRecord& record : records) record.metrics[0].spec = {"bits_per_byte", "bits per byte", "bits/byte", false, 3};
  const ResultTable table = result_table(records, {});
  CHECK_THAT(as_markdown(table), Contains("| t, bits/byte |") && Contains("3.220 (1)"));
  CHECK(cell(table, "b", "t").best);
  CHECK(cell(table, "a", "t").escaped == 0);  // 3.2 is worse than the constant answer's 0.5
}

TEST_CASE("an average is over the tasks that the experiment names") {
  const std::vector<RunRecord> records{run("a", "t", 0, 0.6), run("a", "u", 0, 0.8), run("a", "hard", 0, 0.1)};
  CHECK(result_table(records, {}).rows[0].average == Approx(50));
  CHECK(result_table(records, {}, {"t", "u"}).rows[0].average == Approx(70));
}

TEST_CASE("a published value may be of runs with some options only") {
  std::vector<RunRecord> records{run("a", "t", 0, 0.6), run("a", "t", 0, 0.7)};
  records[0].plan = {{"attention.rates", {2, 8}}};
  records[1].plan = {{"attention.rates", {4}}};
  const scratch::Folder folder;
  scratch::put(folder / "published.json", R"([
    {"experiment": "table-4", "task": "t", "model": "a", "metric": "accuracy", "value": 65, "source": "S", "attention.rates": [4]},
    {"experiment": "table-4", "task": "t", "model": "a", "metric": "speed", "value": 1, "source": "S", "attention.rates": [2, 8]},
    {"experiment": "table-5", "task": "t", "model": "a", "value": 99, "source": "S", "attention.rates": [2, 8]}])");
  const std::vector<PublishedValue> published = read_published(folder / "published.json", "table-4");
  REQUIRE(published.size() == 2);
  const ResultTable table = result_table(records, published);
  CHECK_FALSE(cell(table, "a, rates=[2,8]", "t").published);  // a speed is no accuracy
  CHECK(cell(table, "a, rates=[4]", "t").published->value == 65);
  CHECK(read_published(folder / "published.json").size() == 3);
}

}  // namespace xformer::reporting::result_table_test
