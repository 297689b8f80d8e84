#include "inspect/selftest.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "core/error.h"
#include "core/hash.h"
#include "core/names.h"
#include "inspect/device_checks.h"
#include "inspect/tiny.h"
#include "training/step.h"

namespace xformer::inspect {

namespace {

// Mean losses of every tenth of a fixed training.
std::vector<double> losses_of(const std::string& name, int64_t steps, const at::Device& device) {
  const auto model = build_tiny_model(name);
  model->to(device);
  plan::TrainingOptions options;
  options.batch = 32;
  options.learning_rate = 5e-3;
  const MarkTask source;
  training::TrainStep step(*model, source.info().shape, options, device);
  data::Prefetcher batches(
      source, data::Split::kTrain,
      std::make_unique<data::ExampleOrder>(source, data::Split::kTrain, data::OrderOptions{options.batch, 16, 1, 3}), 0,
      steps);
  std::vector<double> result;
  for (int64_t i = 0; i < steps; ++i) {
    step.run(batches.next(), i, {options.learning_rate, 0.9});
    if ((i + 1) % (steps / 10) == 0) {
      result.push_back(step.read_and_reset().loss);
    }
  }
  return result;
}

// Returns the fingerprint.
std::string check_learning(const at::Device& device, const SelftestListener& tell) {
  const at::Tensor x = at::ones({16, 1000}, device);
  kernels::DropoutStream stream(5);
  stream.to(device);
  stream.set_step(3);
  tell({"the dropout kernel drops what its definition drops",
        kernels::dropout(x, 0.1, stream.state, 2).equal(kernels::dropout_reference(x, 0.1, stream.state, 2)),
        "16,000 elements"});

  std::string text;
  for (const std::string& name : attention::distinct_names()) {
    const std::vector<double> first = losses_of(name, 80, device), second = losses_of(name, 80, device);
    // The least: a model that falls fast overshoots now and then.
    const double least = *std::min_element(first.begin(), first.end());
    const bool learns = least < 0.95 * first.front();
    tell({name + " learns, twice the same way", learns && first == second,
          fmt::format("loss {:.3f} -> {:.3f}", first.front(), least)});
    for (const double loss : first) text += fmt::format("{:.4e} ", loss);
  }
  return sha256(text).substr(0, 16);
}

}  // namespace

bool SelftestReport::passed() const {
  return std::all_of(items.begin(), items.end(), [](const SelftestItem& item) { return item.passed; });
}

const std::vector<std::string>& selftest_parts() {
  static const std::vector<std::string> kParts{"learning", "contract", "captured"};
  return kParts;
}

const std::vector<std::string>& recorded_precisions() {
  static const std::vector<std::string> kPrecisions{"fp32", "bf16", "fp16"};
  return kPrecisions;
}

SelftestReport run_selftest(const std::string& part, const at::Device& device,
                            const std::vector<std::string>& precisions, const SelftestListener& listener) {
  SelftestReport report;
  const auto tell = [&](const SelftestItem& item) {
    report.items.push_back(item);
    if (listener) listener(item);
  };
  training::set_float_products("fp32", device);
  if (part == "learning") {
    report.fingerprint = check_learning(device, tell);
  } else if (part == "contract") {
    for (const DoubleCheck& check : double_checks(device)) tell(check_against_double(check, device));
  } else if (part == "captured") {
    const training::Recorder recorder =
        device.is_cuda() ? training::make_recorder("auto", device, {}) : training::host_recorder();
    tell(check_lives_of_recordings(device, recorder));
    check_recorded_steps(device, recorder, precisions, tell);
  } else {
    throw UserError(unknown_name_message("part of the self-test", part, selftest_parts()));
  }
  return report;
}

}  // namespace xformer::inspect
