#include "analysis/layers.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <numeric>

#include "core/random.h"
#include "tasks/batch.h"
#include "tensor/probe.h"

namespace xformer::analysis {

namespace {

// The first `count` of a permutation of all; all in their order where there are no more.
std::vector<int64_t> drawn_rows(int64_t size, int64_t count, uint64_t seed) {
  std::vector<int64_t> rows(static_cast<size_t>(size));
  std::iota(rows.begin(), rows.end(), 0);
  if (count >= size) return rows;
  Stream numbers(derive_seed(seed, "examples"));
  for (int64_t i = 0; i < count; ++i) {
    const auto other = i + static_cast<int64_t>(numbers.next_below(static_cast<uint64_t>(size - i)));
    std::swap(rows[static_cast<size_t>(i)], rows[static_cast<size_t>(other)]);
  }
  rows.resize(static_cast<size_t>(count));
  return rows;
}

NamedTensors reported_in(models::Model& model, const models::ModelInput& input) {
  const ProbeRecorder recorder([](const std::string& name) { return name.find(".mixer.") != std::string::npos; });
  static_cast<void>(model.forward(input));
  return recorder.kept();
}

at::Tensor found(const NamedTensors& reported, const std::string& name) {
  for (const auto& [seen, tensor] : reported)
    if (seen == name) return tensor;
  return {};
}

}  // namespace

int64_t for_each_layer(const TrainedRun& run, data::Split split, int64_t count, uint64_t seed,
                       const std::function<void(int64_t layer, const LayerTensors& tensors)>& visit,
                       const std::function<void(int64_t done, int64_t total)>& progress) {
  const data::DataShape& shape = run.source->info().shape;
  const int64_t size = run.source->size(split);
  const std::vector<int64_t> rows = drawn_rows(size, count, seed);
  const int64_t padded = plan::padded_len(run.plan, shape);
  const auto layers = run.plan.options.values.value("model.layers", int64_t{1});  // without any: refused at the first
  const bool causal = plan::model_request(run.plan, shape).causal;
  const at::NoGradGuard no_grad;
  tasks::DeviceBatch batch(run.device, 1, padded, shape);
  data::HostBatch host;
  for (size_t i = 0; i < rows.size(); ++i) {
    progress(static_cast<int64_t>(i), static_cast<int64_t>(rows.size()));
    data::fill_batch(*run.source, split, {.rows = {rows[i]}, .padded_len = padded}, 1, host);
    batch.load(host);
    const models::ModelInput& input = batch.widened().inputs;
    const NamedTensors reported = reported_in(*run.model, input);
    for (int64_t layer = 0; layer < layers; ++layer) {
      const auto part = [&](const char* name) { return found(reported, fmt::format("layer{}.mixer.{}", layer, name)); };
      LayerTensors tensors{part("q"), part("k"), part("v"), part("mixed"), input.key_valid.reshape({-1, padded}),
                           0,         causal};
      XF_CHECK(tensors.q.defined() && tensors.k.defined() && tensors.v.defined() && tensors.mixed.defined(), UserError,
               "{} reports no queries, keys and values of whole layers: expected a model with heads of its own "
               "projections, such as softmax",
               run.plan.model);
      // What the model puts in front of the sequence is always valid.
      tensors.front = tensors.q.size(2) - padded;
      if (tensors.front > 0)
        tensors.valid =
            at::cat({at::ones({tensors.valid.size(0), tensors.front}, tensors.valid.options()), tensors.valid}, 1);
      visit(layer, tensors);
    }
  }
  return static_cast<int64_t>(rows.size());
}

}  // namespace xformer::analysis
