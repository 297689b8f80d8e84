// A bench on a device, whose clock here goes on by one tick for every launch: what a step takes is known.
#include "measure/bench.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "device/walked_device.h"
#include "tensor/memory.h"

namespace xformer::measure::device_bench_test {

TEST_CASE("what a step takes on a device is what its launches take by the device's clock, many steps at a time") {
  install_caching_allocator();
  const kernels::ClockTicks tick = GENERATE(kernels::ClockTicks{1, 0.25}, kernels::ClockTicks{0.0301, 0.011});
  const kernels::Ticks ticks(tick);
  BenchOptions options;
  options.models = {"none", "linear"};
  options.lengths = {64}, options.batches = {2}, options.steps = 3, options.mode = GENERATE("train", "inference");
  options.interleave = GENERATE(false, true);
  CAPTURE(tick.launch, options.mode, options.interleave);
  BenchRun run;
  run.device = kernels::kWalkedDevice;
  std::map<std::string, std::vector<double>> took;  // milliseconds that each bunch of steps advanced the clock
  std::map<std::string, std::vector<StepTime>> told;
  run.turn = [] {
    static_cast<void>(kernels::take_device_work());
    return true;
  };
  run.timed = [&](const std::string& model, const StepTime& time) {
    took[model].push_back(tick.launch * static_cast<double>(kernels::take_device_work().all_launches()));
    told[model].push_back(time);
  };
  const Json report = run_bench(options, bench_cases(options), run);
  for (const Json& row : report["rows"]) {
    const std::string model = row["model"];
    CAPTURE(model);
    const auto at_once = row["steps_at_once"].get<double>();
    // And the event behind each batch's upload, which is the step's own.
    for (const double launches : took[model])
      CHECK(row["device_ms"].get<double>() * at_once == Approx(launches + tick.event * at_once));
    for (const StepTime& time : told[model]) {
      CHECK(*time.device_ms == Approx(row["device_ms"].get<double>()));
      CHECK((*time.host_ms > 0 && *time.host_ms <= time.ms));
    }
    CHECK(told[model].size() == 3);
    CHECK(at_once == std::max(1.0, std::ceil(50 / row["device_ms"].get<double>())));
    CHECK((at_once > 1) == (tick.launch < 1 || options.mode == "inference"));
    CHECK(row["host_ms"].get<double>() > 0);
    CHECK(row["step_ms"]["median"].get<double>() >= row["host_ms"].get<double>());
  }
  const std::string table = bench_markdown(report), head = table.substr(0, table.find('\n'));
  CHECK(head.find("| p90 | device ms | host ms | examples/s |") != std::string::npos);
  const std::string row = table.substr(table.find("| `none`"));
  CHECK(std::count(head.begin(), head.end(), '|') == std::count(row.begin(), row.begin() + row.find('\n'), '|'));
}

}  // namespace xformer::measure::device_bench_test
