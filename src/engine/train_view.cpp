#include "engine/train_view.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <unistd.h>

#include <chrono>

#include "core/text.h"
#include "reporting/event_file.h"

namespace xformer::engine {

using namespace cli;

struct TrainView::State {
  State(Path run_folder, bool be_quiet) : folder(std::move(run_folder)), quiet(be_quiet) {}

  Path folder;
  bool quiet;
  TerminalOptions terminal = terminal_options(STDERR_FILENO);
  ProgressLine line{terminal};
  std::unique_ptr<reporting::EventFile> events;  // once the run has begun
  Eta eta;
  training::TrainPoint last;
  bool any_point = false;
  std::unique_ptr<spdlog::logger> diary;  // run.log: what stays on the screen, with times

  // A line that stays: on the screen, and in run.log.
  void keep(const std::string& text) {
    if (!quiet || text.starts_with("warning")) line.print(text);
    note(text);
  }

  // In run.log, once the run's folder exists. Not being able to write it is no reason to stop a run.
  void note(const std::string& text) {
    try {
      if (!diary && std::filesystem::is_directory(folder)) {
        auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>((folder / "run.log").string());
        diary = std::make_unique<spdlog::logger>("run", std::move(sink));
        diary->set_pattern("%Y-%m-%dT%H:%M:%S%z %v");
        diary->flush_on(spdlog::level::info);
        diary->set_error_handler([](const std::string&) {});
      }
      if (diary) diary->info(text);
    } catch (const spdlog::spdlog_ex&) {
      diary.reset();
    }
  }

  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  void show(int64_t step, int64_t steps, bool force) {
    if (quiet) return;
    std::string text = fmt::format("step {}/{}", format_count(step), format_count(steps));
    if (eta.seconds_left() >= 0) text += fmt::format("  {} left", format_duration(eta.seconds_left()));
    if (any_point) {
      text += std::isfinite(last.loss) ? fmt::format("  loss {:.4f}", last.loss) : "  loss -";
      if (last.metric) text += fmt::format("  {} {:.3f}", last.metric->spec.name, last.metric->value);
      text += fmt::format("  {:.1f} examples/s  {} tensors", last.examples_per_s, format_bytes(last.peak_bytes));
    }
    line.update(text, static_cast<double>(step) / static_cast<double>(std::max<int64_t>(steps, 1)), force);
  }
};

TrainView::TrainView(Path run_folder, bool quiet) : state_(std::make_unique<State>(std::move(run_folder), quiet)) {}
TrainView::~TrainView() = default;

void TrainView::on_message(const std::string& line) { state_->keep(line); }
void TrainView::on_ended(const std::string& why) { state_->note(why); }

void TrainView::on_start(const RunPlan& plan, int64_t parameters, double flops, int64_t first_step, int64_t steps) {
  state_->events = std::make_unique<reporting::EventFile>(state_->folder, first_step > 0 ? first_step + 1 : 0);
  state_->events->run_begins(plan.to_json());
  state_->keep(fmt::format("{} on {} ({}), seed {}: {} parameters, {:.3g} GFLOP per example forward, step {} of {}",
                           plan.name(), plan.task, plan.protocol, plan.seed,
                           format_count(static_cast<uint64_t>(parameters)), flops / 1e9, first_step, steps));
}

void TrainView::on_step(int64_t step, int64_t steps) {
  state_->eta.update(static_cast<double>(step), static_cast<double>(steps), State::now());
  if (state_->terminal.is_terminal) state_->show(step, steps, false);  // a pipe hears of lines of the log
}

void TrainView::on_train(const training::TrainPoint& point) {
  state_->last = point;
  state_->any_point = true;
  auto& events = *state_->events;
  events.scalar("train/loss", point.loss, point.step);
  if (point.metric) events.scalar("train/" + point.metric->spec.name, point.metric->value, point.step);
  events.scalar("train/learning_rate", point.learning_rate, point.step);
  events.scalar("train/gradient_norm", point.gradient_norm, point.step);
  events.scalar("speed/examples_per_s", point.examples_per_s, point.step);
  events.scalar("memory/peak_bytes", static_cast<double>(point.peak_bytes), point.step);
  events.flush();
  state_->show(point.step, point.steps, point.step == point.steps);
}

void TrainView::on_evaluating(const std::string& what, int64_t done, int64_t total) {
  if (state_->quiet) return;
  state_->line.update(fmt::format("evaluating {}  {}/{} batches", what, done, total),
                      static_cast<double>(done) / static_cast<double>(total));
}

namespace {

// "accuracy 0.8125 (top 5 0.9500)"
std::string metrics_text(const training::Evaluation& evaluation) {
  std::string text = fmt::format("{} {:.4f}", evaluation.headline().spec.name, evaluation.headline().value);
  for (size_t i = 1; i < evaluation.metrics.size(); ++i)
    text += fmt::format(" ({} {:.4f})", evaluation.metrics[i].spec.title, evaluation.metrics[i].value);
  return text;
}

}  // namespace

void TrainView::on_dev(int64_t step, const training::Evaluation& dev, bool best) {
  for (const Metric& metric : dev.metrics) state_->events->scalar("dev/" + metric.spec.name, metric.value, step);
  state_->events->scalar("dev/loss", dev.loss, step);
  state_->events->flush();
  state_->line.clear();
  state_->keep(fmt::format("step {}: dev {}, loss {:.4f} over {} examples in {}{}", format_count(step),
                           metrics_text(dev), dev.loss, format_count(dev.examples), format_duration(dev.seconds),
                           best && std::isfinite(dev.loss) ? ", best so far" : ""));
}

void TrainView::on_test(int64_t step, const training::Evaluation& test) {
  for (const Metric& metric : test.metrics) state_->events->scalar("test/" + metric.spec.name, metric.value, step);
  state_->events->scalar("test/loss", test.loss, step);
  state_->events->run_is_done();
  state_->events->flush();
  state_->line.clear();
  state_->keep(
      fmt::format("test {}, loss {:.4f} over {} examples", metrics_text(test), test.loss, format_count(test.examples)));
}

ProgressCallback TrainView::data_progress() {
  return state_->quiet ? Observer::data_progress() : progress_callback(state_->line);
}

}  // namespace xformer::engine
