#include "measure/bench.h"

#include <ATen/Functions.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "core/text.h"
#include "kernels/cpu/gemm.h"
#include "kernels/policy.h"
#include "measure/subject.h"
#include "tensor/device.h"
#include "tensor/memory.h"
#include "tensor/op_counter.h"
#include "tensor/torch_errors.h"
#include "training/record.h"

namespace xformer::measure {

namespace {

// What the descriptor of its attention says; null where the model has none.
Json attention_facts(const BenchCase& one) {
  if (!models::all_families().get(one.plan.family).takes_attention) return nullptr;
  const attention::Resolved& attention = one.request.attention;
  return {{"class", attention.base->method_class},
          {"growth", attention::complexity_name(attention.base->complexity)},
          {"causal", attention.traits().causal_ok}};
}

class Bench {
 public:
  Bench(const BenchOptions& options, const std::vector<BenchCase>& cases, const BenchRun& run)
      : options_(options), cases_(cases), run_(run), trains_(options.mode == "train") {
    recorder_ = training::make_recorder(run.cuda_graph, run.device, run.say);
    // The second step is counted; where steps are captured, that happens after the plain ones.
    warmup_ = std::max<int64_t>(options.warmup, recorder_.record ? training::Replay::kPlainRuns + 1 : 2);
    const int64_t passes = options.interleave ? 2 : 1;
    total_ = static_cast<int64_t>(cases.size()) * (passes * warmup_ + options.steps);
  }

  Json rows() {
    for (const BenchCase& one : cases_) rows_.push_back(first_row(one));
    const size_t group = options_.interleave ? options_.models.size() : 1;
    for (size_t first = 0; first < cases_.size(); first += group) {
      if (options_.interleave) {
        for (size_t i = first; i < first + group; ++i) {
          release_device_memory(run_.device);
          static_cast<void>(measured(i));
        }
      }
      time_together(first, group);
    }
    for (size_t i = 0; i < rows_.size(); ++i) compare(i);
    return rows_;
  }

 private:
  // Row i with those of its group that the options name.
  void compare(size_t i) {
    const Json& mine = rows_[i];
    const size_t group = i - i % options_.models.size();
    for (const size_t place : bench_baselines(options_)) {
      const Json& base = rows_[group + place];
      Json& ratios = rows_[i]["against"][cases_[group + place].name];
      ratios = nullptr;
      if (mine["step_ms"].is_null() || base["step_ms"].is_null()) continue;
      const auto ratio = [](const Json& over, const Json& under) { return over.get<double>() / under.get<double>(); };
      ratios = {{"speed", ratio(base["step_ms"]["median"], mine["step_ms"]["median"])},
                {"memory", ratio(mine["peak_bytes"], base["peak_bytes"])}};
    }
  }

  Json first_row(const BenchCase& one) const {
    return {{"model", one.plan.model},
            {"label", one.label},
            {"attention", attention_facts(one)},
            {"own", one.own},
            {"length", one.length},
            {"batch", one.batch},
            {"width", one.width > 0 ? Json(one.width) : Json()},
            {"precision", one.precision},
            {"plan_hash", one.plan.hash()},
            {"valid_lengths", one.valid_lengths.empty() ? Json() : Json(one.valid_lengths)},
            {"status", "ok"},
            {"message", ""},
            {"step_ms", nullptr},
            {"host_ms", nullptr},
            {"device_ms", nullptr},
            {"steps_at_once", 1},
            {"examples_per_s", nullptr},
            {"tokens_per_s", nullptr},
            {"against", Json::object()},
            {"predicted_bytes", nullptr},
            {"peak_bytes", nullptr},
            {"peak_host_bytes", nullptr},
            {"peak_process_bytes", nullptr},
            {"parameters", nullptr},
            {"flops", nullptr},
            {"operator_calls", nullptr},
            {"kernels_launched", nullptr},
            {"joules_per_step", nullptr},
            {"backend", nullptr},
            {"captured", nullptr},
            {"warmup_steps", warmup_},
            {"timed_steps", 0}};
  }

  // False when memory ran out in an action of row i; the row says so from then on.
  template <class Action>
  bool in_memory(size_t i, const Action& action) {
    try {
      try {
        action();
        return true;
      } catch (...) {
        rethrow_translated();
      }
    } catch (const OutOfMemory& error) {
      rows_[i]["status"] = "out-of-memory";
      rows_[i]["message"] = error.what();
    }
    return false;
  }

  void check_stop() const {
    if (run_.stop_requested()) throw Interrupted("stopped by a signal; a bench that is not whole is not written");
  }

  StepTime step(size_t i, Subject& subject, const char* what) {
    check_stop();
    const BenchCase& one = cases_[i];
    run_.progress(fmt::format("{}  length {}  batch {}  {}", one.label, one.length, one.batch, what),
                  static_cast<double>(done_++) / static_cast<double>(total_));
    return subject.step();
  }

  // The most that a step of this batch keeps in tensors.
  double peak_with(size_t i, int64_t batch, int64_t length) {
    check_stop();
    BenchCase small = cases_[i];
    small.batch = batch, small.length = length;
    if (!small.valid_lengths.empty()) small.valid_lengths.resize(static_cast<size_t>(batch));
    release_device_memory(run_.device);  // what the last one kept would lie beside
    const int64_t live_before = device_memory(run_.device).live_bytes;
    reset_device_peak(run_.device);
    Subject(small, trains_, run_.device, training::Recorder{}).step();
    return static_cast<double>(device_memory(run_.device).peak_bytes - live_before);
  }

  // What one long example will take, by shorter ones, each twice as long as the last, while the next takes no more than
  // half of what is there even if memory grows with the square of the length. What memory gains from one to the next
  // grows twofold, or as memory itself where that grows faster.
  std::optional<double> peak_of_one(size_t i, double there) {
    double last = 0;
    for (int shift = 4; shift > 0; --shift) {
      const double before = last;
      try {
        if (!in_memory(i, [&] { last = peak_with(i, 1, cases_[i].length >> shift); })) return std::nullopt;
      } catch (const UserError&) {
        return 0;  // a model of one length alone: nothing is known of it
      }
      const double growth = before > 0 ? std::max(2.0, last / before) : 2;
      double gain = last - before, predicted = last;
      if (shift > 1 && 4 * last <= there / 2) continue;
      for (; shift > 0; --shift) gain *= growth, predicted += gain;
      return predicted;
    }
    return 0;
  }

  // By batches of 1, 2, 4, ... while there is room for the next, and a line through the last two: what is largest at
  // one example (the optimiser's state, say) need not be at many.
  std::optional<double> peak_of_batch(size_t i, double there) {
    const int64_t batch = cases_[i].batch;
    double before = 0, last = 0, predicted = 0;
    for (int64_t size = 1; size < batch; size *= 2) {
      if (!in_memory(i, [&] { last = peak_with(i, size, cases_[i].length); })) return std::nullopt;
      const auto at = [&](int64_t wanted) {
        const double slope = size == 1 ? last : (last - before) / (static_cast<double>(size) / 2);
        return last + slope * static_cast<double>(wanted - size);
      };
      predicted = at(batch);
      if (at(2 * size) > there || (size > 1 && predicted > 2 * there)) break;
      before = last;
    }
    return predicted;
  }

  // Notes what row i will take and whether that can be had.
  bool will_fit(size_t i) {
    constexpr int64_t kLong = 8192;  // places of an example that alone may be too large
    const BenchCase& one = cases_[i];
    if (rows_[i]["status"] != "ok") return false;
    const bool is_long = one.length >= kLong && one.valid_lengths.empty() && one.request.input.columns == 0;
    if (!rows_[i]["predicted_bytes"].is_null() || (one.batch < 2 && !is_long)) return true;
    const auto there = static_cast<double>(run_.memory_limit > 0 ? run_.memory_limit : available_memory(run_.device));
    double predicted = 0;
    for (const bool of_one : {true, false}) {
      if (of_one ? !is_long : one.batch < 2) continue;
      const std::optional<double> found = of_one ? peak_of_one(i, there) : peak_of_batch(i, there);
      if (!found) return false;
      predicted = *found;
      if (predicted > there) break;
    }
    release_device_memory(run_.device);
    if (predicted == 0) return true;
    rows_[i]["predicted_bytes"] = std::llround(predicted);
    if (predicted <= there) return true;
    rows_[i]["status"] = "too-large";
    rows_[i]["message"] = fmt::format("would take {}, there are {}", format_bytes(static_cast<uint64_t>(predicted)),
                                      format_bytes(static_cast<uint64_t>(there)));
    return false;
  }

  // Builds the model of row i, takes the warm-up steps and notes its sizes. None where memory ran out.
  std::unique_ptr<Subject> measured(size_t i) {
    if (!will_fit(i)) return nullptr;
    Json& row = rows_[i];
    std::unique_ptr<Subject> subject;
    const int64_t live_before = device_memory(run_.device).live_bytes, host_before = host_memory().live_bytes;
    reset_device_peak(run_.device);
    reset_host_peak();
    const bool fits = in_memory(i, [&] {
      subject = std::make_unique<Subject>(cases_[i], trains_, run_.device, recorder_);
      const double forward = subject->model().cost(cases_[i].batch, cases_[i].length).flops_executed;
      row["parameters"] = models::parameter_count(subject->model());
      row["flops"] = {{"forward_formula", forward}, {"step_formula", trains_ ? 3 * forward : forward}};
      step(i, *subject, "warm-up");
      {
        const OpCounter counter;
        step(i, *subject, "warm-up");
        row["flops"]["step_counted"] = counter.counts().flops;
        row["operator_calls"] = counter.counts().calls;
      }
      for (int64_t warm = 2; warm < warmup_; ++warm) step(i, *subject, "warm-up");
      row["backend"] = subject->model().backend();
      row["captured"] = subject->captured();
      if (const auto kernels = subject->kernels()) row["kernels_launched"] = *kernels;
      subject->settle();
      row["steps_at_once"] = subject->steps_at_once();
    });
    if (!fits) return nullptr;
    row["peak_bytes"] = device_memory(run_.device).peak_bytes - live_before;
    row["peak_host_bytes"] = host_memory().peak_bytes - host_before;
    return subject;
  }

  // Rows first .. first + count - 1: all alive, a step of each in turn.
  void time_together(size_t first, size_t count) {
    release_device_memory(run_.device);
    std::vector<std::unique_ptr<Subject>> subjects(count);
    std::vector<std::vector<double>> times(count);
    for (size_t i = 0; i < count; ++i) {
      if (rows_[first + i]["status"] != "ok") continue;
      const Json alone = rows_[first + i]["peak_bytes"], alone_on_host = rows_[first + i]["peak_host_bytes"];
      subjects[i] = measured(first + i);
      // Beside others a model's peak is not its own.
      if (options_.interleave)
        rows_[first + i]["peak_bytes"] = alone, rows_[first + i]["peak_host_bytes"] = alone_on_host;
    }
    if (subjects.front()) run_.ready(rows_[first]);
    const auto joules = count == 1 ? device_energy(run_.device) : std::nullopt;
    const auto any = [&] {
      return std::any_of(subjects.begin(), subjects.end(), [](const auto& one) { return !!one; });
    };
    // Without one, whoever sets the pace would be waited for, and wait in turn to be told that it can begin.
    for (int64_t turn = 0; turn < options_.steps && any() && run_.turn(); ++turn) {
      for (size_t i = 0; i < count; ++i) {
        if (!subjects[i]) continue;
        StepTime time;
        if (!in_memory(first + i, [&] { time = step(first + i, *subjects[i], "timed"); })) {
          subjects[i].reset();
          continue;
        }
        times[i].push_back(time.ms);
        run_.timed(cases_[first + i].plan.model, time);
      }
    }
    check_stop();
    // Nobody knows whose the energy of models in turns was.
    if (joules && !times[0].empty() && subjects[0])
      rows_[first]["joules_per_step"] = (*device_energy(run_.device) - *joules) / static_cast<double>(times[0].size()) /
                                        static_cast<double>(subjects[0]->steps_at_once());
    for (size_t i = 0; i < count; ++i) {
      if (!subjects[i]) continue;
      note_times(first + i, times[i]);
      rows_[first + i]["host_ms"] = subjects[i]->host_ms();
      rows_[first + i]["device_ms"] = subjects[i]->device_ms();
    }
  }

  void note_times(size_t i, const std::vector<double>& times) {
    Json& row = rows_[i];
    row["peak_process_bytes"] = peak_process_bytes();
    row["timed_steps"] = times.size();
    if (times.empty()) return;
    const double median = training::quantile(times, 0.5),
                 examples = 1e3 * static_cast<double>(cases_[i].batch) / median;
    row["step_ms"] = spread(times);
    row["examples_per_s"] = examples;
    row["tokens_per_s"] = examples * static_cast<double>(cases_[i].length);
  }

  const BenchOptions& options_;
  const std::vector<BenchCase>& cases_;
  const BenchRun& run_;
  const bool trains_;
  training::Recorder recorder_;
  Json rows_ = Json::array();
  int64_t warmup_ = 0, done_ = 0, total_ = 0;
};

std::vector<std::string> precisions_of(const std::vector<BenchCase>& cases) {
  std::vector<std::string> result;
  for (const BenchCase& one : cases)
    if (std::find(result.begin(), result.end(), one.precision) == result.end()) result.push_back(one.precision);
  return result;
}

}  // namespace

Json run_bench(const BenchOptions& options, const std::vector<BenchCase>& cases, const BenchRun& run) {
  kernels::set_policy(kernels::parse_policy(run.kernels));
  const Json rows = Bench(options, cases, run).rows();
  const RunPlan& plan = cases.front().plan;
  Json settings = Json::object();
  for (const ValueLayer& layer : options.layers) settings.update(layer.values);
  const Json hardware = hardware_facts(run.device);
  return {{"schema_version", kBenchSchema},
          {"command", run.command},
          {"conditions",
           {{"task", plan.task},
            {"protocol", plan.protocol},
            {"mode", options.mode},
            {"device", run.device.str()},
            {"threads", hardware["threads"]},
            {"precision", fmt::format("{}", fmt::join(precisions_of(cases), ", "))},
            {"deterministic", run.deterministic},
            {"kernels", run.kernels},
            {"products", kernels::products_run()},
            {"cuda_graph", run.cuda_graph},
            {"interleaved", options.interleave},
            {"paced", options.paced},
            {"settings", settings},
            {"warmup", rows.front()["warmup_steps"]},
            {"steps", options.steps},
            {"dropout", options.mode == "train"},
            {"input", bench_input(cases.front())}}},
          {"software", software_facts()},
          {"hardware", hardware},
          {"date", training::utc_now()},
          {"rows", rows}};
}

}  // namespace xformer::measure
