// Metrics: their direction, how they are shown.
#include "core/metric.h"

#include <catch2/catch.hpp>

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

}  // namespace xformer
