// Which records a table takes of a folder that holds more than it can show.
#include "reporting/record_selection.h"

#include <catch2/catch.hpp>

#include "core/error.h"
#include "reporting/result_table.h"

namespace xformer::reporting::record_selection_test {

using Catch::Matchers::Contains;

namespace {

RunRecord run(const std::string& place, const std::string& task, int64_t seed, const std::string& date) {
  RunRecord record;
  record.path = Path(place) / "record.json";
  record.task = task;
  record.model = record.attention = "linear";
  record.protocol = "p";
  record.status = "completed";
  record.seed = seed;
  record.date = date;
  record.metrics = {{accuracy_metric(), "test", 0.5, 0.1}};
  record.plan = {{"model.dim", 64}};
  return record;
}

std::vector<std::string> places(const std::vector<RunRecord>& records) {
  std::vector<std::string> result;
  for (const RunRecord& record : records) result.push_back(record.path.parent_path());
  return result;
}

}  // namespace

TEST_CASE("of several records of one run the newest that completed counts, unless a person says otherwise") {
  std::vector<RunRecord> records{run("runs/a", "t", 0, "2026-01-01"), run("runs/b", "t", 0, "2026-01-03"),
                                 run("runs/c", "t", 0, "2026-01-04"), run("runs/d", "t", 1, "2026-01-02")};
  records[2].status = "failed";
  std::vector<std::string> notes;
  CHECK(places(select_records(records, {}, notes)) == std::vector<std::string>{"runs/b", "runs/d"});
  REQUIRE(notes.size() == 1);
  CHECK_THAT(notes[0], Contains("2 of 4 records are left out") && Contains("runs/b/record.json"));
  CHECK_THROWS_WITH(select_records(records, {"refuse", ""}, notes),
                    Contains("seed 0 of linear on t is there twice") && Contains("--duplicates newest"));
  const std::vector<RunRecord> all = select_records(records, {"all", ""}, notes);
  CHECK(all.size() == 4);
  const ResultTable table = result_table(all, {});
  std::vector<std::string> rows;
  for (const ResultRow& row : table.rows) rows.push_back(row.label);
  CHECK(rows == std::vector<std::string>{"linear (runs/a)", "linear", "linear (runs/c)"});
  // Where several lie in one folder their files have the names.
  std::vector<RunRecord> flat(3, records[0]);
  for (size_t i = 0; i < flat.size(); ++i) flat[i].path = fmt::format("runs/{}.json", i);
  flat[0].date = "2026-01-09";
  flat = select_records(flat, {"all", ""}, notes);
  rows.clear();
  const ResultTable of_files = result_table(flat, {});
  for (const ResultRow& row : of_files.rows) rows.push_back(row.label);
  CHECK(rows == std::vector<std::string>{"linear", "linear (runs/1.json)", "linear (runs/2.json)"});
  CHECK_THROWS_WITH(select_records(records, {"oldest", ""}, notes), Contains("--duplicates: unknown rule 'oldest'"));
}

TEST_CASE("runs are judged by another metric of theirs where their task has it") {
  const MetricSpec auc{"auc", "AUC", "%", true, 2};
  std::vector<RunRecord> records{run("runs/a", "two", 0, "1"), run("runs/b", "two", 1, "1"),
                                 run("runs/c", "seven", 0, "1")};
  records[0].metrics.insert(records[0].metrics.begin(), {accuracy_metric(), "dev", 0.6});
  records[0].metrics.push_back({auc, "dev", 0.7});
  records[0].metrics.push_back({auc, "test", 0.8, 0.5});
  const std::vector<RunRecord> judged = judged_by(records, "auc");
  CHECK(places(judged) == std::vector<std::string>{"runs/a", "runs/b"});
  CHECK(judged[0].score() == 0.8);
  CHECK(judged[0].headline("dev")->value == 0.7);
  CHECK(judged[0].metrics.size() == 4);
  CHECK_FALSE(judged[1].score());  // its accuracy is no AUC
  const ResultTable table = result_table(judged, {});
  REQUIRE(table.columns.size() == 1);
  CHECK(table.columns[0].metric.name == "auc");
  CHECK(table.cells[0][0].mean == 80);
  CHECK(table.cells[0][0].escaped == 1);
  CHECK(judged_by(records, "accuracy").size() == 3);
  CHECK_THROWS_WITH(judged_by(records, "acu"), Contains("--metric: unknown metric 'acu'; did you mean 'auc'?"));
  CHECK_THROWS_WITH(judged_by({}, "auc"), Contains("known: speed, memory"));
}

TEST_CASE("runs that differ in an option are no duplicates") {
  std::vector<RunRecord> records{run("runs/a", "t", 0, "1"), run("runs/b", "t", 0, "2")};
  records[1].plan["model.dim"] = 32;
  std::vector<std::string> notes;
  CHECK(select_records(records, {"refuse", ""}, notes).size() == 2);
  CHECK(notes.empty());
  // How much is computed at once makes no other run.
  records[1].plan = {{"model.dim", 64}, {"training.micro_batch", 4}};
  records[0].plan["training.micro_batch"] = 0;
  CHECK(select_records(records, {}, notes).size() == 1);
}

TEST_CASE("runs that began with weights and runs from scratch share no row, and are no duplicates of each other") {
  std::vector<RunRecord> records{run("runs/a", "t", 0, "1"), run("runs/b", "t", 0, "2"), run("runs/c", "t", 1, "3"),
                                 run("runs/d", "t", 2, "4")};
  const auto rows = [&] {
    std::vector<std::string> result;
    for (const RecordLabel& label : labels_of(records)) result.push_back(label.row);
    return result;
  };
  // A program that knew of no weights wrote runs from scratch.
  records[1].plan["training.init_sha256"] = std::string(64, 'a');
  records[2].plan["training.init_sha256"] = std::string(64, 'b');
  records[3].plan["training.init_sha256"] = "";
  const std::vector<std::string> both{"linear, init=scratch", "linear, init=weights", "linear, init=weights",
                                      "linear, init=scratch"};
  CHECK(rows() == both);
  for (size_t i = 0; i < records.size(); ++i) records[i].plan_hash = std::to_string(i);
  CHECK(rows() == both);
  std::vector<std::string> notes;
  CHECK(select_records(records, {"refuse", ""}, notes).size() == 4);
  // The stage before has a seed of its own, and so its weights: those are no setting.
  records.erase(records.begin());
  records.pop_back();
  CHECK(rows() == std::vector<std::string>(2, "linear"));
}

TEST_CASE("a row and a column hold runs of one plan, whichever program wrote them") {
  const auto rows = [](const std::vector<RunRecord>& records) {
    std::vector<std::string> result;
    for (const RecordLabel& label : labels_of(records)) result.push_back(label.column + ": " + label.row);
    return result;
  };
  std::vector<RunRecord> records{run("runs/a", "t", 0, "1"), run("runs/b", "t", 1, "2"), run("runs/c", "t", 2, "3")};
  // An option that the first program did not know: the others differ in it.
  records[1].plan["attention.new"] = 1;
  records[2].plan["attention.new"] = 2;
  CHECK(rows(records) == std::vector<std::string>{"t: linear", "t: linear, new=1", "t: linear, new=2"});
  // All that know it agree. Hashes leave out an option at the value that it always had: these are of one plan,
  records[2].plan["attention.new"] = 1;
  for (RunRecord& record : records) record.plan_hash = "h";
  CHECK(rows(records) == std::vector<std::string>(3, "t: linear"));
  // and here the later runs have another value.
  records[1].plan_hash = records[2].plan_hash = "i";
  CHECK(rows(records) == std::vector<std::string>{"t: linear", "t: linear, new=1", "t: linear, new=1"});
  for (const size_t later : {size_t{1}, size_t{2}}) {
    records[later].plan.erase("attention.new");
    records[later].plan["data.new"] = true;
  }
  CHECK(rows(records) == std::vector<std::string>{"t: linear", "t, new=true: linear", "t, new=true: linear"});
  // How much is computed at once makes no other plan, though another hash.
  for (RunRecord& record : records) record.plan = {{"model.dim", 64}};
  records[0].plan["training.micro_batch"] = 4;
  CHECK(rows(records) == std::vector<std::string>(3, "t: linear"));
}

TEST_CASE("a record that lacks an option stands in the row of those that have it, where their plan is one") {
  std::vector<RunRecord> records{run("runs/a", "t", 0, "1"), run("runs/b", "t", 1, "2"), run("runs/c", "t", 0, "3")};
  records[0].plan_hash = records[1].plan_hash = "h", records[2].plan_hash = "i";
  records[1].plan["attention.new"] = 0, records[1].plan["data.new"] = 0;
  records[2].plan["attention.new"] = 7, records[2].plan["data.new"] = 0;
  std::vector<std::string> rows;
  for (const RecordLabel& label : labels_of(records)) rows.push_back(label.column + ": " + label.row);
  CHECK(rows == std::vector<std::string>{"t: linear, new=0", "t: linear, new=0", "t: linear, new=7"});
}

TEST_CASE("what a search chose names no row: each column has its own best") {
  std::vector<RunRecord> records;
  for (const int width : {32, 64})
    for (const int pairs : {4, 8}) {
      RunRecord one = run(fmt::format("runs/{}-{}", width, pairs), "t", 0, "2026-01-01");
      const double rate = pairs == 4 && width == 64 ? 0.01 : 0.003;
      one.plan = {{"data.pairs", pairs}, {"model.dim", width}, {"training.learning_rate", rate}};
      one.search = {{"chosen", {{"training.learning_rate", rate}}}};
      records.push_back(one);
    }
  const auto rows = [&] {
    std::vector<std::string> result;
    for (const RecordLabel& label : labels_of(records)) result.push_back(label.row);
    return result;
  };
  CHECK(rows() == std::vector<std::string>{"linear, dim=32", "linear, dim=32", "linear, dim=64", "linear, dim=64"});
  // A rate that a person gave is a name.
  for (RunRecord& record : records) record.search = {};
  CHECK(rows()[0] == "linear, dim=32, learning_rate=0.003");
}

TEST_CASE("runs whose option a search chose and runs with a value of their own share no row") {
  std::vector<RunRecord> records{run("runs/a", "t", 0, "1"), run("runs/b", "t", 1, "2"), run("runs/c", "t", 2, "3")};
  const auto rows = [&] {
    std::vector<std::string> result;
    for (const RecordLabel& label : labels_of(records)) result.push_back(label.row);
    return result;
  };
  for (RunRecord& record : records) record.plan["training.learning_rate"] = 0.01;
  CHECK(rows() == std::vector<std::string>(3, "linear"));
  // The same value or another one: it was looked for.
  records[1].search = records[2].search = {{"chosen", {{"training.learning_rate", 0.01}}}};
  records[2].plan["training.learning_rate"] = 0.003;
  CHECK(rows() == std::vector<std::string>{"linear, learning_rate=0.01", "linear, learning_rate=searched",
                                           "linear, learning_rate=searched"});
  // What a search will choose for a run that is not there yet nobody knows: it belongs to those that were searched.
  records[0].plan.erase("training.learning_rate");
  CHECK(rows() == std::vector<std::string>(3, "linear"));
}

TEST_CASE("a row of an ablation says what it changed, and what the others have is said once") {
  std::vector<RunRecord> records;
  const auto add = [&](double rate, int width) {
    RunRecord one = run(fmt::format("runs/{}-{}", rate, width), "t", 0, "1");
    one.plan = {{"training.learning_rate", rate}, {"model.dim", width}};
    records.push_back(one);
  };
  const auto rows = [&] {
    std::vector<std::string> result;
    for (const RecordLabel& label : labels_of(records)) result.push_back(label.row);
    return result;
  };
  add(0.1, 64), add(0.2, 64), add(0.1, 32);
  CHECK(rows()[0] == "linear, learning_rate=0.1, dim=64");
  CHECK(labels_of(records)[0].unsaid.empty());
  // A rate of half of the plans is not that of most.
  add(0.3, 64);
  CHECK(rows() == std::vector<std::string>{"linear, learning_rate=0.1", "linear, learning_rate=0.2",
                                           "linear, learning_rate=0.1, dim=32", "linear, learning_rate=0.3"});
  CHECK(labels_of(records)[2].unsaid == "linear, dim=64");
  add(0.1, 16);
  CHECK(rows() == std::vector<std::string>{"linear", "linear, learning_rate=0.2", "linear, dim=32",
                                           "linear, learning_rate=0.3", "linear, dim=16"});
  // Seeds make no plan.
  for (int64_t seed = 1; seed < 9; ++seed) {
    records.push_back(records[1]);
    records.back().seed = seed;
  }
  CHECK(rows()[0] == "linear");
  const ResultTable table = result_table(records, {});
  REQUIRE(table.notes.size() == 1);
  CHECK(table.notes[0] == "Where a row says nothing else: linear, dim=64, learning_rate=0.1.");
  // Of one task's runs alone.
  records.push_back(run("runs/u", "u", 0, "1"));
  records.back().plan = {{"training.learning_rate", 0.5}, {"model.dim", 8}};
  CHECK(result_table(records, {}).notes[0] == "Where a row says nothing else: linear, dim=64, learning_rate=0.1 on t.");
}

TEST_CASE("a task is chosen by its name, and missing names are told") {
  const std::vector<RunRecord> records{run("a", "uea/X", 0, "1"), run("b", "uea/Y", 0, "1"), run("c", "text", 0, "1")};
  std::vector<std::string> notes;
  CHECK(places(select_records(records, {"newest", "uea/*"}, notes)) == std::vector<std::string>{"a", "b"});
  CHECK_THROWS_WITH(select_records(records, {"newest", "image"}, notes), Contains("records of uea/X, uea/Y, text"));
  CHECK_THROWS_WITH(require_one_column(records, "curves are"), Contains("uea/X, uea/Y, text; --task NAME"));
  CHECK_NOTHROW(require_one_column({records[0]}, "curves are"));
}

TEST_CASE("records of one task under two options of its data, or two protocols, are no one column") {
  std::vector<RunRecord> records{run("a", "t", 0, "1"), run("b", "t", 1, "1")};
  records[0].plan["data.length"] = 250;
  records[1].plan["data.length"] = 77;
  CHECK_THROWS_WITH(
      require_one_column(records, "curves are"),
      "curves are of one task under one protocol and options; these are records of t, length=250 and t, length=77");
  records[1].plan["data.length"] = 250;
  records[1].model = records[1].attention = "luna";  // a row of its own
  CHECK_NOTHROW(require_one_column(records, "curves are"));
  records[1].protocol = "q";
  CHECK_THROWS_AS(require_one_column(records, "curves are"), UserError);
}

TEST_CASE("runs of one plan on other data are of another column, and no seeds of one cell") {
  std::vector<RunRecord> records{run("a", "t", 0, "1"), run("b", "t", 1, "1"), run("c", "t", 1, "2"),
                                 run("", "t", 2, "1")};
  for (RunRecord& record : records) record.plan_hash = "x", record.data = RunRecord::Data{"0123456789", "", {}, {}, {}};
  records[2].data->sha256 = "9876543210";
  records[3].path.clear(), records[3].data.reset();
  std::vector<std::string> columns, notes;
  for (const RecordLabel& label : labels_of(records)) columns.push_back(label.column);
  CHECK(columns ==
        std::vector<std::string>{"t, data=01234567", "t, data=01234567", "t, data=98765432", "t, data=01234567"});
  CHECK(select_records(records, {}, notes).size() == 4);
  records[2].data = records[0].data;
  CHECK((labels_of(records)[0].column == "t" && select_records(records, {}, notes).size() == 3));
}

TEST_CASE("runs of part of the data are never set beside others") {
  std::vector<RunRecord> records{run("a", "t", 0, "1"), run("b", "t", 1, "1")};
  records[1].not_comparable = "of part of the data";
  std::vector<std::string> notes;
  CHECK(places(select_records(records, {}, notes)) == std::vector<std::string>{"a"});
  CHECK_THAT(notes.at(0), Contains("1 records of part of the data"));
  records[0].not_comparable = "of part of the data";
  CHECK(select_records(records, {}, notes).size() == 2);
}

}  // namespace xformer::reporting::record_selection_test
