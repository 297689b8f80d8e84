#include "training/step.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>

#include "core/error.h"

namespace xformer::training {

PrecisionScope::PrecisionScope(const std::string& precision, at::Device device)
    : device_(device.type()), active_(precision == "bf16" || precision == "fp16") {
  if (!active_) return;
  before_ = at::autocast::is_autocast_enabled(device_);
  at::autocast::set_autocast_dtype(device_, precision == "bf16" ? at::kBFloat16 : at::kHalf);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::increment_nesting();
}

PrecisionScope::~PrecisionScope() {
  if (!active_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, before_);
}

void set_float_products(const std::string& precision, const at::Device& device) {
  const bool tf32 = precision == "tf32";
  XF_CHECK(!tf32 || device.is_cuda(), UserError,
           "training.precision tf32 exists on CUDA devices only; the device is {}", device.str());
  // LibTorch's own default leaves it on for convolutions.
  at::globalContext().setAllowTF32CuBLAS(tf32);
  at::globalContext().setAllowTF32CuDNN(tf32);
}

TrainStep::TrainStep(models::Model& model, const data::DataShape& shape, const plan::TrainingOptions& options,
                     at::Device device, Recorder recorder)
    : model_(model),
      shape_(shape),
      options_(options),
      device_(device),
      recorder_(std::move(recorder)),
      optimizer_(models::trainable(model),
                 {{options.beta2, options.epsilon, options.weight_decay, options.optimizer == "radam"},
                  options.clip_norm,
                  options.precision == "fp16"},
                 [&](const std::string& name) { return model.decays(name); }),
      learning_rate_(at::zeros({}, at::TensorOptions(at::kDouble).device(device))),
      beta1_(at::zeros_like(learning_rate_)),
      meter_(at::zeros({5}, learning_rate_.options())) {
  set_float_products(options.precision, device);
  model_.dropout_stream()->to(device);
}

void TrainStep::run(const data::HostBatch& batch, int64_t step, const plan::ScheduleValues& values) {
  std::unique_ptr<Bucket>& bucket = buckets_[batch.padded_len];
  if (!bucket) {
    bucket.reset(new Bucket{{device_, batch.batch, batch.padded_len, shape_},
                            {fmt::format("training step of length {}", batch.padded_len),
                             [this, length = batch.padded_len] { work(buckets_.at(length)->batch); }, recorder_}});
  }
  model_.train();
  bucket->batch.load(batch);
  learning_rate_.fill_(values.learning_rate);
  beta1_.fill_(values.beta1);
  model_.dropout_stream()->set_step(step);
  bucket->replay.run();
  const at::NoGradGuard no_grad;
  model_.after_step(step + 1);
}

void TrainStep::work(const tasks::DeviceBatch& batch) {
  optimizer_.zero_gradients();
  const int64_t at_once = options_.micro_batch > 0 ? options_.micro_batch : batch.size();
  at::Tensor loss = at::zeros({}, meter_.options()), correct = at::zeros({}, meter_.options());
  for (int64_t first = 0; first < batch.size(); first += at_once) {
    model_.dropout_stream()->set_first_row(first * shape_.sequences);
    const tasks::BatchView rows = batch.rows(first, std::min(at_once, batch.size() - first));
    tasks::Sums sums;
    at::Tensor objective;
    {
      const PrecisionScope precision(options_.precision, device_);
      sums = tasks::judge(model_.forward(rows.inputs), rows, shape_, options_.label_smoothing);
      // The mean is over the rows of the whole batch, whichever micro-batch they are in.
      const at::Tensor inverse_rows = batch.filled().reciprocal().to(sums.loss.scalar_type());
      objective = sums.loss * inverse_rows;
      if (const at::Tensor extra = model_.extra_loss(); extra.defined())
        objective = objective + extra * (rows.row_valid.sum() * inverse_rows);
      if (optimizer_.loss_scale().defined()) objective = objective * optimizer_.loss_scale();
    }
    objective.backward();
    const at::NoGradGuard no_grad;
    loss.add_(sums.loss.detach());
    correct.add_(sums.correct);
  }
  const at::NoGradGuard no_grad;
  optimizer_.step(learning_rate_, beta1_);

  const at::Tensor& skipped = optimizer_.skipped();
  // A skipped step counts in no sum: its loss may not be a number.
  const at::Tensor added = at::stack({loss, correct, batch.filled()});
  meter_.narrow(0, 0, 3).add_(at::where(skipped > 0, at::zeros_like(added), added));
  meter_.select(0, 3).add_(skipped);
  meter_.select(0, 4).add_(1).mul_(skipped);
}

int64_t TrainStep::recorded() const {
  int64_t result = 0;
  for (const auto& [length, bucket] : buckets_) result += bucket->replay.recorded() ? 1 : 0;
  return result;
}

std::optional<int64_t> TrainStep::kernels() const {
  return buckets_.empty() ? std::nullopt : buckets_.begin()->second->replay.kernels();
}

StepSums TrainStep::read_and_reset() {
  const at::Tensor host = at::cat({meter_, optimizer_.gradient_norm().view({1})}).cpu();
  const double* sums = host.const_data_ptr<double>();
  StepSums result{sums[0], sums[1], sums[2], sums[5], static_cast<int64_t>(sums[3]), static_cast<int64_t>(sums[4])};
  meter_.narrow(0, 0, 3).zero_();
  return result;
}

}  // namespace xformer::training
