// Published comparisons by name, and what rows are expected to take in memory.
#include "measure/bench_protocols.h"

#include <set>

#include "bench_support.h"
#include "tensor/device.h"

namespace xformer::measure {

TEST_CASE("a named comparison has its models, each with its own options") {
  for (const BenchProtocol& protocol : bench_protocols()) {
    INFO(protocol.name);
    BenchOptions options;
    options.task = protocol.task;
    options.protocol = protocol.protocol;
    for (const BenchModel& model : protocol.models) {
      options.models.push_back(model.name);
      options.own.push_back(model.own);
    }
    options.lengths = protocol.lengths;
    options.batches = {protocol.batch};
    const std::vector<BenchCase> cases = bench_cases(options);
    CHECK(cases.size() == protocol.models.size() * protocol.lengths.size());
    std::set<std::string> labels;
    for (size_t i = 0; i < protocol.models.size(); ++i) {
      labels.insert(cases[i].label);
      for (const auto& [key, value] : protocol.models[i].own.items()) CHECK(cases[i].plan.options.values[key] == value);
    }
    CHECK(labels.size() == protocol.models.size());
    CHECK(labels.contains("softmax-fused"));
  }
  CHECK(find_bench_protocol("LRA_table-2").batch == 32);
  CHECK(contains(scratch::message_of<UserError>([] { static_cast<void>(find_bench_protocol("lra-tabel-2")); }),
                 "did you mean 'lra-table-2'?"));
}

TEST_CASE("a protocol's fp16 is for CUDA, one that was asked for is imitated with a warning") {
  BenchOptions options = small_bench({"softmax", "linear"}, {64});
  options.task = "text";
  options.protocol = find_bench_protocol("adamra-table-2").protocol;
  std::vector<BenchCase> cases = bench_cases(options);
  CHECK(suit_device(cases, at::Device(at::kCUDA, 0)).empty());
  for (const BenchCase& one : cases) CHECK(one.precision == "fp16");
  CHECK(suit_device(cases, at::kCPU).empty());
  for (const BenchCase& one : cases) {
    CHECK(one.precision == "fp32");
    CHECK(one.plan.options.values["training.precision"] == "fp32");
  }
  options.precisions = {"fp16"};
  cases = bench_cases(options);
  CHECK(suit_device(cases, at::kCPU).size() == 1);
  CHECK(cases.front().precision == "fp16");
}

TEST_CASE("what a row takes in memory is predicted, and one that cannot fit is not tried") {
  BenchOptions options = small_bench({"softmax", "linear"}, {64});
  options.batches = {16};
  options.interleave = GENERATE(false, true);
  const Json whole = report_of(options);
  for (const Json& row : whole["rows"]) {
    const auto predicted = row["predicted_bytes"].get<double>(), peak = row["peak_bytes"].get<double>();
    INFO(row.dump());
    CHECK(predicted == Approx(peak).epsilon(0.15));
  }
  // Between what the two take: only the smaller is run.
  BenchRun run;
  run.memory_limit =
      (whole["rows"][0]["predicted_bytes"].get<int64_t>() + whole["rows"][1]["predicted_bytes"].get<int64_t>()) / 2;
  const Json report = report_of(options, run);
  CHECK(report["rows"][0]["status"] == "too-large");
  CHECK(report["rows"][0]["step_ms"].is_null());
  CHECK(contains(report["rows"][0]["message"], "would take"));
  CHECK(report["rows"][1]["status"] == "ok");
  CHECK(contains(bench_markdown(report), "too large"));
}

TEST_CASE("what one long example takes is predicted by shorter ones") {
  BenchOptions options = small_bench({"linear", "softmax-fused"}, {8192});
  options.batches = {1};
  const Json whole = report_of(options);
  for (const Json& row : whole["rows"]) {
    INFO(row.dump());
    CHECK(row["predicted_bytes"].get<double>() == Approx(row["peak_bytes"].get<double>()).epsilon(0.25));
  }
  BenchRun run;
  run.memory_limit = whole["rows"][0]["peak_bytes"].get<int64_t>() / 3;
  reset_device_peak(at::kCPU);
  const Json report = report_of(options, run);
  CHECK(report["rows"][0]["status"] == "too-large");
  CHECK(device_memory(at::kCPU).peak_bytes < whole["rows"][0]["peak_bytes"].get<int64_t>() / 2);
}

// Batches of 1, 2, 4, ..: the second is not tried where the first says that it is too much.
TEST_CASE("a second example is not tried where there is room for one") {
  BenchOptions options = small_bench({"linear"}, {512});
  options.batches = {1};
  const auto one = report_of(options)["rows"][0]["peak_bytes"].get<int64_t>();
  options.batches = {64};
  BenchRun run;
  run.memory_limit = one * 3 / 2;
  reset_device_peak(at::kCPU);
  CHECK(report_of(options, run)["rows"][0]["status"] == "too-large");
  CHECK(device_memory(at::kCPU).peak_bytes < one * 5 / 4);
}

}  // namespace xformer::measure
