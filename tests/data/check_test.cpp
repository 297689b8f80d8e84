// `data check` finds each fault once, names where it is and tells faults from oddities.
#include <catch2/catch.hpp>

#include "core/error.h"
#include "data/check.h"
#include "fake_source.h"
#include "listops_text.h"
#include "scratch.h"

namespace xformer::check_test {

using namespace data;
using Catch::Matchers::Contains;
using scratch::Folder;

CheckReport report_on(const Path& folder) { return check_listops(Json::object(), {folder, folder, false}, {}); }

CheckItem item(const CheckReport& report, const std::string& words) {
  for (const CheckItem& candidate : report.items)
    if (candidate.check.find(words) != std::string::npos) return candidate;
  return {"no such check", CheckOutcome::kFailed, ""};
}

std::vector<std::string> failed(const CheckReport& report) {
  std::vector<std::string> names;
  for (const CheckItem& candidate : report.items)
    if (candidate.outcome == CheckOutcome::kFailed) names.push_back(candidate.check);
  return names;
}

using Names = std::vector<std::string>;

TEST_CASE("correct files pass, and sizes other than the published ones are a note") {
  const Folder folder;
  listops_text::put_splits(folder.path());
  const CheckReport report = report_on(folder.path());
  CHECK(report.passed);
  CHECK(failed(report).empty());
  CHECK(item(report, "published").outcome == CheckOutcome::kNote);
  CHECK_THAT(item(report, "published").detail, Contains("train has 3 examples, published 96,000"));
  const Json& train = report.splits.at("train");
  CHECK(train["examples"] == 3);
  CHECK(train["labels"] == Json{0, 0, 0, 1, 1, 0, 0, 1, 0, 0});
  CHECK(train["length"] == Json{{"min", 1}, {"median", 4.0}, {"mean", 4.0}, {"max", 7}});
  CHECK(report.splits.at("test")["length"]["median"] == 2.5);
  const Json json = report.json();
  CHECK(json["passed"] == true);
  CHECK(json["checks"].size() == report.items.size());
  CHECK(json["checks"][0]["passed"] == true);
}

TEST_CASE("facts of a split tell what the best constant answer loses") {
  // Labels 0 to 9 and 0 to 4: ten classes, five of them twice in fifteen.
  const fake::Source source(std::vector<int64_t>(15, 2));
  const double twice = 2.0 / 15, once = 1.0 / 15;
  CHECK(split_facts(source, Split::kTrain)["label_entropy"].get<double>() ==
        Approx(-5 * twice * std::log(twice) - 5 * once * std::log(once)));
}

TEST_CASE("a label that is not the value of its expression fails with file and line") {
  const Folder folder;
  listops_text::put_splits(folder.path());
  scratch::put(folder / "basic_val.tsv", "Source\tTarget\n1\t1\n[MED 1 4 ]\t3\n[SM 1 1 ]\t3\n");
  const CheckReport report = report_on(folder.path());
  CHECK_FALSE(report.passed);
  CHECK(failed(report) == Names{"every label is the value of its expression", "no expression occurs in two splits"});
  CHECK_THAT(item(report, "every label").detail,
             Contains("2 are not") && Contains("basic_val.tsv:3: labelled 3, evaluates to 2"));
}

TEST_CASE("an incomplete expression fails with file and line") {
  const Folder folder;
  listops_text::put_splits(folder.path());
  scratch::put(folder / "basic_val.tsv", "Source\tTarget\n[MED 1 4\t2\n");
  const CheckReport report = report_on(folder.path());
  CHECK(failed(report) == Names{"every expression is complete"});
  CHECK_THAT(item(report, "complete").detail, Contains("basic_val.tsv:2: expected ']'"));
}

TEST_CASE("rows in two splits fail, rows twice in one are a note") {
  const Folder folder;
  listops_text::put_splits(folder.path());
  scratch::put(folder / "basic_val.tsv", "Source\tTarget\n9\t9\n9\t9\n");
  const CheckReport within = report_on(folder.path());
  CHECK(within.passed);
  CHECK_THAT(item(within, "twice in its split").detail, Contains("basic_val.tsv:3 repeats basic_val.tsv:2"));
  scratch::put(folder / "basic_val.tsv", "Source\tTarget\n7\t7\n");
  const CheckReport across = report_on(folder.path());
  CHECK(failed(across) == Names{"no expression occurs in two splits"});
  CHECK_THAT(item(across, "in two splits").detail, Contains("1 do; basic_val.tsv:2 repeats basic_train.tsv:4"));
}

TEST_CASE("an unreadable split fails with its message while the others are checked") {
  const Folder folder;
  listops_text::put_splits(folder.path());
  scratch::put(folder / "basic_train.tsv", "Source\tTarget\n7\t7\n7\tx\n");
  const CheckReport report = report_on(folder.path());
  CHECK(failed(report) == Names{"train is there and readable"});
  CHECK_THAT(item(report, "train is there").detail, Contains("basic_train.tsv:3:") && Contains("label from 0 to 9"));
  CHECK(report.splits.at("test")["examples"] == 2);
}

TEST_CASE("splits without a readable row are judged by nothing, and what is judged says how much it saw") {
  const Folder folder;
  for (const char* part : {"train", "val", "test"})
    scratch::put(folder / fmt::format("basic_{}.tsv", part), "Source\tTarget\nbad\n");
  const CheckReport nothing = report_on(folder.path());
  CHECK(item(nothing, "every label").check == "no such check");
  scratch::put(folder / "basic_test.tsv", "Source\tTarget\n7\t7\nbad\n");
  CHECK(item(report_on(folder.path()), "every label").detail == "all of the 1 rows that could be read are");
}

TEST_CASE("the arena's own files are found as its release has them") {
  const Folder folder;
  const Path place = folder / "lra_release-listops" / "lra_release" / "listops-1000";
  std::filesystem::create_directories(place);
  listops_text::put_splits(place);
  CHECK(report_on(folder.path()).passed);
}

TEST_CASE("a missing split is a note and a folder without data a DataError") {
  const Folder folder;
  CHECK_THROWS_AS(report_on(folder.path()), DataError);
  scratch::put(folder / "test_d20s.tsv", "3\t[SM 1 2 ]\n");
  const CheckReport report = report_on(folder.path());
  CHECK(report.passed);
  CHECK(item(report, "train is there").outcome == CheckOutcome::kNote);
  CHECK_THAT(item(report, "published").detail, Contains("test has 1 examples, published 10,000"));
}

TEST_CASE("generated data passes its own check") {
  const Folder cache;
  const Json options{{"train_examples", 200}, {"dev_examples", 20}, {"test_examples", 10}};
  const CheckReport report = check_listops(options, {{}, cache.path(), false}, {});
  CHECK(report.passed);
  CHECK(report.splits.at("train")["examples"] == 200);
}

TEST_CASE("the real files pass") {
  const auto folder = scratch::real_data("listops");
  if (!folder) {
    WARN("skipped: XFORMER_TEST_DATA names no folder with listops/");
    SUCCEED();
    return;
  }
  const CheckReport arena = report_on(*folder / "lra_script_output"), original = report_on(*folder);
  CHECK(arena.passed);
  CHECK(arena.splits.at("train")["length"]["mean"].get<double>() == Approx(1041.142));
  CHECK(original.passed);
  CHECK(item(original, "published").outcome == CheckOutcome::kPassed);
}

}  // namespace xformer::check_test
