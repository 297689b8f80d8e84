#include "training/step.h"

#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>

namespace xformer::training {

PrecisionScope::PrecisionScope(const std::string& precision, at::Device device)
    : device_(device.type()), active_(precision == "bf16") {
  if (!active_) return;
  before_ = at::autocast::is_autocast_enabled(device_);
  at::autocast::set_autocast_dtype(device_, at::kBFloat16);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::increment_nesting();
}

PrecisionScope::~PrecisionScope() {
  if (!active_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, before_);
}

TrainStep::TrainStep(models::Model& model, const TrainingOptions& options, at::Device device)
    : model_(model),
      options_(options),
      device_(device),
      optimizer_(models::trainable(model), {options.beta2, options.epsilon, options.weight_decay, options.clip_norm}),
      batch_(device),
      meter_(at::zeros({5}, at::TensorOptions(at::kDouble).device(device))) {}

void TrainStep::run(const data::HostBatch& batch, int64_t step, const ScheduleValues& values) {
  model_.train();
  optimizer_.zero_gradients();
  const int64_t at_once = options_.micro_batch > 0 ? options_.micro_batch : options_.batch;
  // The mean is over the rows of the whole batch, whichever micro-batch they are in.
  const double inverse_rows = 1.0 / static_cast<double>(std::max<int64_t>(batch.filled, 1));
  at::Tensor loss = at::zeros({}, meter_.options()), correct = at::zeros({}, meter_.options());
  for (int64_t first = 0; first < batch.batch; first += at_once) {
    model_.dropout_stream()->set_step(step, first);
    batch_.load(batch, first, std::min(at_once, batch.batch - first));
    tasks::Sums sums;
    at::Tensor objective;
    {
      const PrecisionScope precision(options_.precision, device_);
      sums = tasks::classify(model_.forward(batch_.input()), batch_);
      objective = sums.loss * inverse_rows;
      if (const at::Tensor extra = model_.extra_loss(); extra.defined())
        objective = objective + extra * (batch_.row_valid().sum() * inverse_rows);
    }
    objective.backward();
    const at::NoGradGuard no_grad;
    loss.add_(sums.loss.detach());
    correct.add_(sums.correct);
  }
  const at::NoGradGuard no_grad;
  optimizer_.step(values);
  model_.after_step(step + 1);

  const at::Tensor skipped = optimizer_.skipped().to(at::kDouble);
  const at::Tensor rows = at::full({}, static_cast<double>(batch.filled), meter_.options());
  // A skipped step counts in no sum: its loss may not be a number.
  const at::Tensor added = at::stack({loss, correct, rows});
  meter_.narrow(0, 0, 3).add_(at::where(skipped > 0, at::zeros_like(added), added));
  meter_.select(0, 3).add_(skipped);
  meter_.select(0, 4).add_(1).mul_(skipped);
}

StepSums TrainStep::read_and_reset() {
  const at::Tensor host = meter_.cpu();
  const double* sums = host.const_data_ptr<double>();
  StepSums result{sums[0],
                  sums[1],
                  sums[2],
                  optimizer_.gradient_norm().item<double>(),
                  static_cast<int64_t>(sums[3]),
                  static_cast<int64_t>(sums[4])};
  meter_.narrow(0, 0, 3).zero_();
  return result;
}

}  // namespace xformer::training
