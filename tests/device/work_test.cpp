// What a training step asks of a device, for every attention: launches, bytes, and that it waits for nothing.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "device/walked_device.h"
#include "measure/bench.h"
#include "training/step.h"

namespace xformer::measure::device_work_test {

namespace {

constexpr const char* kBudget = XFORMER_SOURCE "/tests/device/budget.csv";

// Of the second step of ListOps' protocol, two rows of 512.
kernels::DeviceWork work_of(const std::string& name, const char* precision) {
  BenchOptions wanted;
  wanted.precisions = {precision};
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
using Budgets = std::array<Budget, 2>;
constexpr std::array<const char*, 2> kPrecisions{"fp32", "bf16"};

std::map<std::string, Budgets> budgets() {
  std::ifstream in(kBudget);
  std::map<std::string, Budgets> result;
  std::string line, name;
  std::getline(in, line);
  while (std::getline(in, name, ',') && std::getline(in, line)) {
    std::istringstream numbers(line);
    char comma = 0;
    for (Budget& one : result[name]) numbers >> one.launches >> comma >> one.own >> comma >> one.megabytes >> comma;
  }
  return result;
}

}  // namespace

// XFORMER_WRITE_BUDGET=1 writes the table anew.
TEST_CASE("a training step asks of a device what its budget says, for every attention") {
  kernels::set_walk_order(std::nullopt);
  const bool writes = std::getenv("XFORMER_WRITE_BUDGET") != nullptr;
  const std::map<std::string, Budgets> known = budgets();
  std::ofstream table;
  if (writes) {
    table.open(kBudget);
    table << "attention,launches,of our own,MB,launches in bf16,of our own in bf16,MB in bf16\n";
  }
  for (const std::string& name : attention::distinct_names()) {
    if (writes) table << name;
    for (size_t i = 0; i < kPrecisions.size(); ++i) {
      CAPTURE(name, kPrecisions[i]);
      const kernels::DeviceWork work = work_of(name, kPrecisions[i]);
      const Budget got{work.all_launches(), work.launches, work.bytes / 1'000'000};
      INFO(listed(work));
      CHECK(work.reads == 0);
      if (writes) {
        table << "," << got.launches << "," << got.own << "," << got.megabytes;
        continue;
      }
      REQUIRE(known.contains(name));
      CHECK(got.launches == known.at(name)[i].launches);
      CHECK(got.own == known.at(name)[i].own);
      CHECK(got.megabytes == known.at(name)[i].megabytes);
    }
    if (writes) table << "\n";
  }
}

}  // namespace xformer::measure::device_work_test
