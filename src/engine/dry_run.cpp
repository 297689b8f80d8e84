#include "engine/dry_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include "cli/printed.h"
#include "cli/progress.h"
#include "core/text.h"
#include "sweep/estimate.h"
#include "tensor/device.h"
#include "training/weights.h"

namespace xformer::engine {

namespace {

std::string flop_text(double flop) {
  for (const auto& [unit, name] : {std::pair{1e18, "EFLOP"}, std::pair{1e15, "PFLOP"}, std::pair{1e12, "TFLOP"}})
    if (flop >= unit) return fmt::format("{:.3g} {}", flop / unit, name);
  return fmt::format("{:.3g} GFLOP", flop / 1e9);
}

std::string plural(int64_t count, const char* what) {
  return fmt::format("{} {}{}", format_count(static_cast<uint64_t>(count)), what, count == 1 ? "" : "s");
}

// A dry run, while it looks at what there is.
class Look {
 public:
  Look(const RunPlan& plan, const training::RunOptions& options, const DryRun& how)
      : plan_(plan),
        options_(options),
        how_(how),
        dataset_(data::find_dataset(plan.task)),
        training_(plan::training_schema().read(plan.group("training"))) {}

  void print() {
    training::check_device(plan_, options_);
    const training::RunStanding standing = training::standing_of(options_.out, plan_, options_.resume);
    look_at_data();
    const data::DataShape shape = source_ ? source_->info().shape : plan::planned_shape(plan_);
    const auto model = plan::build_model(plan_, shape);
    const std::string guess = !source_ && dataset_.shape_is_likely ? " (a guess: only the files say the shape)" : "";
    if (guess.empty())
      training::prepare_model(
          *model, plan_, options_.init_from, options_.out, [](const std::string& text) { fmt::print("{}\n", text); },
          standing.kind);
    const int64_t length = plan::padded_len(plan_, shape);
    const double flops = model->cost(1, length).flops_executed;
    line("model", fmt::format("{} ({})", plan_.name(), plan_.family));
    line("task", fmt::format("{} (protocol {})", plan_.task, plan_.protocol));
    line("seed", std::to_string(plan_.seed));
    line("plan", plan_.hash());
    line("parameters", format_count(static_cast<uint64_t>(models::parameter_count(*model))) + guess);
    line("forward", fmt::format("{:.4g} GFLOP per example at length {}{}", flops / 1e9, length, guess));
    line("steps", steps());
    line("evaluation", fmt::format("{}{}", evaluation(), limit()));
    line("batch", batch());
    line("rate",
         fmt::format("{:g}, {} by {}{}", training_.learning_rate, training_.schedule, training_.optimizer,
                     course_.warmup > 0 ? fmt::format(", {} of rising rate", plural(course_.warmup, "step")) : ""));
    line("precision", fmt::format("{} ({})", training_.precision, plan_.options.origins.at("training.precision").text));
    const Json hardware = hardware_facts(options_.device);
    line("device", fmt::format("{}, {}", options_.device.str(), plural(hardware["threads"], "thread")));
    if (course_.steps > 0) line("training", flop_text(3 * flops * examples()) + " in all" + guess);
    line("data", data_text());
    cost(shape);
    line("run", options_.out.string() + run_text(standing));
    std::fflush(stdout);  // before the words of what is missing, also where both go into one file
    if (missing_) std::rethrow_exception(missing_);
  }

 private:
  static void line(const char* name, const std::string& text) { cli::print_labelled(name, text, 11); }

  // Files are looked at as the run would; what is generated only where its sizes matter.
  void look_at_data() {
    const bool generated = dataset_.generated && options_.data.folder.empty();
    if (!generated || how_.probe || training::counts_epochs(plan_)) {
      cli::ProgressLine shown(cli::terminal_options(STDERR_FILENO));
      try {
        source_ = training::open_data(plan_, options_.data, cli::progress_callback(shown), options_.stop_requested);
      } catch (const DataError&) {
        missing_ = std::current_exception();
      }
    }
    if (source_) course_ = training::course_of(plan_, *source_);
    else if (!training::counts_epochs(plan_)) course_ = training::planned_course(plan_);
  }

  [[nodiscard]] std::string steps() const {
    if (training_.epochs == 0) return format_count(static_cast<uint64_t>(course_.steps));
    const std::string epochs = plural(training_.epochs, "epoch");
    if (!source_) return epochs + " of as many steps as the data has batches";
    return fmt::format("{} ({} of {})", format_count(static_cast<uint64_t>(course_.steps)), epochs,
                       plural(course_.steps_per_epoch, "step"));
  }

  // Of all steps; the last batch of an epoch is what is left of the data.
  [[nodiscard]] double examples() const {
    const auto whole = static_cast<double>(training_.batch * course_.steps);
    if (!source_ || course_.steps_per_epoch == 0) return whole;
    const auto epoch = static_cast<double>(source_->size(data::Split::kTrain));
    return std::min(whole, epoch * static_cast<double>(course_.steps) / static_cast<double>(course_.steps_per_epoch));
  }

  [[nodiscard]] std::string evaluation() const {
    if (course_.eval_every == 0) return fmt::format("every {}", plural(training_.eval_epochs, "epoch"));
    if (course_.steps > 0 && course_.eval_every >= course_.steps) return "once, at the end";
    return fmt::format("every {}", plural(course_.eval_every, "step"));
  }
  [[nodiscard]] std::string limit() const {
    const std::string limit = plan_.options.values.value("data.limit", "");
    return limit.empty() ? "" : fmt::format("; only part of the data ({}): not comparable with other runs", limit);
  }

  [[nodiscard]] std::string batch() const {
    std::string text = std::to_string(training_.batch);
    if (training_.micro_batch > 0) text += fmt::format(", {} at once", training_.micro_batch);
    if (source_ && source_->size(data::Split::kTrain) < training_.batch)
      text += fmt::format(", more than the {} training examples", source_->size(data::Split::kTrain));
    return text;
  }

  [[nodiscard]] std::string data_text() const {
    if (missing_) return "not to be had, see below";
    std::string text = options_.data.folder.empty() ? "generated" : options_.data.folder.string();
    if (!source_) return text + ", on first use";
    for (const data::Split split : data::kAllSplits)
      text +=
          fmt::format(", {} {}", data::split_name(split), format_count(static_cast<uint64_t>(source_->size(split))));
    return text;
  }

  // Time and memory: measured where that was asked for, else as earlier runs had them.
  void cost(const data::DataShape& shape) const {
    if (how_.probe && source_) {
      const int64_t rows = std::min(training_.batch, source_->size(data::Split::kTrain));
      measure::BenchRun run;
      run.device = options_.device;
      run.deterministic = options_.deterministic;
      run.kernels = options_.kernels;
      run.cuda_graph = options_.cuda_graph;
      const measure::StepCost cost = measure::probe_steps(plan_, shape, rows, run);
      const std::string bytes = format_bytes(static_cast<uint64_t>(cost.memory_bytes));
      if (cost.status != "ok") {
        line("time", "none: " + cost.message + "; a smaller --micro-batch needs less");
        return;
      }
      const double seconds = expected_seconds(plan_, course_, *source_, rows, cost.step_seconds);
      line("time", fmt::format("about {}: {:.3g} s a step, of five with every place filled, and the evaluations",
                               format_duration(seconds), cost.step_seconds));
      line("memory", bytes + " in tensors");
      return;
    }
    sweep::Estimator records;
    records.learn_folder(Path("runs") / plan_.task);
    records.learn_folder(options_.out);
    if (!how_.records.empty()) records.learn_folder(how_.records);
    const auto estimate = records.of(plan_);
    if (!estimate) {
      line("time", "not known, nor memory: no earlier run tells; --probe takes five steps to find out");
      return;
    }
    line("time", fmt::format("about {}, as runs of {} took", format_duration(estimate->seconds), estimate->from));
    line("memory", format_bytes(static_cast<uint64_t>(estimate->peak_bytes)) + " of the process, or of the device");
  }

  [[nodiscard]] static std::string run_text(const training::RunStanding& standing) {
    switch (standing.kind) {
      case training::Standing::kNew:
        return " (new)";
      case training::Standing::kReplaced:
        return " (what it holds is replaced)";
      case training::Standing::kGoesOn:
        return fmt::format(" (goes on from step {})", standing.step);
      case training::Standing::kFinished:
        return " (finished: there is nothing to do)";
    }
    return "";
  }

  const RunPlan& plan_;
  const training::RunOptions& options_;
  const DryRun& how_;
  const data::DatasetDescriptor& dataset_;
  plan::TrainingOptions training_;
  std::unique_ptr<data::DataSource> source_;
  std::exception_ptr missing_;  // why there is no source
  training::Course course_;     // zeros while only the data could tell
};

}  // namespace

double expected_seconds(const RunPlan& plan, const training::Course& course, const data::DataSource& source,
                        int64_t rows, double step_seconds) {
  const auto evaluation = plan::eval_schema().read(plan.group("eval"));
  int64_t dev = source.size(data::Split::kDev);
  const int64_t test = training::dev_is_test(plan, source) ? 0 : source.size(data::Split::kTest);
  if (evaluation.parity && evaluation.dev_batches > 0) dev = evaluation.dev_batches * rows;
  const int64_t evaluations = (course.steps + course.eval_every - 1) / std::max<int64_t>(course.eval_every, 1);
  const double forward = step_seconds / 3 / static_cast<double>(rows);
  return static_cast<double>(course.steps) * step_seconds + static_cast<double>(evaluations * dev + test) * forward;
}

void print_dry_run(const RunPlan& plan, const training::RunOptions& options, const DryRun& how) {
  Look(plan, options, how).print();
}

}  // namespace xformer::engine
