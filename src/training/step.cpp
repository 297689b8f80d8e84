#include "training/step.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/error.h"
#include "data/batches/lane_order.h"
#include "kernels/step_sums/step_sums.h"

namespace xformer::training {

namespace {

constexpr double kLeastWeight = 1e-12;  // of a batch in which nothing is to be predicted: its loss is 0

// What changes from step to step beside the batch, and travels with it.
enum StepNumber : int64_t { kLearningRate, kBeta1, kStep, kNumbers };

// Nothing is read back in training: a metric that gathers on the host has to wait for an evaluation.
tasks::MeterList training_meters(const tasks::Task& task) {
  tasks::MeterList meters = task.meters();
  std::erase_if(meters, [](const auto& meter) { return meter->on_host(); });
  if (meters.size() > 1) meters.resize(1);
  return meters;
}

}  // namespace

std::optional<at::ScalarType> product_type(const std::string& precision) {
  if (precision != "bf16" && precision != "fp16") return std::nullopt;
  return precision == "bf16" ? at::kBFloat16 : at::kHalf;
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
    : TrainStep(model, shape, tasks::make_task(shape, {options.label_smoothing}), options, device,
                std::move(recorder)) {}

TrainStep::TrainStep(models::Model& model, const data::DataShape& shape, std::unique_ptr<const tasks::Task> task,
                     const plan::TrainingOptions& options, at::Device device, Recorder recorder)
    : model_(model),
      shape_(shape),
      task_(std::move(task)),
      meters_(training_meters(*task_)),
      options_(options),
      device_(device),
      recorder_(std::move(recorder)),
      optimizer_(models::trainable(model),
                 {options.optimizer,
                  {options.beta2, options.epsilon, options.weight_decay},
                  options.clip_norm,
                  options.precision == "fp16"},
                 [&](const std::string& name) { return model.decays(name); }),
      meter_(at::zeros({meters_.size() + 2}, at::TensorOptions(at::kDouble).device(device))) {
  set_float_products(options.precision, device);
  model_.dropout_stream()->to(device);
  if (data::read_in_lanes(shape, data::Split::kTrain)) memory_ = model_.init_state(options.batch);
}

TrainStep::Bucket& TrainStep::bucket_of(std::pair<int64_t, int64_t> shape) {
  std::unique_ptr<Bucket>& bucket = buckets_[shape];
  const auto [length, rows] = shape;
  if (!bucket)
    bucket.reset(new Bucket{{device_, rows, length, shape_, kNumbers},
                            {fmt::format("training step of {} rows of length {}", rows, length),
                             [this, shape] { work(buckets_.at(shape)->batch); }, recorder_}});
  return *bucket;
}

void TrainStep::run(const data::HostBatch& batch, int64_t step, const plan::ScheduleValues& values) {
  Bucket& bucket = bucket_of({batch.padded_len, batch.batch});
  for (const auto& [name, place] : memory_)
    XF_ASSERT(batch.batch <= place.size(0), "a batch of {} rows for a memory of {}", batch.batch, place.size(0));
  model_.train();
  bucket.batch.load(batch, {values.learning_rate, values.beta1, static_cast<double>(step)});
  model_.dropout_stream()->seed_library(step);
  if (batch.padded_len < longest_ && bucket.replay.is_due()) bucket_of({longest_, options_.batch}).replay.record();
  bucket.replay.run();
  const at::NoGradGuard no_grad;
  model_.after_step(step + 1);
}

void TrainStep::work(const tasks::DeviceBatch& batch) {
  const tasks::BatchView& all = batch.widened();
  optimizer_.zero_gradients();
  model_.dropout_stream()->take_step(batch.number(kStep));
  const int64_t at_once = options_.micro_batch > 0 ? options_.micro_batch : batch.size();
  // The loss is divided by the weight of the whole batch, whichever micro-batch its parts are in.
  const at::Tensor whole_weight = task_->weight(all);
  const at::Tensor inverse_weight = whole_weight.clamp_min(kLeastWeight).reciprocal();
  at::Tensor sums;
  std::vector<std::pair<at::Tensor, at::Tensor>> remembered;  // places, and what they hold after the step
  for (int64_t first = 0; first < batch.size(); first += at_once) {
    const tasks::BatchView rows = all.rows(first, std::min(at_once, batch.size() - first));
    model_.dropout_stream()->set_first_row(first * model_.rows_of_example(rows.inputs));
    const at::Tensor weight = at_once >= batch.size() ? whole_weight : task_->weight(rows);
    const int64_t here = rows.row_valid.size(0);
    models::State before, state;
    for (const auto& [name, place] : memory_) before[name] = place.narrow(0, first, here);
    // Of batches that do not go on from each other each begins afresh.
    state = memory_.empty() ? model_.init_state(here) : before;
    at::Tensor outputs, loss;
    std::vector<at::Tensor> objectives, slopes;  // sums that are made smaller, and by how much
    {
      const AutocastScope autocast(device_.type(), product_type(options_.precision));
      outputs = model_.forward(rows.inputs, state);
      loss = task_->loss(outputs, rows);
      at::Tensor inverse = inverse_weight.to(loss.scalar_type());
      if (optimizer_.loss_scale().defined()) inverse = inverse * optimizer_.loss_scale();
      objectives.push_back(loss), slopes.push_back(inverse);
      if (const at::Tensor extra = model_.extra_loss(); extra.defined())
        objectives.push_back(extra), slopes.push_back(weight.to(loss.scalar_type()) * inverse);
    }
    torch::autograd::backward(objectives, slopes);
    const at::NoGradGuard no_grad;
    const at::Tensor counted = meters_.count(loss, weight, outputs, rows);
    sums = sums.defined() ? sums.add_(counted) : counted;
    for (const auto& [name, place] : before) remembered.emplace_back(place, state.at(name).detach());
  }
  const at::NoGradGuard no_grad;
  optimizer_.step(batch.number(kLearningRate), batch.number(kBeta1));

  const at::Tensor& skipped = optimizer_.skipped();
  // What a skipped step remembers may not be a number either.
  for (const auto& [place, value] : remembered) place.copy_(at::where(skipped > 0, place, value));
  // A skipped step counts in no sum: its loss may not be a number.
  kernels::add_step_sums(meter_, sums, skipped);
}

NamedTensors TrainStep::tensors() const {
  NamedTensors result;
  for (const auto& [name, tensor] : models::state(model_)) result.emplace_back("model." + name, tensor);
  for (const auto& [name, tensor] : optimizer_.state()) result.emplace_back("optimizer." + name, tensor);
  result.emplace_back("meter", meter_);
  for (const auto& [name, tensor] : memory_) result.emplace_back("state." + name, tensor);
  return result;
}

void TrainStep::restore(const std::map<std::string, at::Tensor>& saved, const std::string& origin) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : tensors()) {
    const auto found = saved.find(name);
    XF_CHECK(found != saved.end() && found->second.sizes() == tensor.sizes(), DataError,
             "{}: tensor {} is missing or has another shape", origin, name);
    at::Tensor(tensor).copy_(found->second);
  }
}

int64_t TrainStep::recorded() const {
  int64_t result = 0;
  for (const auto& [shape, bucket] : buckets_) result += bucket->replay.recorded() ? 1 : 0;
  return result;
}

std::optional<int64_t> TrainStep::kernels() const {
  return buckets_.empty() ? std::nullopt : buckets_.begin()->second->replay.kernels();
}

StepSums TrainStep::read_and_reset() {
  const at::Tensor host = at::cat({meter_, optimizer_.gradient_norm().view({1})}).cpu();
  const std::span<const double> sums(host.const_data_ptr<double>(), static_cast<size_t>(host.numel()));
  const tasks::Meters::Reading reading = meters_.read(sums);
  const double* const after = sums.data() + meters_.size();
  StepSums result{
      reading.loss, reading.weight, {}, after[2], static_cast<int64_t>(after[0]), static_cast<int64_t>(after[1])};
  if (result.weight == 0) result.loss = std::numeric_limits<double>::quiet_NaN();
  else if (!reading.metrics.empty()) result.metric = reading.metrics.front();
  meter_.narrow(0, 0, meters_.size()).zero_();
  return result;
}

}  // namespace xformer::training
