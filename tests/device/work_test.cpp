// What a training step asks of a device, for every attention: launches, bytes, and that it waits for nothing.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

#include "device/walked_device.h"
#include "measure/bench.h"
#include "training/step.h"

namespace xformer::measure::device_work_test {

namespace {

constexpr const char* kBudget = XFORMER_SOURCE "/tests/device/budget.csv";

// Of the second step of ListOps' protocol, two rows of 512.
kernels::DeviceWork work_of(const std::string& name) {
  BenchOptions wanted;
  wanted.models = {name};
  wanted.lengths = {512};
  wanted.batches = {2};
  const BenchCase one = bench_cases(wanted).front();
  const auto model = models::all_families().get(one.plan.family).build(one.request);
  model->to(kernels::kWalkedDevice);
  training::TrainStep step(*model, one.shape, plan::training_schema().read(one.plan.group("training")),
                           kernels::kWalkedDevice);
  const data::HostBatch batch = bench_batch(one);
  for (int64_t i = 0; i < 2; ++i) {
    static_cast<void>(kernels::take_device_work());
    step.run(batch, i, {1e-3, 0.9});
  }
  return kernels::take_device_work();
}

// LibTorch's operators, for whoever asks why there are more than there were.
std::string listed(const kernels::DeviceWork& work) {
  std::string text;
  for (const auto& [name, calls] : work.operators) text += name + " " + std::to_string(calls) + "\n";
  return text;
}

struct Budget {
  int64_t launches = 0, own = 0, megabytes = 0;
};

std::map<std::string, Budget> budgets() {
  std::ifstream in(kBudget);
  std::map<std::string, Budget> result;
  std::string line, name;
  std::getline(in, line);
  while (std::getline(in, name, ',')) {
    Budget one;
    char comma = 0;
    in >> one.launches >> comma >> one.own >> comma >> one.megabytes;
    std::getline(in, line);
    result[name] = one;
  }
  return result;
}

}  // namespace

// XFORMER_WRITE_BUDGET=1 writes the table anew.
TEST_CASE("a training step asks of a device what its budget says, for every attention") {
  kernels::set_walk_order(std::nullopt);
  const bool writes = std::getenv("XFORMER_WRITE_BUDGET") != nullptr;
  const std::map<std::string, Budget> known = budgets();
  std::ofstream table;
  if (writes) table.open(kBudget), table << "attention,launches,of our own,MB\n";
  for (const std::string& name : attention::distinct_names()) {
    CAPTURE(name);
    const kernels::DeviceWork work = work_of(name);
    const Budget got{work.all_launches(), work.launches, work.bytes / 1'000'000};
    INFO(listed(work));
    CHECK(work.reads == 0);
    if (writes) {
      table << name << "," << got.launches << "," << got.own << "," << got.megabytes << "\n";
      continue;
    }
    REQUIRE(known.contains(name));
    CHECK(got.launches == known.at(name).launches);
    CHECK(got.own == known.at(name).own);
    CHECK(got.megabytes == known.at(name).megabytes);
  }
}

}  // namespace xformer::measure::device_work_test
