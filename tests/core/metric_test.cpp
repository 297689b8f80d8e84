// Metrics: their direction, how they are shown, JSON both ways.
#include "core/metric.h"

#include <catch2/catch.hpp>

#include "core/error.h"

namespace xformer {

TEST_CASE("a metric is better in its own direction, and never than itself") {
  const Metric accuracy{accuracy_metric(), 0.5}, rmse{rmse_metric(), 0.5};
  CHECK((accuracy.better_than(0.4) && !accuracy.better_than(0.5) && !accuracy.better_than(0.6)));
  CHECK((rmse.better_than(0.6) && !rmse.better_than(0.5) && !rmse.better_than(0.4)));
}

TEST_CASE("a share is shown in percent, what has another unit as it is, with the metric's decimals") {
  CHECK(accuracy_metric().text(0.81256) == "81.26");
  CHECK(accuracy_metric().heading() == "accuracy, %");
  CHECK(rmse_metric().text(0.46713) == "0.4671");
  CHECK(rmse_metric().heading() == "RMSE");
  CHECK(MetricSpec{"bits", "bits", "bits/dim", false, 3}.text(2.9999) == "3.000");
  CHECK(MetricSpec{"bits", "bits", "bits/dim", false, 3}.heading() == "bits, bits/dim");
}

TEST_CASE("JSON keeps every fact of a metric, and refuses one that lacks a fact") {
  for (const MetricSpec& spec : {accuracy_metric(), rmse_metric(), top5_metric()}) {
    const Metric back = metric_from_json(metric_to_json({spec, 0.25}));
    CHECK((back.spec == spec && back.value == 0.25));
  }
  Json lacking = metric_to_json({rmse_metric(), 1});
  lacking.erase("unit");
  CHECK_THROWS_AS(metric_from_json(lacking), DataError);
  lacking["unit"] = 3;
  CHECK_THROWS_AS(metric_from_json(lacking), DataError);
}

}  // namespace xformer
