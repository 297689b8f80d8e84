#include "measure/profile.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>

#include "kernels/cpu/gemm.h"
#include "kernels/policy.h"
#include "measure/profile_floor.h"
#include "measure/subject.h"
#include "tensor/device.h"
#include "tensor/memory.h"
#include "tensor/op_profiler.h"
#include "training/record.h"

namespace xformer::measure {

namespace {

// Calls, times, bytes and FLOPs of one step, from the sums over `steps`; `peak` in FLOPs a second.
Json figures_json(const OpFigures& sum, int64_t steps, double step_ms, double peak) {
  const double n = static_cast<double>(steps), ms = 1e3 * sum.seconds / n, flops = static_cast<double>(sum.flops) / n;
  return {{"calls", static_cast<double>(sum.calls) / n},
          {"ms", ms},
          {"share", ms / step_ms},
          {"read_bytes", static_cast<double>(sum.read_bytes) / n},
          {"written_bytes", static_cast<double>(sum.written_bytes) / n},
          {"gathered_bytes", static_cast<double>(sum.gathered_bytes) / n},
          {"flops", flops},
          {"gflops_per_s", flops > 0 && ms > 0 ? Json(flops / ms / 1e6) : Json()},
          {"share_of_peak", flops > 0 && ms > 0 ? Json(1e3 * flops / ms / peak) : Json()}};
}

void add(const OpFigures& one, OpFigures& sum) {
  sum.calls += one.calls;
  sum.seconds += one.seconds;
  sum.read_bytes += one.read_bytes;
  sum.written_bytes += one.written_bytes;
  sum.gathered_bytes += one.gathered_bytes;
  sum.flops += one.flops;
}

void sort_by_time(Json& rows) {
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Json& left, const Json& right) { return left["ms"] > right["ms"]; });
}

class Profiling {
 public:
  Profiling(const ProfileOptions& options, const BenchCase& one, const BenchRun& run)
      : options_(options),
        case_(one),
        run_(run),
        recorder_(
            training::make_recorder(run.cuda_graph, run.device, [this](const auto& line) { not_captured_ = line; })),
        precision_(one.plan.options.values["training.precision"]),
        on_cpu_(run.device.is_cpu()),
        trains_(options.mode == "train"),
        warmup_(std::max<int64_t>(1, options.warmup)) {}

  Json results() {
    OpProfile profile;
    peaks();
    {
      const int64_t live_before = device_memory(run_.device).live_bytes;
      release_device_memory(run_.device);
      reset_device_peak(run_.device);
      Subject subject(case_, trains_, run_.device, training::Recorder{});
      for (int64_t i = 0; i < warmup_; ++i) step(subject, "warm-up");
      subject.settle();
      result_["parameters"] = models::parameter_count(subject.model());
      result_["backend"] = subject.model().backend();
      plain_steps(subject);
      result_["memory"]["peak_bytes"] = device_memory(run_.device).peak_bytes - live_before;
      profile = profiled_steps(subject);
    }
    release_device_memory(run_.device);
    captured_steps();
    products(profile);
    tables(profile);
    floor();
    outside_parallel(profile);
    return result_;
  }

 private:
  // Milliseconds of one step.
  double step(Subject& subject, const char* what) {
    tell(what);
    return subject.step().ms;
  }

  void tell(const char* what) {
    if (run_.stop_requested()) throw Interrupted("stopped by a signal; a profile that is not whole is not written");
    const int64_t captured = recorder_.record ? training::Replay::kPlainRuns + 1 + options_.steps : 0;
    const auto total = static_cast<double>(warmup_ + 2 * options_.steps + captured + (on_cpu_ ? 1 : 2));
    run_.progress(fmt::format("{}  length {}  batch {}  {}", case_.plan.model, case_.length, case_.batch, what),
                  std::min(static_cast<double>(done_++), total - 1) / total);
  }

  void plain_steps(Subject& subject) {
    std::vector<double> times;
    const int64_t faults = page_faults(), requests = device_memory(run_.device).system_requests;
    processor_ = processor_seconds([&] {
      for (int64_t i = 0; i < options_.steps; ++i) times.push_back(step(subject, "timed"));
    });
    const double n = static_cast<double>(options_.steps * subject.steps_at_once());
    for (const double ms : times) plain_ms_ += ms;
    result_["step_ms"] = spread(times);
    step_ms_ = result_["step_ms"]["median"];
    result_["host_ms"] = subject.host_ms();
    result_["memory"] = {
        {"system_requests_per_step", static_cast<double>(device_memory(run_.device).system_requests - requests) / n},
        {"page_faults_per_step", on_cpu_ ? Json(static_cast<double>(page_faults() - faults) / n) : Json()}};
  }

  void peaks() {
    std::vector<std::string> precisions = {"fp32", "bf16"};  // fp16, which a CPU only imitates, is held against fp32
    if (!on_cpu_) precisions.emplace_back("fp16");
    if (run_.device.is_cuda()) precisions.emplace_back("tf32");
    result_["peaks"] = Json::array();
    for (const std::string& precision : precisions) {
      tell("peak of products");
      const Peak peak = on_cpu_ ? product_peak(precision == "bf16" ? at::kBFloat16 : at::kFloat)
                                : device_product_peak(run_.device, precision);
      if (precision == "fp32" || precision == precision_) peak_ = peak;
      result_["peaks"].push_back({{"precision", precision},
                                  {"gflops_per_s", peak.rate / 1e9},
                                  {"library", peak.library},
                                  {"rows", peak.rows},
                                  {"columns", peak.columns},
                                  {"inner", peak.inner}});
    }
  }

  OpProfile profiled_steps(Subject& subject) {
    const auto step = [&](OpProfiler& profiler) {
      tell("operators timed");
      return profiler.time([&] { subject.run(); });
    };
    double queueing = 0;  // seconds in which the host asks for a step and its events, and more
    if (!on_cpu_) {
      OpProfiler rehearsal(run_.device);
      const auto start = std::chrono::steady_clock::now();
      step(rehearsal);
      queueing = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    double sum = 0;
    bool ahead = true;
    OpProfiler profiler(run_.device);
    for (int64_t i = 0; i < options_.steps; ++i) {
      constexpr double kMostHeld = 1;
      hold(run_.device, std::min(kMostHeld, queueing));
      const TimedWork timed = step(profiler);
      sum += timed.seconds;
      ahead = ahead && timed.queued_ahead;
    }
    profiled_ms_ = 1e3 * sum / static_cast<double>(options_.steps);
    result_["profiled_ms"] = profiled_ms_;
    result_["events"] = on_cpu_ ? Json() : Json{{"us", 1e6 * profiler.event_seconds()}, {"queued_ahead", ahead}};
    OpProfile profile = profiler.profile();
    for (auto& [name, figures] : profile.operators) figures.seconds = std::max(0.0, figures.seconds);
    for (auto& [product, figures] : profile.products) figures.seconds = std::max(0.0, figures.seconds);
    return profile;
  }

  // The same step as a CUDA graph, beside the plain one.
  void captured_steps() {
    Json& into = result_["captured"];
    if (on_cpu_) return;
    into = {
        {"step_ms", nullptr}, {"kernels_launched", nullptr}, {"reason", "steps are captured on CUDA devices alone"}};
    if (run_.device.is_cuda()) into["reason"] = "--cuda-graph off, or --kernels check";
    if (!recorder_.record) return;
    Subject subject(case_, trains_, run_.device, recorder_);
    for (int i = 0; i <= training::Replay::kPlainRuns; ++i) step(subject, "warm-up, captured");
    into["reason"] = not_captured_;
    if (!subject.captured()) return;
    subject.settle();
    std::vector<double> times;
    for (int64_t i = 0; i < options_.steps; ++i) times.push_back(step(subject, "timed, captured"));
    into["step_ms"] = spread(times);
    if (const auto kernels = subject.kernels()) into["kernels_launched"] = *kernels;
  }

  // What an operator, all calls of a step, takes at least.
  struct Floor {
    double arithmetic_ms = 0, memory_ms = 0;  // its products; its bytes
    double ms = 0;                            // the longer one, summed over operators

    void add(const Floor& other) { arithmetic_ms += other.arithmetic_ms, memory_ms += other.memory_ms, ms += other.ms; }
    [[nodiscard]] Json json(double taken_ms) const {
      return {{"arithmetic_ms", arithmetic_ms},
              {"memory_ms", memory_ms},
              {"floor_ms", ms},
              {"times_floor", ms > 0 ? Json(taken_ms / ms) : Json()}};
    }
  };

  Floor floor_of(const OpFigures& sum) {
    const double n = static_cast<double>(options_.steps), flops = static_cast<double>(sum.flops) / n;
    const double bytes = static_cast<double>(sum.read_bytes + sum.written_bytes) / n;
    Floor result;
    if (sum.product) result.arithmetic_ms = products_flops_ > 0 ? products_ms_ * flops / products_flops_ : 0;
    else result.arithmetic_ms = 1e3 * flops / peak_.rate;
    // Gathered rows lie in tensors of this size. Calls of several sizes are taken for calls of their mean, which takes
    // no longer than they do.
    if (bytes > 0)
      result.memory_ms = 1e3 * (bytes + static_cast<double>(sum.gathered_bytes) / n) /
                         rate_at(bytes * n / static_cast<double>(sum.calls));
    result.ms = std::max(result.arithmetic_ms, result.memory_ms);
    return result;
  }

  // Measured once for a power of two.
  double rate_at(double bytes) {
    constexpr int kSmallest = 16, kLargest = 28;  // a copy of less is over too soon
    const int power = std::clamp(static_cast<int>(std::log2(bytes)), kSmallest, kLargest);
    const auto [found, fresh] = copy_rates_.emplace(power, 0);
    if (fresh) {
      tell("rate of copies");
      found->second = copy_rate(int64_t{1} << power, run_.device);
    }
    return found->second;
  }

  void tables(const OpProfile& profile) {
    Json operators = Json::array(), kinds = Json::array();
    std::map<std::string, OpFigures> by_kind;
    std::map<std::string, Floor> floor_by_kind;
    for (const auto& [name, figures] : profile.operators) {
      const std::string kind = operator_kind(name, figures);
      Json row{{"operator", name}, {"kind", kind}};
      row.update(figures_json(figures, options_.steps, profiled_ms_, peak_.rate));
      const Floor own = floor_of(figures);
      row.update(own.json(row["ms"]));
      // How many keys a row reads is known on the device alone, and this program asks it for nothing.
      if (!on_cpu_ && kind == "attention" && figures.flops == 0) {
        row["flops"] = nullptr;
        not_counted_.push_back(name);
      }
      operators.push_back(std::move(row));
      floor_.add(own), floor_by_kind[kind].add(own);
      add(figures, by_kind[kind]);
      calls_ += static_cast<double>(figures.calls) / static_cast<double>(options_.steps);
      flops_ += static_cast<double>(figures.flops) / static_cast<double>(options_.steps);
    }
    for (const auto& [kind, figures] : by_kind) {
      Json row{{"kind", kind}};
      row.update(figures_json(figures, options_.steps, profiled_ms_, peak_.rate));
      row.update(floor_by_kind[kind].json(row["ms"]));
      kinds.push_back(std::move(row));
    }
    sort_by_time(operators);
    sort_by_time(kinds);
    result_["operators"] = operators;
    result_["kinds"] = kinds;
    const double outside = profiled_ms_ - 1e3 * profile.seconds() / static_cast<double>(options_.steps);
    result_["outside_operators"] = {{"ms", outside}, {"share", outside / profiled_ms_}};
  }

  void products(const OpProfile& profile) {
    Json rows = Json::array();
    for (const auto& [product, figures] : profile.products) {
      tell("products alone");
      if (figures.flops == 0) continue;
      const Json whole = figures_json(figures, options_.steps, profiled_ms_, peak_.rate);
      const double alone = whole["calls"].get<double>() * 1e3 * alone_seconds(product, run_.device),
                   flops = whole["flops"];
      products_ms_ += alone;
      products_flops_ += flops;
      rows.push_back({{"batch", product.batch},
                      {"rows", product.rows},
                      {"inner", product.inner},
                      {"columns", product.columns},
                      {"left_transposed", product.left_transposed},
                      {"right_transposed", product.right_transposed},
                      {"type", c10::toString(product.type)},
                      {"calls", whole["calls"]},
                      {"flops", flops},
                      {"ms", whole["ms"]},
                      {"alone_ms", alone},
                      {"gflops_per_s", whole["gflops_per_s"]},
                      {"alone_gflops_per_s", flops / alone / 1e6}});
    }
    sort_by_time(rows);
    result_["products"] = rows;
  }

  void floor() {
    Json rates = Json::array();
    for (const auto& [power, rate] : copy_rates_)
      rates.push_back({{"bytes", int64_t{1} << power}, {"gb_per_s", rate / 1e9}});
    result_["copies"] = rates;
    const double others = flops_ - products_flops_, floor_ms = products_ms_ + 1e3 * others / peak_.rate;
    const double step_ms = on_cpu_ ? step_ms_ : profiled_ms_;  // plain steps may wait for the host
    result_["floor"] = {{"ms", floor_ms},
                        {"flops", flops_},
                        {"gflops_per_s", floor_ms > 0 ? Json(flops_ / floor_ms / 1e6) : Json()},
                        {"products_flops", products_flops_},
                        {"products_ms", products_ms_},
                        {"other_flops", others},
                        {"step_over_floor", floor_ms > 0 ? Json(step_ms / floor_ms) : Json()},
                        {"memory_ms", floor_.memory_ms},
                        {"with_memory_ms", floor_.ms},
                        {"step_over_floor_with_memory", floor_.ms > 0 ? Json(step_ms / floor_.ms) : Json()},
                        {"not_counted", not_counted_}};
  }

  // 1 - (processor time of the other threads) / ((threads - 1) * wall), if those threads do not spin it away; and the
  // same with the main thread's processor time for wall, which other programs on the machine do not stretch.
  void outside_parallel(const OpProfile&) {
    const int64_t threads = at::get_num_threads();
    Json& into = result_["outside_parallel"];
    into = {{"share", nullptr}, {"share_of_processor_time", nullptr}, {"spin_us", nullptr}, {"reason", ""}};
    if (!on_cpu_) {
      into["reason"] = "the work is a device's";
      return;
    }
    if (threads == 1) {
      into["reason"] = "one thread";
      return;
    }
    const double spin_ms = 1e3 * spin_seconds();
    into["spin_us"] = 1e3 * spin_ms;
    constexpr double kMostSpinning = 0.05;  // of the step, were every operator call a parallel region
    if (spin_ms * calls_ > kMostSpinning * step_ms_) {
      into["reason"] = fmt::format(
          "threads spin for {:.0f} us after a parallel region, which counts as work; OMP_WAIT_POLICY=passive stops it",
          1e3 * spin_ms);
      return;
    }
    const double busy = processor_.others / static_cast<double>(threads - 1);
    into["share"] = std::clamp(1 - 1e3 * busy / plain_ms_, 0.0, 1.0);
    into["share_of_processor_time"] = std::clamp(1 - busy / processor_.own, 0.0, 1.0);
  }

  const ProfileOptions& options_;
  const BenchCase& case_;
  const BenchRun& run_;
  std::string not_captured_;  // why
  const training::Recorder recorder_;
  const std::string precision_;
  const bool on_cpu_, trains_;
  const int64_t warmup_;
  Json result_ = Json::object();
  Peak peak_;                                            // of the step's precision
  double step_ms_ = 0, plain_ms_ = 0, profiled_ms_ = 0;  // median and sum of plain steps; mean
  ProcessorSeconds processor_;                           // of plain steps
  double calls_ = 0, flops_ = 0;                         // a step
  double products_ms_ = 0, products_flops_ = 0;          // of a step, LibTorch's products, each alone
  std::map<int, double> copy_rates_;                     // bytes a second, by the power of two that are copied
  Floor floor_;
  std::vector<std::string> not_counted_;  // operators whose FLOPs nobody knows
  int64_t done_ = 0;
};

}  // namespace

Json run_profile(const ProfileOptions& options, const BenchCase& one, const BenchRun& run) {
  kernels::set_policy(kernels::parse_policy(run.kernels));
  Json report{{"schema_version", kProfileSchema}, {"command", run.command}};
  report.update(Profiling(options, one, run).results());
  const Json hardware = hardware_facts(run.device);
  report["conditions"] = {{"model", one.plan.model},
                          {"task", one.plan.task},
                          {"protocol", one.plan.protocol},
                          {"plan_hash", one.plan.hash()},
                          {"mode", options.mode},
                          {"length", one.length},
                          {"batch", one.batch},
                          {"device", run.device.str()},
                          {"threads", hardware["threads"]},
                          {"precision", one.plan.options.values["training.precision"]},
                          {"deterministic", run.deterministic},
                          {"kernels", run.kernels},
                          {"products", kernels::products_run()},
                          {"warmup", std::max<int64_t>(1, options.warmup)},
                          {"steps", options.steps},
                          {"dropout", options.mode == "train"},
                          {"input", bench_input(one)}};
  report["software"] = software_facts();
  report["hardware"] = hardware;
  report["date"] = training::utc_now();
  return report;
}

}  // namespace xformer::measure
