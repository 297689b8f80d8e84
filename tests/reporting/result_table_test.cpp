// Records as tables: what is averaged, tested, marked, warned of and missing.
#include "reporting/result_table.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "core/error.h"
#include "made_records.h"
#include "reporting/result_formats.h"
#include "scratch.h"

namespace xformer::reporting::result_table_test {

using namespace made;
using Catch::Matchers::Contains;

TEST_CASE("a cell is the mean and the deviation over its seeds, and tells how many escaped chance") {
  const std::vector<RunRecord> records{run("a", "t", 0, 0.5), run("a", "t", 1, 0.6), run("a", "t", 2, 0.7)};
  const ResultTable table = result_table(records, {});
  const ResultCell& only = cell(table, "a", "t");
  CHECK((only.mean == Approx(60) && only.deviation == Approx(10) && only.escaped == 2 && only.runs.size() == 3));
  CHECK_THAT(as_markdown(table), Contains("| a | 60.00 ± 10.00 <sup>a</sup> |") &&
                                     Contains("<sup>a</sup> 2 of 3 above chance") && Contains("over 3 seeds"));
}

TEST_CASE("chance is explained as the columns have it, and not where nothing speaks of it") {
  const auto chance_of = [](const std::vector<RunRecord>& records) {
    const std::string text = as_markdown(result_table(records, {}));
    const size_t at = text.find("Above chance:");
    return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
  };
  RunRecord share = run("a", "t", 0, 0.9), bits = run("a", "u", 0, 0.4), far = run("b", "u", 0, 0.6);
  for (RunRecord* record : {&bits, &far}) record->metrics[0].spec = {"bits_per_byte", "bits/byte", "", false, 3};
  CHECK_THAT(chance_of({share}), Contains("95 % interval of a run's accuracy"));
  CHECK(chance_of({bits}).empty());  // better than the constant answer's 0.5, so no mark says anything
  CHECK(chance_of({bits, far}) == "Above chance: better than the constant answer.");
  CHECK_THAT(chance_of({share, bits}), Contains("answer's.") && !Contains("another metric"));
  CHECK_THAT(chance_of({share, bits, far}), Contains("accuracy lies above the constant answer's; in another metric"));
  // In percent, but no share of examples: it has no such interval and no such error.
  RunRecord gini = run("a", "v", 0, 0.2);
  gini.metrics[0].spec = {"gini", "Gini", "%", true, 2};
  CHECK(chance_of({gini}) == "Above chance: better than the constant answer.");
  CHECK((to_json(share)["test"].contains("accuracy_stderr") && !to_json(gini)["test"].contains("gini_stderr")));
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
  CHECK_THAT(text, Contains("| a | 70.00 <sup>a</sup> | 80.00 |") && Contains("<sup>a</sup> 1 diverged"));
  CHECK_THAT(text, Contains("| b | - <sup>b</sup> | - <sup>c</sup> |") && Contains("<sup>b</sup> 1 out-of-memory") &&
                       Contains("<sup>c</sup> no record"));
  CHECK(as_json(table)["cells"][3]["missing"] == "no record");
}

TEST_CASE("scores of all machines share a cell, costs those of one kind") {
  std::vector<RunRecord> records{run("a", "t", 0, 0.7), run("a", "t", 1, 0.8), run("b", "t", 0, 0.6),
                                 run("b", "t", 1, 0.7)};
  for (RunRecord& record : records) record.hardware = {{"device", "cpu"}}, record.train_seconds = 120;
  records[1].hardware = {{"device", "cuda:0"}, {"gpu", {{"name", "Fast"}}}};
  const ResultTable scores = result_table(records, {});
  CHECK(cell(scores, "a", "t").mean == Approx(75));
  CHECK((!scores.rows[0].time && scores.rows[1].time == Approx(2)));
  CHECK_THAT(as_markdown(scores), Contains("| a | 75.00 ± 7.07 | - |") && Contains("costs are of CPU and Fast"));
  const ResultTable times = result_table(records, {}, {.metric = "time"});
  CHECK((cell(times, "a", "t").runs.empty() && cell(times, "b", "t").mean == Approx(2)));
  CHECK_THAT(as_markdown(times), Contains("2 of different machines") && Contains("costs are of CPU and Fast"));
  records[1].hardware = records[0].hardware;
  CHECK_THAT(as_markdown(result_table(records, {})),
             Contains("| a | 75.00 ± 7.07 | 2.0 |") && !Contains("costs are of"));
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
  CHECK(cell(table, "ft", "adult").published.at(0).value == 71.0);
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
  CHECK_THAT(as_latex(table, LatexNumbers::kPlain), Contains("\\textbf{81.50 $\\pm$ 1.29}"));
}

TEST_CASE("of errors the smallest is best") {
  std::vector<RunRecord> records{run("a", "t", 0, 0.4), run("b", "t", 0, 0.3)};
  for (RunRecord& record : records) make_error(record);
  const ResultTable table = result_table(records, {});
  CHECK((cell(table, "b", "t").best && cell(table, "b", "t").mean == 0.3 && cell(table, "b", "t").escaped == 1));
  CHECK_THAT(as_markdown(table), Contains("t, RMSE") && Contains("| 0.3000 |"));
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
  CHECK_THAT(text, Contains("| 62.50 | -2.50 |") && Contains("published: a paper, Table 1"));
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
  CHECK_THAT(table.warnings[0], Contains("t (a has 100 parameters, b 112)"));
  // One sentence, however many tasks.
  for (const char* model : {"a", "b"}) records.push_back(run(model, "u", 0, 0.5));
  records[3].parameters = 200;
  REQUIRE(result_table(records, {}).warnings.size() == 1);
  CHECK_THAT(result_table(records, {}).warnings[0], Contains("b 112), u (a has 100 parameters, b 200)"));
}

TEST_CASE("models are compared over six tasks and more") {
  std::vector<RunRecord> records;
  for (int i = 0; i < 6; ++i)
    for (const char* model : {"a", "b"})
      records.push_back(run(model, "t" + std::to_string(i), 0, model[0] == 'a' ? 0.7 + 0.01 * i : 0.6));
  const ResultTable table = result_table(records, {});
  REQUIRE(table.comparisons.size() == 1);
  CHECK(table.comparisons[0].test.p == Approx(2.0 / 64));
  CHECK_THAT(as_markdown(table, {.tests = true}), Contains("| a | b | 6 | 0.0312 | 0.0312 | 0.0312 |"));
  records.resize(10);
  CHECK(result_table(records, {}).comparisons.empty());
}

TEST_CASE("records are read from files and folders, other JSON is passed over") {
  const scratch::Folder folder;
  const Json json{{"schema_version", 1}, {"status", "completed"},     {"task", "t"},   {"model", "a"},
                  {"accuracy", 0.75},    {"test", {{"examples", 4}}}, {"chance", 0.5}, {"plan", {{"model.dim", 8}}}};
  scratch::put(folder / "a.json", json.dump());
  scratch::put(folder / "b.json", "{\"name\": 1}");
  std::vector<std::string> notes;
  CHECK(read_run_records({folder.path().string()}, notes).size() == 1);
  CHECK(notes.empty());
  // What may have been a record is named.
  scratch::put(folder / "c.json", json.dump().substr(0, 50));
  std::filesystem::create_directory(folder / "run");
  scratch::put(folder / "run/record.json", "{}");
  const auto records = read_run_records({folder.path().string()}, notes);
  REQUIRE(records.size() == 1);
  CHECK((records[0].score() == 0.75 && records[0].test->examples == 4 && records[0].plan["model.dim"] == 8));
  CHECK(notes == std::vector<std::string>{(folder / "c.json").string() + ": damaged, and left out",
                                          (folder / "run/record.json").string() + ": damaged, and left out"});
  CHECK_THROWS_AS(read_run_records({(folder / "b.json").string()}, notes), DataError);
  CHECK_THROWS_AS(read_run_records({(folder / "none").string()}, notes), DataError);
  CHECK_THROWS_WITH(read_run_records({(folder / "run").string()}, notes), Contains("record.json: damaged"));
}

TEST_CASE("the last training loss is the record's own, or that of the log beside an older record") {
  const scratch::Folder folder;
  Json json{{"schema_version", 2}, {"status", "completed"}, {"task", "t"}, {"model", "a"}};
  const auto loss = [&](const std::string& log) {
    scratch::put(folder / "record.json", json.dump());
    scratch::put(folder / "log.jsonl", log);
    std::vector<std::string> notes;
    const auto records = read_run_records({folder.path().string()}, notes);
    REQUIRE(records.size() == 1);
    ResultCell cell;
    cell.runs = {records.data()};
    return mean_of(cell, "train_loss");
  };
  const std::string line = R"({"event":"train","step":8,"loss":0.25,"accuracy":1.0})";
  CHECK_FALSE(loss(""));
  CHECK(loss(R"({"event":"train","step":4,"loss":0.5})"
             "\n" +
             line +
             "\n"
             R"({"event":"test","loss":3.0})") == 0.25);
  CHECK_FALSE(loss(line + "\n"
                          R"({"event":"train","step":9,"loss":null})"));
  CHECK_FALSE(loss(line + "\n"
                          R"({"event":"train","step":9,"lo)"));
  json["train"] = {{"step", 8}, {"loss", 0.125}};
  CHECK(loss(line) == 0.125);
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
  CHECK_THAT(as_markdown(table), Contains("60.00 <sup>a</sup>") && Contains("<sup>a</sup> 1 without record") &&
                                     Contains("| a | - <sup>b</sup> | 70.00 |") &&
                                     Contains("<sup>b</sup> 2 without record"));
}

TEST_CASE("an average stands only where every cell of the row is whole") {
  std::vector<RunRecord> records{run("a", "t", 0, 0.6), run("a", "u", 0, 0.8), run("b", "t", 0, 0.5),
                                 run("b", "u", 0, 0.5)};
  records[3].status = "failed";
  records[3].message = "no disk";
  const ResultTable table =
      result_table(records, {{"t", "a", "p", 61, Json::object()}, {"average", "a", "p", 72.5, Json::object()}});
  CHECK(table.rows[0].average == Approx(70));
  CHECK(table.rows[0].published_average.at(0).value == 72.5);
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
  CHECK_THAT(as_markdown(table), Contains("| t, RMSE |") && Contains("| - <sup>a</sup> | 0.4671 |"));
  CHECK_THAT(as_latex(table, LatexNumbers::kSiunitx), Contains("t (RMSE)"));
  CHECK_THAT(as_csv(table), Contains("a,t,RMSE,"));
  CHECK_THAT(as_html(table), Contains("<th>t, RMSE</th>") && Contains(">0.4671</td>"));
  value.metric = "accuracy";
  CHECK(cell(result_table(records, {value}), "a", "t").published.empty());
}

TEST_CASE("what a run reached in another metric than its column's is no score there") {
  std::vector<RunRecord> records{run("a", "t", 0, 0.3), run("a", "t", 1, 0.6), run("b", "t", 0, 0.5)};
  make_error(records[0]);
  const ResultTable table = result_table(records, {});
  CHECK(cell(table, "a", "t").mean == Approx(60));
  CHECK(cell(table, "a", "t").failed == std::vector<const RunRecord*>{&records[0]});
  CHECK_THAT(as_markdown(table), Contains("| t, % |") && Contains("1 not measured") && !Contains("RMSE"));
}

TEST_CASE("what a metric says of itself is what tables show") {
  std::vector<RunRecord> records{run("a", "t", 0, 3.21987), run("b", "t", 0, 2.5)};
  for (RunRecord& record : records) record.metrics[0].spec = {"bits_per_byte", "bits per byte", "bits/byte", false, 3};
  const ResultTable table = result_table(records, {});
  CHECK_THAT(as_markdown(table), Contains("| t, bits/byte |") && Contains("| 3.220 <"));
  CHECK(cell(table, "b", "t").best);
  CHECK(cell(table, "a", "t").escaped == 0);  // 3.2 is worse than the constant answer's 0.5
}

TEST_CASE("a published average stands beside an average alone") {
  const std::vector<RunRecord> records{run("a", "t", 0, 0.6)};
  const std::vector<PublishedValue> published{{"t", "a", "p", 61}, {kAverage, "a", "p", 72.5}};
  CHECK(result_table(records, published).rows[0].published_average.empty());
  CHECK(result_table(records, published, {.all_published = true}).rows[0].published_average.size() == 1);
}

TEST_CASE("an average is over the tasks that the experiment names") {
  const std::vector<RunRecord> records{run("a", "t", 0, 0.6), run("a", "u", 0, 0.8), run("a", "hard", 0, 0.1)};
  CHECK(result_table(records, {}).rows[0].average == Approx(50));
  CHECK(result_table(records, {}, {.average_over = std::vector<std::string>{"t", "u"}}).rows[0].average == Approx(70));
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
  CHECK(cell(table, "a, rates=[2,8]", "t").published.empty());  // a speed is no accuracy
  CHECK(cell(table, "a, rates=[4]", "t").published.at(0).value == 65);
  CHECK(read_published(folder / "published.json").size() == 3);
}

}  // namespace xformer::reporting::result_table_test
