#include "training/trainer.h"

#include <ATen/Functions.h>

#include <chrono>

#include "kernels/policy.h"
#include "tensor/device.h"
#include "tensor/torch_errors.h"
#include "training/record.h"
#include "training/step_clock.h"
#include "training/weights.h"

namespace xformer::training {

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The whole of one call of train(): everything between an open run directory and its record.
class Run {
 public:
  Run(const RunPlan& plan, const RunOptions& options, Observer& observer, RunDirectory& directory)
      : plan_(plan),
        options_(options),
        observer_(observer),
        directory_(directory),
        training_(plan::training_schema().read(plan.group("training"))),
        evaluation_(plan::eval_schema().read(plan.group("eval"))),
        clock_(options.device.is_cuda()) {
    state_ = {{"best", nullptr}, {"dev_points", Json::array()}, {"resumed_at", Json::array()}};
  }

  // Runs to an ending; `facts()` is right whatever is thrown.
  void run() {
    open_data();
    build();
    go_on();
    while (step_ < last_step_) {
      const bool due = step_ > 0 && step_ % training_.eval_every == 0;
      if (due && !evaluate_dev()) return interrupted();
      if (out_of_patience()) break;
      if (options_.stop_requested()) return interrupted();
      if (options_.stop_after > 0 && step_ >= options_.stop_after) return end_early();
      train_one();
      if (step_ % checkpoint_every() == 0 && step_ < last_step_ && step_ % training_.eval_every != 0) save();
    }
    if (!evaluate_dev()) return interrupted();
    if (saved_step_ != step_) save();
    if (!test()) return interrupted();
    facts_.status = "completed";
  }

  RunFacts& facts() {
    facts_.steps_done = step_;
    facts_.state = state_;
    if (model_) facts_.backend = model_->backend();  // what ran: a fused operator chooses with its inputs
    facts_.times = clock_.times();
    if (const auto now = energy_before_ ? device_energy(options_.device) : std::nullopt)
      facts_.energy_joules = *now - *energy_before_;
    facts_.recorded_steps = step_runner_ ? step_runner_->recorded() : 0;
    return facts_;
  }

 private:
  [[nodiscard]] int64_t checkpoint_every() const {
    return options_.checkpoint_every > 0 ? options_.checkpoint_every : training_.eval_every;
  }

  void open_data() {
    const data::DatasetDescriptor& dataset = data::find_dataset(plan_.task);
    const ProgressCallback show = observer_.data_progress();
    source_ =
        dataset.open(plan_.group("data"), options_.data, [&](std::string_view what, uint64_t done, uint64_t total) {
          show(what, done, total);
          if (options_.stop_requested())
            throw Interrupted("stopped by a signal while the data was made ready; the same command goes on");
        });
    facts_.data = source_->info();
    const int64_t duplicates = facts_.data->details.value("duplicates_across_splits", int64_t{0});
    if (duplicates > 0)
      observer_.on_message(fmt::format(
          "warning: {} examples occur in more than one split; `xformer data check` names them", duplicates));
    order_ = {training_.batch,
              plan::padded_len(plan_, source_->info().shape),
              training_.buckets,
              derive_seed(static_cast<uint64_t>(plan_.seed), "order"),
              data::batching_of(plan_.group("data")),
              /*augment=*/true};
    last_step_ = training_.steps;
    steps_per_epoch_ = data::ExampleOrder(*source_, data::Split::kTrain, order_).batches_per_epoch();
    if (training_.epochs > 0) last_step_ = training_.epochs * steps_per_epoch_;
    if (training_.eval_epochs > 0) training_.eval_every = training_.eval_epochs * steps_per_epoch_;
    if (training_.warmup_epochs > 0) training_.warmup = training_.warmup_epochs * steps_per_epoch_;
    facts_.steps_planned = last_step_;
    facts_.padded_len = order_.padded_len;
  }

  void build() {
    model_ = plan::build_model(plan_, source_->info().shape);
    const auto say = [this](const std::string& line) { observer_.on_message(line); };
    if (Json init = prepare_model(*model_, plan_, options_.init_from, directory_.folder(), say); !init.is_null())
      state_["init_from"] = std::move(init);
    model_->to(options_.device);
    const Recorder recorder = make_recorder(options_.cuda_graph, options_.device, say);
    step_runner_ = std::make_unique<TrainStep>(*model_, source_->info().shape, training_, options_.device, recorder);
    evaluator_ =
        std::make_unique<Evaluator>(*model_, tasks::make_task(source_->info().shape), options_.device, recorder);
    schedule_ = {training_.schedule, training_.learning_rate, training_.warmup, last_step_,
                 training_.beta1,    training_.cycle_beta1,   steps_per_epoch_};
    facts_.parameters = models::parameter_count(*model_);
    facts_.flops_forward = model_->cost(1, order_.padded_len).flops_executed;
    facts_.examples_per_step = static_cast<double>(training_.batch);
  }

  // Takes up the newest whole checkpoint, or starts at step 0.
  void go_on() {
    const std::optional<Checkpoint> checkpoint = directory_.latest_checkpoint();
    const bool begun = directory_.log_bytes() > 0;
    if (checkpoint) {
      const std::string before = checkpoint->state.value("data_sha256", "");
      XF_CHECK(before == facts_.data->sha256, DataError,
               "{}: this run was begun with data of SHA-256 {}, but the data found now has {}; give the same --data, "
               "or another --out",
               directory_.folder().string(), before, facts_.data->sha256);
      restore(*checkpoint);
    }
    directory_.truncate_log(checkpoint ? checkpoint->state.value("log_bytes", uint64_t{0}) : 0);
    if (!checkpoint)
      directory_.log(
          {{"event", "start"}, {"plan", plan_.hash()}, {"seed", plan_.seed}, {"data_sha256", facts_.data->sha256}});
    if (begun) {
      state_["resumed_at"].push_back(step_);
      directory_.log({{"event", "resumed"}, {"step", step_}});
      observer_.on_message(fmt::format("resumed at step {} of {}", step_, last_step_));
    }
    saved_step_ = checkpoint ? step_ : -1;
    observer_.on_start(plan_, facts_.parameters, facts_.flops_forward, step_, last_step_);
    clock_.forget_faults();
    reset_device_peak(options_.device);
    energy_before_ = device_energy(options_.device);
  }

  void restore(const Checkpoint& checkpoint) {
    step_runner_->restore(checkpoint.tensors, fmt::format("checkpoint of step {}", checkpoint.step));
    // In the model's order, so that the next checkpoint has the bytes it would have had.
    for (const auto& [name, tensor] : models::state(*model_))
      if (const auto best = checkpoint.tensors.find("best." + name); best != checkpoint.tensors.end())
        best_.emplace_back(name, best->second);
    step_ = checkpoint.step;
    state_ = checkpoint.state;
    facts_.train_seconds = state_.value("train_seconds", 0.0);
    facts_.evaluation_seconds = state_.value("evaluation_seconds", 0.0);
    evaluated_step_ = state_.value("evaluated_step", int64_t{-1});
  }

  void save() {
    NamedTensors tensors = step_runner_->tensors();
    for (const auto& [name, tensor] : best_) tensors.emplace_back("best." + name, tensor);
    state_["evaluated_step"] = evaluated_step_;
    state_["data_sha256"] = facts_.data->sha256;
    state_["train_seconds"] = facts_.train_seconds;
    state_["evaluation_seconds"] = facts_.evaluation_seconds;
    directory_.save_checkpoint(step_, tensors, state_);
    saved_step_ = step_;
  }

  void train_one() {
    if (!batches_)
      batches_ = std::make_unique<data::Prefetcher>(
          *source_, data::Split::kTrain, std::make_unique<data::ExampleOrder>(*source_, data::Split::kTrain, order_),
          step_, last_step_);
    const auto start = std::chrono::steady_clock::now();
    const data::HostBatch& batch = batches_->next();
    const double waited = seconds_since(start);
    step_runner_->run(batch, step_, plan::schedule_at(schedule_, step_));
    ++step_;
    const double seconds = seconds_since(start);
    facts_.train_seconds += seconds;
    clock_.step(seconds, waited);
    observer_.on_step(step_, last_step_);
    if (step_ % training_.log_every == 0 || step_ == last_step_) report();
  }

  void report() {
    const auto start = std::chrono::steady_clock::now();
    const StepSums sums = step_runner_->read_and_reset();  // waits for the device
    const double waited = seconds_since(start);
    facts_.train_seconds += waited;
    const StepInterval interval = clock_.close(waited);
    const MemoryUse memory = device_memory(options_.device);
    TrainPoint point;
    point.step = step_;
    point.steps = last_step_;
    point.loss = sums.loss;
    point.metric = sums.metric;
    point.learning_rate = plan::schedule_at(schedule_, step_ - 1).learning_rate;
    point.gradient_norm = sums.gradient_norm;
    point.examples_per_s = static_cast<double>(training_.batch * interval.steps) / interval.seconds;
    point.live_bytes = memory.live_bytes;
    point.peak_bytes = memory.peak_bytes;
    point.page_faults_per_step = interval.page_faults_per_step;
    Json entry{{"event", "train"}, {"step", step_}, {"loss", point.loss}};
    if (point.metric) entry[point.metric->spec.name] = point.metric->value;
    entry.update({{"learning_rate", point.learning_rate},
                  {"gradient_norm", point.gradient_norm},
                  {"skipped_steps", sums.skipped},
                  {"examples_per_s", point.examples_per_s},
                  {"memory_peak_bytes", point.peak_bytes},
                  {"page_faults_per_step", point.page_faults_per_step}});
    directory_.log(entry);
    observer_.on_train(point);
    state_["skipped_steps"] = sums.skipped;
    if (sums.skipped_in_a_row > training_.max_skips)
      throw Diverged(
          fmt::format("the gradient was not finite for {} steps in a row up to step {} (training.max_skips is {}); {}",
                      sums.skipped_in_a_row, step_, training_.max_skips,
                      saved_step_ < 0 ? "there is no checkpoint yet"
                                      : fmt::format("the last checkpoint is of step {}", saved_step_)));
  }

  // False when a stop was requested on the way.
  bool evaluate_dev() {
    if (evaluated_step_ == step_) return true;
    EvaluationRequest request = evaluation_request(data::Split::kDev);
    if (evaluation_.parity) {
      const int64_t full = std::max<int64_t>(1, source_->size(data::Split::kDev) / request.batch);
      request.parity_batches = evaluation_.dev_batches > 0 ? evaluation_.dev_batches : full;
      request.call = static_cast<int64_t>(state_["dev_points"].size());
      request.seed = derive_seed(static_cast<uint64_t>(plan_.seed), "dev order");
    }
    const auto dev = evaluator_->run(*source_, request);
    if (!dev) return false;
    facts_.evaluation_seconds += dev->seconds;
    const Metric& metric = dev->headline();
    const bool best = state_["best"].is_null() || metric.better_than(state_["best"][metric.spec.name].get<double>());
    Json point{{"step", step_}, {metric.spec.name, metric.value}, {"loss", dev->loss}, {"examples", dev->examples}};
    for (const Metric& one : dev->metrics) point[one.spec.name] = one.value;
    state_["dev_points"].push_back(point);
    if (best) {
      state_["best"] = point;
      if (training_.selection == "best_dev") {
        best_.clear();
        for (const auto& [name, tensor] : models::state(*model_)) best_.emplace_back(name, tensor.detach().clone());
      }
    }
    point["best"] = best;
    Json entry{{"event", "dev"}};
    entry.update(point);
    directory_.log(entry);
    observer_.on_dev(step_, *dev, best);
    evaluated_step_ = step_;
    clock_.forget_faults();
    save();
    return true;
  }

  [[nodiscard]] bool out_of_patience() const {
    if (training_.patience == 0 || state_["best"].is_null()) return false;
    int64_t since = 0;
    for (const Json& point : state_["dev_points"]) since += point["step"] > state_["best"]["step"];
    return since >= training_.patience;
  }

  EvaluationRequest evaluation_request(data::Split split) {
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

  bool test() {
    const at::NoGradGuard no_grad;
    if (training_.selection == "best_dev") {
      const std::map<std::string, at::Tensor> best(best_.begin(), best_.end());
      for (const auto& [name, tensor] : models::state(*model_)) at::Tensor(tensor).copy_(best.at(name));
    }
    facts_.selected_step = training_.selection == "best_dev" ? state_["best"]["step"] : Json(step_);
    const std::unique_ptr<tasks::Answers> answers = evaluator_->task().answers();
    EvaluationRequest request = evaluation_request(data::Split::kTest);
    request.drop_remainder = evaluation_.parity;
    request.answers = answers.get();
    const auto result = evaluator_->run(*source_, request);
    if (!result) return false;
    facts_.evaluation_seconds += result->seconds;
    facts_.test = *result;
    facts_.chance = answers->constant_answer();
    answers->write(directory_.folder() / "predictions.csv");
    write_tensor_file(directory_.folder() / "model.safetensors", models::state(*model_),
                      {{"plan", plan_.to_json().dump()}, {"step", facts_.selected_step.dump()}});
    directory_.log({{"event", "test"},
                    {"step", step_},
                    {result->headline().spec.name, result->headline().value},
                    {"loss", result->loss},
                    {"examples", result->examples}});
    directory_.log({{"event", "finished"}, {"step", step_}});
    observer_.on_test(*result);
    return true;
  }

  void interrupted() {
    if (saved_step_ != step_) save();
    directory_.sync_log();
    facts_.status = "interrupted";
    facts_.message = fmt::format("stopped by a signal at step {}; the same command goes on", step_);
  }

  void end_early() {
    if (saved_step_ != step_) save();
    directory_.sync_log();
    facts_.status = "stopped";
    facts_.message = fmt::format("--stop-after {} reached at step {}; the same command without it goes on",
                                 options_.stop_after, step_);
  }

  const RunPlan& plan_;
  const RunOptions& options_;
  Observer& observer_;
  RunDirectory& directory_;
  plan::TrainingOptions training_;
  plan::EvalOptions evaluation_;
  std::unique_ptr<data::DataSource> source_;
  data::OrderOptions order_;
  std::shared_ptr<models::Model> model_;
  std::unique_ptr<TrainStep> step_runner_;
  std::unique_ptr<Evaluator> evaluator_;
  plan::ScheduleOptions schedule_;
  std::unique_ptr<data::Prefetcher> batches_;
  NamedTensors best_;
  RunFacts facts_;
  Json state_ = Json::object();
  int64_t steps_per_epoch_ = 1, step_ = 0, last_step_ = 0, saved_step_ = -1, evaluated_step_ = -1;
  StepClock clock_;
  std::optional<double> energy_before_;
};

}  // namespace

Json train(const RunPlan& plan, const RunOptions& options, Observer& observer) {
  // What the device cannot do is said before anything is written.
  set_float_products(plan.options.values["training.precision"], options.device);
  kernels::set_policy(kernels::parse_policy(options.kernels));
  static_cast<void>(make_recorder(options.cuda_graph, options.device, {}));
  RunDirectory directory(options.out, plan.to_json(), options.resume,
                         [&](const std::string& text) { observer.on_message("warning: " + text); });
  if (directory.finished_record()) return *directory.finished_record();
  Run run(plan, options, observer, directory);
  const auto write_record = [&] {
    Json record = make_record(plan, options, run.facts());
    write_file_atomically(directory.record_path(), record.dump(2) + "\n");
    return record;
  };
  try {
    try {
      run.run();
    } catch (...) {
      rethrow_translated();
    }
  } catch (const Error& error) {
    run.facts().message = error.what();
    run.facts().status = status_of(error);
    try {
      write_record();
    } catch (const Error& second) {
      // The first failure is the one to tell (a full disk refuses the record too).
      observer.on_message(fmt::format("warning: no record could be written: {}", second.what()));
    }
    throw;
  }
  Json record = write_record();
  if (run.facts().status == "interrupted") throw Interrupted(run.facts().message);
  return record;
}

}  // namespace xformer::training
