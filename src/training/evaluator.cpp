#include "training/evaluator.h"

#include <ATen/Functions.h>

#include <chrono>

namespace xformer::training {

std::optional<Evaluation> evaluate(models::Model& model, const data::DataSource& source, at::Device device,
                                   const EvaluationRequest& request) {
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
  model.eval();
  tasks::DeviceBatch on_device(device);
  const auto options = at::TensorOptions(at::kDouble).device(device);
  at::Tensor loss = at::zeros({}, options), correct = at::zeros({}, options);
  int64_t examples = 0;
  data::Prefetcher batches(source, request.split, order, first, last);
  for (int64_t number = first; number < last; ++number) {
    if (request.stop_requested && request.stop_requested()) return std::nullopt;
    const data::HostBatch& host = batches.next();
    on_device.load(host, 0, host.batch);
    at::Tensor logits;
    {
      const PrecisionScope precision(request.precision, device);
      logits = model.forward(on_device.input());
    }
    const tasks::Sums sums = tasks::classify(logits, on_device);
    loss.add_(sums.loss);
    correct.add_(sums.correct);
    examples += host.filled;
    if (request.predictions != nullptr) {
      const at::Tensor scores = logits.cpu().contiguous(), best = scores.argmax(-1);
      const int64_t classes = scores.size(1);
      for (int64_t row = 0; row < host.filled; ++row) {
        const float* begin = scores.const_data_ptr<float>() + row * classes;
        request.predictions->push_back(
            {host.indices[row], host.labels[row], best.const_data_ptr<int64_t>()[row], {begin, begin + classes}});
      }
    }
    if (request.progress) request.progress(number - first + 1, last - first);
  }
  const double count = static_cast<double>(examples);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return Evaluation{loss.item<double>() / count, correct.item<double>() / count, examples, seconds.count()};
}

}  // namespace xformer::training
