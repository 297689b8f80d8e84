#include "training/evaluator.h"

#include <ATen/Functions.h>

#include <chrono>

#include "data/batches/lane_order.h"
#include "models/decoding.h"

namespace xformer::training {

Evaluator::Evaluator(models::Model& model, std::unique_ptr<const tasks::Task> task, at::Device device,
                     Recorder recorder)
    : model_(model),
      task_(std::move(task)),
      meters_(task_->meters()),
      device_(device),
      recorder_(std::move(recorder)),
      sums_(at::zeros({meters_.size()}, at::TensorOptions(at::kDouble).device(device))) {}

Evaluator::Forward& Evaluator::forward_for(const data::HostBatch& batch, const EvaluationRequest& request,
                                           const data::DataShape& shape) {
  std::unique_ptr<Forward>& entry = forwards_[{batch.batch, batch.padded_len}];
  if (!entry) {
    models::State memory;
    for (const auto& [name, place] : memory_) memory[name] = place.narrow(0, 0, batch.batch);
    entry.reset(new Forward{{device_, batch.batch, batch.padded_len, shape}, {}, std::move(memory), nullptr});
    const auto work = [this, &forward = *entry, precision = request.precision] {
      const tasks::BatchView& batch = forward.batch.widened();
      models::State state = forward.memory;
      at::Tensor outputs;
      {
        const AutocastScope autocast(device_.type(), product_type(precision));
        outputs = model_.forward(batch.inputs, state);
      }
      if (task_->output().carries_state)
        for (const auto& [name, place] : forward.memory) place.copy_(state.at(name));
      // Into a place of its own: what a recording allocates itself is the next one's too.
      if (!forward.outputs.defined()) forward.outputs = at::empty_like(outputs);
      forward.outputs.copy_(outputs);
      sums_.add_(meters_.count(task_->loss(outputs, batch), task_->weight(batch), outputs, batch));
    };
    entry->replay = std::make_unique<Replay>(
        fmt::format("evaluation of {} rows of length {}", batch.batch, batch.padded_len), work, recorder_);
  }
  return *entry;
}

at::Tensor Evaluator::written(const tasks::BatchView& batch, const std::string& precision) {
  auto* const writer = dynamic_cast<models::WritingModel*>(&model_);
  XF_ASSERT(writer != nullptr, "a model that writes no text");
  const AutocastScope autocast(device_.type(), product_type(precision));
  const std::vector<models::WrittenText> texts = models::write_texts(*writer, batch.inputs, writer->search());
  at::Tensor result = at::full({batch.row_valid.size(0), task_->output().written}, -1, at::kLong);
  for (size_t row = 0; row < texts.size(); ++row) {
    const std::vector<int64_t>& classes = texts[row].classes;
    result[static_cast<int64_t>(row)].narrow(0, 0, static_cast<int64_t>(classes.size())).copy_(at::tensor(classes));
  }
  return result;
}

std::optional<Evaluation> Evaluator::run(const data::DataSource& source, const EvaluationRequest& request) {
  const at::NoGradGuard no_grad;
  const auto start = std::chrono::steady_clock::now();
  const int64_t size = source.size(request.split), batch = request.batch;
  XF_CHECK(size > 0, DataError, "the data has no {} split", data::split_name(request.split));
  const bool shuffled = request.parity_batches > 0, lanes = task_->output().carries_state;
  data::OrderOptions options{batch, request.padded_len, 1, request.seed, {.shuffle = shuffled, .limit = {}}};
  options.drop_partial = shuffled || request.drop_remainder;
  XF_CHECK(!lanes || !(shuffled || request.drop_remainder), UserError,
           "eval.parity draws and drops batches, and under scoring memory each goes on where the one before it ended");
  std::unique_ptr<data::BatchOrder> order;
  if (lanes) order = std::make_unique<data::LaneOrder>(source, request.split, data::LaneUse::kEvaluation, options);
  else order = std::make_unique<data::ExampleOrder>(source, request.split, options);
  int64_t first = 0, last = order->batches_per_epoch();
  if (request.parity_batches > 0) {
    first = request.call * request.parity_batches;
    last = first + request.parity_batches;
  }
  set_float_products(request.precision, device_);
  model_.eval();
  sums_.zero_();
  models::State fresh = model_.init_state(request.batch);
  if (memory_.empty()) memory_ = std::move(fresh);
  else
    for (const auto& [name, before] : fresh) memory_.at(name).narrow(0, 0, request.batch).copy_(before);
  tasks::Meters meters(task_->meters());
  int64_t examples = 0;
  data::Prefetcher batches(source, request.split, std::move(order), first, last);
  for (int64_t number = first; number < last; ++number) {
    if (request.stop_requested && request.stop_requested()) return std::nullopt;
    const data::HostBatch& host = batches.next();
    Forward& forward = forward_for(host, request, source.info().shape);
    forward.batch.load(host);
    forward.replay->run();
    examples += host.filled;
    if (request.answers != nullptr || meters.on_host()) {
      const at::Tensor outputs = task_->output().written > 0
                                     ? written(forward.batch.widened().rows(0, host.filled), request.precision)
                                     : forward.outputs.narrow(0, 0, host.filled).to(at::kCPU, at::kFloat).contiguous();
      meters.add(outputs, host);
      if (request.answers != nullptr) request.answers->add(outputs, host);
    }
    if (request.progress) request.progress(number - first + 1, last - first);
  }
  const at::Tensor sums = sums_.cpu();
  tasks::Meters::Reading reading = meters.read({sums.const_data_ptr<double>(), static_cast<size_t>(sums.numel())});
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return Evaluation{reading.loss, std::move(reading.metrics), examples, seconds.count()};
}

}  // namespace xformer::training
