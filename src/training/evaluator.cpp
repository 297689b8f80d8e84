#include "training/evaluator.h"

#include <ATen/Functions.h>

#include <chrono>

namespace xformer::training {

Evaluator::Evaluator(models::Model& model, at::Device device, Recorder recorder)
    : model_(model), device_(device), recorder_(std::move(recorder)) {}

Evaluator::Forward& Evaluator::forward_for(const EvaluationRequest& request, const data::DataShape& shape) {
  std::unique_ptr<Forward>& entry = forwards_[{request.batch, request.padded_len}];
  if (!entry) {
    const auto sum = [&] { return at::zeros({}, at::TensorOptions(at::kDouble).device(device_)); };
    entry.reset(new Forward{{device_, request.batch, request.padded_len, shape}, {}, sum(), sum(), sum(), nullptr});
    const auto work = [this, &forward = *entry, precision = request.precision, shape] {
      at::Tensor logits;
      {
        const PrecisionScope scope(precision, device_);
        logits = model_.forward(forward.batch.all().inputs);
      }
      // Into a place of its own: what a recording allocates itself is the next one's too.
      if (!forward.logits.defined()) forward.logits = at::empty_like(logits);
      forward.logits.copy_(logits);
      const tasks::Sums sums = tasks::judge(logits, forward.batch.all(), shape);
      forward.loss.add_(sums.loss);
      forward.correct.add_(sums.correct);
      if (sums.top5.defined()) forward.top5.add_(sums.top5);
    };
    entry->replay =
        std::make_unique<Replay>(fmt::format("evaluation of length {}", request.padded_len), work, recorder_);
  }
  entry->loss.zero_();
  entry->correct.zero_();
  entry->top5.zero_();
  return *entry;
}

namespace {

void add_predictions(const at::Tensor& outputs, const data::HostBatch& host, const data::DataShape& shape,
                     std::vector<Prediction>& into) {
  const at::Tensor scores = outputs.to(at::kCPU, at::kFloat).contiguous();
  const at::Tensor best =
      shape.target.kind == "classification" ? scores.argmax(-1) : scores.squeeze(-1).gt(0).to(at::kLong);
  const int64_t columns = scores.size(1);
  for (int64_t row = 0; row < host.filled; ++row) {
    const auto at = static_cast<size_t>(row);
    const float* const begin = scores.const_data_ptr<float>() + row * columns;
    into.push_back({host.indices[at],
                    host.labels[at],
                    best.const_data_ptr<int64_t>()[row],
                    host.targets[at],
                    {begin, begin + columns}});
  }
}

}  // namespace

std::optional<Evaluation> Evaluator::run(const data::DataSource& source, const EvaluationRequest& request) {
  const at::NoGradGuard no_grad;
  const auto start = std::chrono::steady_clock::now();
  const int64_t size = source.size(request.split), batch = request.batch;
  XF_CHECK(size > 0, DataError, "the data has no {} split", data::split_name(request.split));
  data::OrderOptions order{batch, request.padded_len, 1, request.seed, request.parity_batches > 0};
  int64_t first = 0, last = (size + batch - 1) / batch;
  if (request.drop_remainder && size >= batch) last = size / batch;
  if (request.parity_batches > 0) {
    first = request.call * request.parity_batches;
    last = first + request.parity_batches;
  }
  set_float_products(request.precision, device_);
  model_.eval();
  const data::DataShape& shape = source.info().shape;
  Forward& forward = forward_for(request, shape);
  int64_t examples = 0;
  data::Prefetcher batches(source, request.split, order, first, last);
  for (int64_t number = first; number < last; ++number) {
    if (request.stop_requested && request.stop_requested()) return std::nullopt;
    const data::HostBatch& host = batches.next();
    forward.batch.load(host);
    forward.replay->run();
    examples += host.filled;
    if (request.predictions != nullptr) add_predictions(forward.logits, host, shape, *request.predictions);
    if (request.progress) request.progress(number - first + 1, last - first);
  }
  const double count = static_cast<double>(examples);
  const double loss = forward.loss.item<double>(), correct = forward.correct.item<double>();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  Evaluation result{
      loss / count, tasks::metric_of(shape, loss / count, correct / count), {}, examples, seconds.count()};
  if (shape.target.parameters.contains("top5")) result.top5 = forward.top5.item<double>() / count;
  return result;
}

}  // namespace xformer::training
