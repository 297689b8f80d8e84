#include "training/loop.h"

#include <chrono>
#include <cmath>

#include "data/batches/lane_order.h"
#include "tensor/device.h"
#include "training/record.h"
#include "training/weights.h"

namespace xformer::training {

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Loop::Loop(const RunPlan& plan, const RunOptions& options, Observer& observer, RunDirectory& directory,
           std::unique_ptr<data::DataSource> source)
    : plan_(plan),
      options_(options),
      observer_(observer),
      directory_(directory),
      training_(plan::training_schema().read(plan.group("training"))),
      evaluation_(plan::eval_schema().read(plan.group("eval"))),
      selector_(training_, state_),
      source_(std::move(source)),
      clock_(options.device.is_cuda()) {}

Loop::Ending Loop::run() {
  look_at_data();
  build();
  go_on();
  while (state_.step < last_step_) {
    const bool due = state_.step > 0 && state_.step % training_.eval_every == 0;
    if (due && !evaluate_dev()) return interrupted();
    if (selector_.out_of_patience()) break;
    if (options_.stop_requested()) return interrupted();
    if (options_.stop_after > 0 && state_.step >= options_.stop_after) return end_early();
    train_one();
    if (state_.step % checkpoint_every() == 0 && state_.step < last_step_ && state_.step % training_.eval_every != 0)
      save();
  }
  if (!evaluate_dev()) return interrupted();
  if (saved_step_ != state_.step) save();
  // The last steps may all have been skipped, too few for training.max_skips.
  check_loss("dev", state_.dev.back().loss, state_.step);
  if (!test()) return interrupted();
  return {"completed", ""};
}

RunRecord Loop::record(const Ending& ending) const {
  RunRecord record = record_of_plan(plan_, options_.command);
  record.status = ending.status;
  record.message = ending.message;
  add_process(options_, record);
  if (!state_.kernels.empty()) record.kernels = fmt::format("{}", fmt::join(state_.kernels, ", then "));
  if (state_.deterministic) record.deterministic = *state_.deterministic;
  record.origins = Json::object();
  for (const auto& [key, origin] : plan_.options.origins)
    if (record.plan.contains(key)) record.origins[key] = origin.text;
  record.seeds = {{"run", plan_.seed}, {"derived", {"init", "order", "dropout"}}};
  record.train_seconds = state_.train_seconds;
  record.evaluation_seconds = state_.evaluation_seconds;
  record.steps = RunRecord::Steps{state_.step, last_step_};
  record.skipped_steps = state_.skipped_steps;
  record.resumed_at = state_.resumed_at;
  record.init_from = state_.init_from;
  record.train = state_.train;
  record.dev = state_.dev;
  record.test = test_;
  if (const StepTimes times = clock_.times(); !times.seconds.empty()) record.speed = speed_of(times);
  record.cuda_graph = RunRecord::CudaGraph{options_.cuda_graph, step_runner_ ? step_runner_->recorded() : 0};
  if (const auto now = energy_before_ ? device_energy(options_.device) : std::nullopt)
    record.energy = RunRecord::Energy{*now - *energy_before_, "NVML"};
  record.selection = RunRecord::Selection{training_.selection, "dev", selected_step_, state_.best};
  record.data = data_of(source_->info());
  if (!source_->info().details.contains("limit")) record.not_comparable.clear();  // the limit is no less than all
  record.selection->split = selection_split(source_->info());
  record.metrics =
      results_of(tasks::metric_specs(*tasks::make_task(source_->info().shape)), state_.best, test_, chance_);
  record.metrics.insert(record.metrics.end(), changes_.begin(), changes_.end());
  if (!model_) return record;
  record.backend = model_->backend();  // only now: attention may choose with its inputs
  record.parameters = models::parameter_count(*model_);
  record.flops = RunRecord::Flops{model_->cost(1, order_.padded_len).flops_executed, order_.padded_len};
  return record;
}

std::string Loop::what_is_kept() const {
  if (!saved_step_) return "";
  if (*saved_step_ < 0) return "there is no checkpoint yet: the same command begins anew";
  return fmt::format(
      "the last checkpoint, of step {}, is kept: the same command goes on from it; another --micro-batch or plan needs "
      "another --out",
      *saved_step_);
}

int64_t Loop::checkpoint_every() const {
  return options_.checkpoint_every > 0 ? options_.checkpoint_every : training_.eval_every;
}

void Loop::look_at_data() {
  const int64_t duplicates = source_->info().details.value("duplicates_across_splits", int64_t{0});
  if (duplicates > 0)
    observer_.on_message(
        fmt::format("warning: {} examples occur in more than one split; `xformer data check` names them", duplicates));
  for (const data::Shift& shift : plan::shifts_of(plan_))
    shifted_.emplace_back(shift.name, data::shifted(*source_, shift));
  order_ = training_order(plan_, source_->info().shape);
  const Course course = course_of(plan_, *source_);
  last_step_ = course.steps;
  steps_per_epoch_ = course.steps_per_epoch;
  training_.eval_every = course.eval_every;
  training_.warmup = course.warmup;
}

void Loop::build() {
  model_ = plan::build_model(plan_, source_->info().shape);
  const auto say = [this](const std::string& line) { observer_.on_message(line); };
  if (Json init = prepare_model(*model_, plan_, options_.init_from, directory_.folder(), say); !init.is_null())
    state_.init_from = std::move(init);
  model_->to(options_.device);
  Recorder recorder = options_.recorder ? *options_.recorder : make_recorder(options_.cuda_graph, options_.device, say);
  recorder.prepared = std::make_shared<bool>(false);
  step_runner_ = std::make_unique<TrainStep>(*model_, source_->info().shape, training_, options_.device, recorder);
  if (training_.buckets > 1) step_runner_->expect(order_.padded_len);
  evaluator_ = std::make_unique<Evaluator>(*model_, tasks::make_task(source_->info().shape), options_.device, recorder);
  schedule_ = {training_.schedule, training_.learning_rate, training_.warmup, last_step_,
               training_.beta1,    training_.cycle_beta1,   steps_per_epoch_};
}

void Loop::go_on() {
  const std::optional<Checkpoint> checkpoint = directory_.latest_checkpoint();
  const bool begun = directory_.log_bytes() > 0;
  const std::string& sha256 = source_->info().sha256;
  if (checkpoint) {
    XF_CHECK(checkpoint->state.data_sha256 == sha256, DataError,
             "{}: this run was begun with data of SHA-256 {}, but the data found now has {}; give the same --data, "
             "or another --out",
             directory_.folder().string(), checkpoint->state.data_sha256, sha256);
    restore(*checkpoint);
  }
  state_.data_sha256 = sha256;
  directory_.truncate_log(state_.log_bytes);
  if (!checkpoint) {
    std::vector<MetricSpec> metrics = tasks::metric_specs(evaluator_->task());
    directory_.log({{"event", "start"},
                    {"plan", plan_.hash()},
                    {"seed", plan_.seed},
                    {"data_sha256", sha256},
                    {"metrics", written(metrics)}});
  }
  if (begun) {
    state_.resumed_at.push_back(state_.step);
    directory_.log({{"event", "resumed"}, {"step", state_.step}});
    observer_.on_message(fmt::format("resumed at step {} of {}", state_.step, last_step_));
  }
  note_process();
  saved_step_ = checkpoint ? state_.step : -1;
  observer_.on_start(plan_, models::parameter_count(*model_), model_->cost(1, order_.padded_len).flops_executed,
                     state_.step, last_step_);
  clock_.forget_faults();
  reset_device_peak(options_.device);
  energy_before_ = device_energy(options_.device);
}

void Loop::note_process() {
  if (state_.kernels.empty() || state_.kernels.back() != options_.kernels) state_.kernels.push_back(options_.kernels);
  const bool other_order = state_.deterministic && *state_.deterministic != options_.deterministic;
  if (state_.kernels.size() > 1 || other_order)
    observer_.on_message(
        "warning: other --kernels or --deterministic than this run began with: it is not the run that it would have "
        "been, and its record names both");
  state_.deterministic = options_.deterministic && state_.deterministic.value_or(true);
}

void Loop::restore(const Checkpoint& checkpoint) {
  step_runner_->restore(checkpoint.tensors, fmt::format("checkpoint of step {}", checkpoint.state.step));
  selector_.restore(checkpoint.tensors, *model_);
  state_ = checkpoint.state;
}

void Loop::save() {
  NamedTensors all = step_runner_->tensors();
  all.insert(all.end(), selector_.best_weights().begin(), selector_.best_weights().end());
  directory_.save_checkpoint(all, state_);
  saved_step_ = state_.step;
}

void Loop::train_one() {
  if (!batches_)
    batches_ = std::make_unique<data::Prefetcher>(*source_, data::Split::kTrain,
                                                  data::make_training_order(*source_, order_), state_.step, last_step_);
  const auto start = std::chrono::steady_clock::now();
  const data::HostBatch& batch = batches_->next();
  const double waited = seconds_since(start);
  step_runner_->run(batch, state_.step, plan::schedule_at(schedule_, state_.step));
  ++state_.step;
  const double seconds = seconds_since(start);
  state_.train_seconds += seconds;
  clock_.step(seconds, {batch.filled, waited, batch.made_in});
  observer_.on_step(state_.step, last_step_);
  if (state_.step % training_.log_every == 0 || state_.step == last_step_) report();
}

void Loop::report() {
  const auto start = std::chrono::steady_clock::now();
  const StepSums sums = step_runner_->read_and_reset();  // waits for the device
  const double waited = seconds_since(start);
  state_.train_seconds += waited;
  const StepInterval interval = clock_.close(waited);
  const MemoryUse memory = device_memory(options_.device);
  state_.train.reset();
  if (std::isfinite(sums.loss)) state_.train = RunRecord::Train{state_.step, sums.loss};
  TrainPoint point;
  point.step = state_.step;
  point.steps = last_step_;
  point.loss = sums.loss;
  point.metric = sums.metric;
  point.learning_rate = plan::schedule_at(schedule_, state_.step - 1).learning_rate;
  point.gradient_norm = sums.gradient_norm;
  point.examples_per_s = static_cast<double>(interval.examples) / interval.seconds;
  point.live_bytes = memory.live_bytes;
  point.peak_bytes = memory.peak_bytes;
  point.page_faults_per_step = interval.page_faults_per_step;
  Json entry{{"event", "train"}, {"step", state_.step}, {"loss", point.loss}};
  if (point.metric) entry[point.metric->spec.name] = point.metric->value;
  entry.update(Json{{"learning_rate", point.learning_rate},
                    {"gradient_norm", point.gradient_norm},
                    {"skipped_steps", sums.skipped},
                    {"examples_per_s", point.examples_per_s},
                    {"memory_peak_bytes", point.peak_bytes},
                    {"page_faults_per_step", point.page_faults_per_step}});
  directory_.log(entry);
  observer_.on_train(point);
  state_.skipped_steps = sums.skipped;
  if (sums.skipped_in_a_row > training_.max_skips)
    throw Diverged(
        fmt::format("the gradient was not finite for {} steps in a row up to step {} (training.max_skips is {}); {}",
                    sums.skipped_in_a_row, state_.step, training_.max_skips, after_divergence()));
}

std::string Loop::after_divergence() const {
  return fmt::format(
      "{}; a lower training.learning_rate (it is {}), a longer training.warmup ({}) or training.clip_norm ({}; 0: off) "
      "may help",
      *saved_step_ < 0 ? "there is no checkpoint yet" : fmt::format("the last checkpoint is of step {}", *saved_step_),
      training_.learning_rate, training_.warmup, training_.clip_norm);
}

void Loop::check_loss(const char* split, double loss, int64_t step) const {
  if (!std::isfinite(loss))
    throw Diverged(fmt::format("the loss on {} of the weights of step {} is not finite ({}); {}", split, step, loss,
                               after_divergence()));
}

bool Loop::evaluate_dev() {
  if (state_.evaluated_step == state_.step) return true;
  EvaluationRequest request = evaluation_request(data::Split::kDev);
  if (evaluation_.parity) {
    const int64_t full = std::max<int64_t>(1, source_->size(data::Split::kDev) / request.batch);
    request.parity_batches = evaluation_.dev_batches > 0 ? evaluation_.dev_batches : full;
    request.call = static_cast<int64_t>(state_.dev.size());
    request.seed = derive_seed(static_cast<uint64_t>(plan_.seed), "dev order");
  }
  // Looked at once, in the form of the test: its answers are those of predictions.csv if these weights are selected.
  std::unique_ptr<tasks::Answers> answers;
  if (dev_is_test(plan_, *source_)) answers = evaluator_->task().answers();
  request.answers = answers.get();
  const auto dev = evaluator_->run(*source_, request);
  if (!dev) return false;
  state_.evaluation_seconds += dev->seconds;
  const EvaluationPoint point = point_of(*dev, state_.step);
  const bool best = selector_.take(point, dev->headline().spec, *model_);
  if (answers && selector_.selected_step() == state_.step) tested_ = Tested{state_.step, *dev, std::move(answers)};
  Json entry{{"event", "dev"}};
  entry.update(written(point));
  entry["best"] = best;
  directory_.log(entry);
  observer_.on_dev(state_.step, *dev, best);
  state_.evaluated_step = state_.step;
  clock_.forget_faults();
  save();
  return true;
}

EvaluationRequest Loop::evaluation_request(data::Split split) {
  EvaluationRequest request;
  request.split = split;
  request.batch = evaluation_.batch > 0 ? evaluation_.batch : training_.batch;
  request.padded_len = order_.padded_len;
  request.precision = training_.precision;
  request.stop_requested = options_.stop_requested;
  request.progress = [this, what = data::split_name(split)](int64_t done, int64_t total) {
    observer_.on_evaluating(what, done, total);
  };
  return request;
}

bool Loop::test() {
  selector_.put_selected(*model_);
  selected_step_ = selector_.selected_step();
  // A process that went on has not seen the answers of before, and gets the same anew.
  if (!tested_ || tested_->step != *selected_step_) {
    std::unique_ptr<tasks::Answers> answers = evaluator_->task().answers();
    EvaluationRequest request = evaluation_request(data::Split::kTest);
    request.drop_remainder = evaluation_.parity;
    request.answers = answers.get();
    auto result = evaluator_->run(*source_, request);
    if (!result) return false;
    state_.evaluation_seconds += result->seconds;
    tested_ = Tested{*selected_step_, std::move(*result), std::move(answers)};
  }
  check_loss("test", tested_->result.loss, *selected_step_);
  test_ = point_of(tested_->result);
  chance_ = tested_->answers->constant_answer();
  tasks::AnswerNames names{{}, [this](int64_t index) { return source_->name(data::Split::kTest, index); }};
  for (const Json& name : source_->info().details.value("classes", Json::array()))
    names.classes.push_back(name.get<std::string>());
  tested_->answers->write(directory_.folder() / "predictions.csv", names);
  write_tensor_file(directory_.folder() / "model.safetensors", models::state(*model_),
                    {{"plan", plan_.to_json().dump()}, {"step", std::to_string(*selected_step_)}});
  Json entry{{"event", "test"}, {"step", state_.step}};
  entry.update(written(*test_));
  directory_.log(entry);
  observer_.on_test(*selected_step_, tested_->result);
  if (!test_shifted()) return false;
  directory_.log({{"event", "finished"}, {"step", state_.step}});
  return true;
}

bool Loop::test_shifted() {
  for (const auto& [shift, source] : shifted_) {
    EvaluationRequest request = evaluation_request(data::Split::kTest);
    request.drop_remainder = evaluation_.parity;
    const auto result = evaluator_->run(*source, request);
    if (!result) return false;
    state_.evaluation_seconds += result->seconds;
    const Metric& headline = result->headline();
    changes_.push_back(change_of(tested_->result.headline(), headline, shift));
    observer_.on_message(fmt::format("test under {}: {} {:.4f}, a change of {:+.4f}", shift, headline.spec.name,
                                     headline.value, *changes_.back().value));
    Json entry{{"event", "shift"}, {"shift", shift}};
    entry.update(written(point_of(*result)));
    directory_.log(entry);
  }
  return true;
}

Loop::Ending Loop::interrupted() {
  put_away();
  return {"interrupted", fmt::format("stopped by a signal at step {}; the same command goes on", state_.step)};
}

Loop::Ending Loop::end_early() {
  put_away();
  return {"stopped", fmt::format("--stop-after {} reached at step {}; the same command without it goes on",
                                 options_.stop_after, state_.step)};
}

void Loop::put_away() {
  if (saved_step_ != state_.step) save();
  directory_.sync_log();
}

}  // namespace xformer::training
