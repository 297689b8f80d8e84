// Operators timed by a device's clock, which here goes on by one tick for every launch: what an operator takes is
// known.
#include "measure/profile.h"

#include <ATen/Functions.h>
#include <ATen/record_function.h>

#include <catch2/catch.hpp>

#include "device/walked_device.h"
#include "tensor/memory.h"
#include "tensor/op_counter.h"
#include "tensor/op_profiler.h"
#include "training/step.h"

namespace xformer::measure::device_profile_test {

namespace {

using kernels::Ticks;

double ms(const OpFigures& figures) { return 1e3 * figures.seconds; }

ProfileOptions small_profile(const std::string& model, const std::string& mode = "train") {
  ProfileOptions options;
  options.model = model, options.mode = mode;
  options.length = 64, options.batch = 2, options.steps = 2;
  return options;
}

BenchRun walked_run() {
  BenchRun run;
  run.device = kernels::kWalkedDevice;
  return run;
}

double sum_of(const Json& rows, const char* key) {
  double sum = 0;
  for (const Json& row : rows) sum += row[key].get<double>();
  return sum;
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("what an operator takes on a device is its own launches, not those inside it nor the events") {
  const Ticks ticks({1, 0.25});
  const at::Tensor x = at::ones({3}, at::TensorOptions().device(kernels::kWalkedDevice));
  OpProfiler profiler(kernels::kWalkedDevice);
  CHECK(profiler.event_seconds() == Approx(0.25e-3));
  for (int turn = 0; turn < 2; ++turn) {
    const TimedWork timed = profiler.time([&] {
      kernels::count_launch();  // outside operators
      RECORD_FUNCTION("xformer::outer", c10::ArrayRef<const c10::IValue>());
      kernels::count_launch();
      x.view({1, 3}).t().add(1);  // views have no events
      {
        RECORD_FUNCTION("xformer::inner", c10::ArrayRef<const c10::IValue>());
        for (int i = 0; i < 3; ++i) kernels::count_launch();
        x.mul(2);
      }
      kernels::count_launch();
    });
    CHECK(timed.seconds == Approx(8e-3));
    CHECK_FALSE(timed.queued_ahead);  // this device does everything at once
  }
  const auto& operators = profiler.profile().operators;
  CHECK(operators.at("xformer::outer").calls == 2);
  CHECK(ms(operators.at("xformer::outer")) == Approx(2 * 2));
  CHECK(ms(operators.at("xformer::inner")) == Approx(2 * 3));
  CHECK(ms(operators.at("aten::add")) == Approx(2));
  CHECK(ms(operators.at("aten::mul")) == Approx(2));
  CHECK(operators.at("aten::t").calls == 2);
  CHECK(ms(operators.at("aten::t")) == 0);
  CHECK(1e3 * profiler.profile().seconds() == Approx(2 * 7));
}

TEST_CASE("a training step's operators take what they launched, backwards too, and nothing else does") {
  const Ticks ticks({1, 0.5});
  BenchOptions wanted;
  wanted.models = {GENERATE("none", "softmax", "mra2")};
  wanted.lengths = {64};
  wanted.batches = {2};
  CAPTURE(wanted.models.front());
  const BenchCase one = bench_cases(wanted).front();
  const auto model = models::all_families().get(one.plan.family).build(one.request);
  model->to(kernels::kWalkedDevice);
  training::TrainStep step(*model, one.shape, plan::training_schema().read(one.plan.group("training")),
                           kernels::kWalkedDevice);
  const data::HostBatch batch = bench_batch(one);
  step.run(batch, 0, {1e-3, 0.9});
  OpProfiler profiler(kernels::kWalkedDevice);
  static_cast<void>(kernels::take_device_work());
  const OpCounter counter;
  const TimedWork timed = profiler.time([&] { step.run(batch, 1, {1e-3, 0.9}); });
  const kernels::DeviceWork work = kernels::take_device_work();
  // And the event behind the batch's upload, which is the step's own.
  CHECK(1e3 * timed.seconds == Approx(0.5 + static_cast<double>(work.all_launches())));
  const OpProfile& profile = profiler.profile();
  CHECK(1e3 * profile.seconds() == Approx(static_cast<double>(work.all_launches())));
  CHECK(profile.operators.contains("xformer::classifier_backward"));
  double own = 0;
  int64_t flops = 0;
  for (const auto& [name, figures] : profile.operators) {
    CAPTURE(name);
    flops += figures.flops;
    if (name.starts_with("xformer::")) {
      own += ms(figures);
      continue;
    }
    const auto found = work.operators.find(name == "aten::_copy_from" ? "aten::copy_" : name);
    const auto launched =
        static_cast<double>(found == work.operators.end() || name == "aten::copy_" ? 0 : found->second);
    CHECK(ms(figures) == Approx(launched).margin(1e-6));
  }
  CHECK(own == Approx(static_cast<double>(work.launches)));
  CHECK(flops == counter.counts().flops);
  CHECK(profile.operators.at("xformer::classifier_forward").flops > 0);
}

TEST_CASE("FLOPs that a device alone knows are null, and the tables name whose they are") {
  const Ticks ticks({10, 1});
  install_caching_allocator();
  const ProfileOptions options = small_profile("softmax-fused");
  const Json report = run_profile(options, profile_case(options), walked_run());
  const Json names = {"xformer::attention_backward", "xformer::attention_forward"};
  CHECK(report["floor"]["not_counted"] == names);
  for (const Json& row : report["operators"]) {
    CAPTURE(row["operator"]);
    CHECK(row["flops"].is_null() == (std::find(names.begin(), names.end(), row["operator"]) != names.end()));
  }
  CHECK(report["floor"]["other_flops"].get<double>() > 0);  // linear maps are counted
  CHECK(report["floor"]["step_over_floor"].get<double>() ==
        Approx(report["profiled_ms"].get<double>() / report["floor"]["ms"].get<double>()));
  CHECK(holds(profile_markdown(report),
              "at the peak; without xformer::attention_backward, xformer::attention_forward, whose FLOPs are not"));
}

TEST_CASE("a device's profile: sums, what cannot be known there, and its words") {
  const Ticks ticks({10, 1});  // in milliseconds: the smallest square is enough for a peak
  install_caching_allocator();
  const ProfileOptions options = small_profile("softmax", GENERATE("train", "inference"));
  const Json report = run_profile(options, profile_case(options), walked_run());
  CHECK(sum_of(report["operators"], "share") + report["outside_operators"]["share"].get<double>() == Approx(1));
  // Nothing launches outside operators; the event behind the batch's upload is there.
  CHECK(report["outside_operators"]["ms"].get<double>() == Approx(1));
  CHECK(sum_of(report["operators"], "ms") + 1 == Approx(report["profiled_ms"].get<double>()));
  for (const Json& row : report["operators"]) {
    CAPTURE(row.dump());
    const double launches = row["ms"].get<double>() / 10;
    CHECK(launches == Approx(std::round(launches)).margin(1e-6));
    if (row["operator"] == "aten::view" || row["operator"] == "aten::empty") CHECK(row["ms"] == 0);
    // On its way to the CPU, as this device has it, LibTorch's operator is called once more.
    if (row["operator"] == "aten::bmm") CHECK(2 * launches == Approx(row["calls"].get<double>()));
  }
  CHECK(report["events"]["us"].get<double>() == Approx(1000));
  CHECK(report["events"]["queued_ahead"] == false);
  // Each product alone takes a launch, as it does in the step.
  REQUIRE_FALSE(report["products"].empty());
  for (const Json& row : report["products"])
    CHECK(row["alone_ms"].get<double>() == Approx(2 * row["ms"].get<double>()));  // calls as above
  const Json& peak = report["peaks"][0];
  CHECK(peak["library"] == "cublas");
  CHECK(peak["gflops_per_s"].get<double>() == Approx(2 * std::pow(512, 3) / 10e-3 / 1e9));
  CHECK(report["peaks"].size() == 3);
  for (const Json& row : report["copies"])
    CHECK(row["gb_per_s"].get<double>() == Approx(row["bytes"].get<double>() / 10e-3 / 1e9));
  CHECK(report["host_ms"].get<double>() > 0);
  CHECK(report["captured"]["step_ms"].is_null());
  CHECK(report["outside_parallel"]["share"].is_null());
  CHECK(report["outside_parallel"]["spin_us"].is_null());
  CHECK(report["outside_parallel"]["reason"] == "the work is a device's");
  CHECK(report["memory"]["page_faults_per_step"].is_null());
  const std::string text = profile_markdown(report);
  INFO(text);
  CHECK(holds(text, " with every operator timed, by the device's clock\n"));
  CHECK(holds(text, "- outside parallel regions: not measured (the work is a device's)\n"));
  CHECK(holds(text, "- not captured: steps are captured on CUDA devices alone\n"));
  CHECK(holds(text, "- an operator's events take 1000.00 us each, which is taken off; the host was not always ahead"));
  CHECK(holds(text, "by cublas, products of 512 x 512 x 512 (rows, columns, inner)\n"));
  for (const char* host : {"page faults", "threads at once"}) CHECK_FALSE(holds(text, host));
  Json ahead = report;
  ahead["events"]["queued_ahead"] = true;
  ahead["captured"] = {{"step_ms", {{"median", 1.25}}}, {"kernels_launched", 112}, {"reason", ""}};
  ahead["host_ms"] = 2.5;
  const std::string words = profile_markdown(ahead);
  CHECK(holds(words, "every step was in the queue before the device began it\n"));
  CHECK(holds(words, "- captured in a CUDA graph: 1.25 ms, 112 kernels\n"));
  CHECK(holds(words, "- of the step the host takes 2.50 ms to ask for it\n"));
}

}  // namespace xformer::measure::device_profile_test
