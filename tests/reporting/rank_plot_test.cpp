#include "reporting/rank_plot.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "core/error.h"
#include "reporting/svg_plot.h"

namespace xformer::reporting {

using Catch::Matchers::Contains;

namespace {

RunRecord result(const std::string& model, size_t task, double score) {
  RunRecord record;
  record.path = fmt::format("{}-{}.json", model, task);
  record.task = fmt::format("t{}", task);
  record.model = model;
  record.status = "completed";
  record.metrics = {{accuracy_metric(), "test", score}};
  return record;
}

// a beats b and c on every task; b and c take turns, but for one tie.
std::vector<RunRecord> eight_tasks() {
  std::vector<RunRecord> records;
  for (size_t task = 0; task < 8; ++task) {
    const double small = 0.001 * static_cast<double>(task);
    records.push_back(result("a", task, 0.9 + small));
    records.push_back(result("b", task, 0.5 + (task % 2 == 0 ? 2 * small : -3 * small)));
    records.push_back(result("c", task, 0.5));
  }
  return records;
}

}  // namespace

TEST_CASE("mean ranks count from the best, ties share theirs") {
  const std::vector<RunRecord> records = eight_tasks();
  const std::vector<double> ranks = mean_ranks(result_table(records, {}));
  // b: a tie (2.5), three times before c, four times behind.
  CHECK(ranks == std::vector<double>{1, (2.5 + 3 * 2 + 4 * 3) / 8, (2.5 + 3 * 3 + 4 * 2) / 8});
  // Scores that only rounding tells apart are equal.
  std::vector<RunRecord> rounded{result("a", 0, 0.1 + 0.2), result("b", 0, 0.3)};
  CHECK(mean_ranks(result_table(rounded, {})) == std::vector<double>{1.5, 1.5});
  std::vector<RunRecord> errors = records;
  for (RunRecord& record : errors) record.metrics[0].spec = rmse_metric();
  CHECK(mean_ranks(result_table(errors, {}))[0] == 3);
}

TEST_CASE("bars join what tests do not tell apart") {
  std::vector<RunRecord> records = eight_tasks();
  const ResultTable table = result_table(records, {});
  const std::string svg = rank_plot_svg(table);
  CHECK_THAT(svg, Contains("a 1.00") && Contains("b 2.56") && Contains("c 2.44") && Contains("over 8 tasks"));
  // One bar, over b and c: a differs from both with p = 2 / 2^8 < 0.05 / 3.
  size_t bars = 0;
  for (size_t at = svg.find("stroke-width='4'"); at != std::string::npos; at = svg.find("stroke-width='4'", at + 1))
    ++bars;
  CHECK(bars == 1);
  CHECK_THAT(svg, !Contains("could tell no two"));
  // Of six tasks, 2 / 2^6 times three pairs is the least that a result could come to.
  const std::vector<RunRecord> six(records.begin(), records.begin() + 18);
  CHECK_THAT(rank_plot_svg(result_table(six, {})), Contains("could tell no two") && Contains("3 pairs is 0.09"));
  // Without one of its results a model has no rank.
  records.pop_back();
  const std::vector<double> ranks = mean_ranks(result_table(records, {}));
  CHECK(std::isnan(ranks[2]));
  CHECK(ranks[1] == 2);
  records.resize(15);
  CHECK_THROWS_WITH(rank_plot_svg(result_table(records, {})), Contains("needs 6 tasks at least, there are 5"));
}

TEST_CASE("the front are those that none beats both ways") {
  const std::vector<PlotPoint> points{
      {.x = 1, .y = 9}, {.x = 2, .y = 9}, {.x = 3, .y = 5}, {.x = 4, .y = 6}, {.x = 5, .y = 1}};
  const auto of = [](const std::vector<PlotPoint>& front) {
    std::vector<double> x;
    for (const PlotPoint& point : front) x.push_back(point.x);
    return x;
  };
  CHECK(of(pareto_front(points, false)) == std::vector<double>{2, 4, 5});
  CHECK(of(pareto_front(points, true)) == std::vector<double>{1});
  Plot plot;
  plot.discs = true;
  plot.series = {{"one", points}};
  CHECK_THAT(as_svg(plot), !Contains("stroke-dasharray='5 4'"));
  plot.front = pareto_front(points, false);
  CHECK_THAT(as_svg(plot), Contains("stroke-dasharray='5 4'"));
}

}  // namespace xformer::reporting
