#include "inspect/core_checks.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "inspect/tiny.h"
#include "tensor/device.h"

namespace xformer::inspect {

namespace {

constexpr double kSame = 1e-9;      // of double precision: sums in another order
constexpr double kGradient = 1e-4;  // of differences

struct Outcome {
  bool passed = false;
  std::string detail;
};

struct Inputs {
  at::Tensor q, k, v;  // [b,h,n,d]
  SequenceMask mask;
};

// A core built for a longest length, as layer 0 of a model would have it.
struct Core {
  std::shared_ptr<attention::AttentionCore> module;
  std::shared_ptr<attention::SharedObjects> shared = std::make_shared<attention::SharedObjects>();

  Core(const CoreChecks& what, int64_t max_len, at::ScalarType type, const at::Device& device, bool causal = false) {
    attention::BuildContext context;
    context.heads = what.heads;
    context.head_dim = what.head_dim;
    context.model_dim = what.heads * what.head_dim;
    context.max_len = max_len;
    context.causal = causal;
    context.shared = shared;
    context.dropout_stream = std::make_shared<kernels::DropoutStream>(5);
    context.init = InitStream(5);
    module = attention::build_core(what.attention, what.options, context);
    module->to(device, type);
    shared->to(device, type);
    module->eval();
  }

  [[nodiscard]] at::Tensor operator()(const Inputs& in) const {
    attention::Carry carry;
    return module->forward(in.q, in.k, in.v, in.mask, carry);
  }

  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> parameters() const {
    std::vector<std::pair<std::string, at::Tensor>> result;
    for (const auto& part :
         {std::static_pointer_cast<torch::nn::Module>(module), std::static_pointer_cast<torch::nn::Module>(shared)})
      for (const auto& entry : part->named_parameters()) result.emplace_back(entry.key(), entry.value());
    return result;
  }
};

at::Tensor drawn(const std::string& name, at::IntArrayRef shape) { return InitStream(6).normal(name, shape, 1); }

// Sample i has its first lengths[i] tokens valid; without lengths all are.
Inputs inputs(const CoreChecks& what, int64_t n, const std::vector<int64_t>& lengths, at::ScalarType type,
              const at::Device& device) {
  const auto batch = static_cast<int64_t>(std::max<size_t>(lengths.size(), 1));
  const auto made = [&](const char* name) {
    return drawn(name, {batch, what.heads, n, what.head_dim}).to(device, type);
  };
  Inputs result{made("q"), made("k"), made("v"), {}};
  if (lengths.empty()) return result;
  result.mask.key_valid =
      (at::arange(n, at::kLong).unsqueeze(0) < at::tensor(lengths, at::kLong).unsqueeze(1)).to(device);
  return result;
}

// Rows of valid tokens, the others zero.
at::Tensor valid(const at::Tensor& out, const SequenceMask& mask) { return mask.zero_padding(out); }

// The largest difference over the largest value; infinite where one is no number.
double apart(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0) return 0;
  const double difference = (a - b).abs().max().item<double>(), size = a.abs().max().item<double>();
  return std::isfinite(difference) ? difference / std::max(size, 1e-30) : INFINITY;
}

Outcome shapes(const CoreChecks& what, const at::Device& device) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble})
    for (const int64_t n : {int64_t{1}, int64_t{7}, int64_t{64}}) {
      const at::NoGradGuard no_grad;
      const Inputs in = inputs(what, n, {n, (n + 1) / 2}, type, device);
      const at::Tensor out = Core(what, n, type, device)(in);
      const std::string where = fmt::format("[{}] for q, k and v [{}] of type {}", fmt::join(out.sizes(), ","),
                                            fmt::join(in.q.sizes(), ","), at::toString(type));
      const bool fits = out.sizes() == in.q.sizes() && out.scalar_type() == type;
      if (!fits || !at::isfinite(valid(out, in.mask)).all().item<bool>())
        return {false, fits ? "infinite or no number in " + where
                            : fmt::format("{} {}", at::toString(out.scalar_type()), where)};
    }
  return {true, "for 1, 7 and 64 tokens, in float and double"};
}

// Outputs of valid tokens when what stands in padding is something else.
Outcome padding(const CoreChecks& what, const at::Device& device) {
  const at::NoGradGuard no_grad;
  const Core core(what, 24, at::kDouble, device);
  Inputs in = inputs(what, 24, {24, 15, 1}, at::kDouble, device);
  const at::Tensor before = valid(core(in), in.mask);
  const at::Tensor padded = in.mask.key_valid.logical_not().unsqueeze(1).unsqueeze(-1);
  for (at::Tensor* x : {&in.q, &in.k, &in.v}) *x = at::where(padded, *x * -2 + 1, *x);
  const double difference = apart(before, valid(core(in), in.mask));
  return {difference < kSame,
          fmt::format("largest difference {:.1e} when padded tokens hold other numbers", difference)};
}

Outcome appended(const CoreChecks& what, const at::Device& device) {
  const at::NoGradGuard no_grad;
  const Core core(what, 32, at::kDouble, device);
  const Inputs in = inputs(what, 32, {20, 15}, at::kDouble, device);
  const auto shorter = [](const at::Tensor& x) { return x.narrow(2, 0, 24); };
  const Inputs cut{shorter(in.q), shorter(in.k), shorter(in.v), {in.mask.key_valid.narrow(1, 0, 24)}};
  const double difference = apart(valid(core(cut), cut.mask), shorter(valid(core(in), in.mask)));
  return {true, difference < kSame ? "changes nothing" : fmt::format("changes outputs, by {:.1e}", difference)};
}

Outcome determinism(const CoreChecks& what, const at::Device& device) {
  std::vector<at::Tensor> first, second;
  for (std::vector<at::Tensor>* one : {&first, &second}) {
    const Core core(what, 48, at::kFloat, device);
    Inputs in = inputs(what, 48, {48, 31}, at::kFloat, device);
    for (at::Tensor* x : {&in.q, &in.k, &in.v}) x->requires_grad_(true);
    const at::Tensor out = core(in);
    valid(out, in.mask).sum().backward();
    *one = {valid(out, in.mask).detach(), in.q.grad(), in.k.grad(), in.v.grad()};
  }
  bool same = true;
  for (size_t i = 0; i < first.size(); ++i)
    same = same && first[i].defined() == second[i].defined() && (!first[i].defined() || first[i].equal(second[i]));
  return {same, "forwards and backwards"};
}

// Derivatives along a direction: by differences, and by the gradient.
Outcome gradient(const CoreChecks& what, const at::Device& device) {
  const Core core(what, 20, at::kDouble, device);
  Inputs in = inputs(what, 20, {20, 13}, at::kDouble, device);
  const at::Tensor weights = drawn("weights", in.q.sizes()).to(device, at::kDouble);
  const auto value = [&] { return (valid(core(in), in.mask) * weights).sum(); };
  std::vector<std::pair<std::string, at::Tensor>> leaves{{"q", in.q}, {"k", in.k}, {"v", in.v}};
  for (auto& [name, leaf] : leaves) leaf.requires_grad_(true);
  for (const auto& parameter : core.parameters()) leaves.push_back(parameter);
  const at::Tensor out = value();
  if (!out.requires_grad()) return {false, "the output has no gradient at all"};
  out.backward();
  double largest = 0;
  std::string where = "nothing";
  const at::NoGradGuard no_grad;
  for (const auto& [name, leaf] : leaves) {
    const at::Tensor direction = drawn("direction of " + name, leaf.sizes()).to(device, at::kDouble);
    const double told = leaf.grad().defined() ? (leaf.grad() * direction).sum().item<double>() : 0;
    const at::Tensor before = leaf.detach().clone();
    constexpr double kStep = 1e-6;
    double ends[2];
    for (const int sign : {1, -1}) {
      leaf.copy_(before + direction * (sign * kStep));
      ends[sign > 0 ? 0 : 1] = value().item<double>();
    }
    leaf.copy_(before);
    const double found = (ends[0] - ends[1]) / (2 * kStep);
    const double difference = std::abs(told - found) / std::max({std::abs(told), std::abs(found), 1.0});
    if (difference <= largest) continue;
    largest = std::isfinite(difference) ? difference : INFINITY;
    where = name;
  }
  return {largest < kGradient,
          fmt::format("of {} tensors; largest difference {:.1e}, of {}", leaves.size(), largest, where)};
}

Outcome causality(const CoreChecks& what, const at::Device& device) {
  if (!what.attention.traits().causal_ok) return {true, "not claimed: no causal tasks"};
  const at::NoGradGuard no_grad;
  const Core core(what, 20, at::kDouble, device, /*causal=*/true);
  Inputs in = inputs(what, 20, {}, at::kDouble, device);
  in.mask.causal = true;
  const at::Tensor before = core(in).narrow(2, 0, 12).clone();
  for (at::Tensor* x : {&in.q, &in.k, &in.v}) *x = at::cat({x->narrow(2, 0, 12), x->narrow(2, 12, 8) * -2 + 1}, 2);
  const double difference = apart(before, core(in).narrow(2, 0, 12));
  return {difference < kSame, fmt::format("largest difference {:.1e} when later tokens change", difference)};
}

// One step of training: forwards and backwards.
struct Step {
  Core core;
  Inputs in;

  Step(const CoreChecks& what, int64_t n, const at::Device& device)
      : core(what, n, at::kFloat, device), in(inputs(what, n, {}, at::kFloat, device)) {
    for (at::Tensor* x : {&in.q, &in.k, &in.v}) x->requires_grad_(true);
  }
  void operator()() const {
    core(in).sum().backward();
    for (const at::Tensor& x : {in.q, in.k, in.v}) x.mutable_grad() = at::Tensor();
  }
};

Outcome memory(const CoreChecks& what, const at::Device& device) {
  std::vector<double> peaks;
  for (const int64_t factor : {1, 2, 4}) {
    const Step step(what, factor * what.length, device);
    const int64_t before = device_memory(device).live_bytes;
    reset_device_peak(device);
    step();
    synchronize(device);
    peaks.push_back(static_cast<double>(device_memory(device).peak_bytes - before));
  }
  return {true,
          fmt::format("{} for one example of {} tokens, growing as n^{:.2f}",
                      format_bytes(static_cast<uint64_t>(peaks[2])), 4 * what.length, std::log2(peaks[2] / peaks[1]))};
}

Outcome speed(const CoreChecks& what, const at::Device& device) {
  CoreChecks usual = what;
  usual.attention = attention::resolve("softmax-fused");
  usual.options = defaults_of(usual.attention.options());
  const auto milliseconds = [&](const CoreChecks& one, int64_t n) {
    const Step step(one, n, device);
    std::vector<double> times;
    for (int i = 0; i < 7; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      step();
      synchronize(device);
      times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
    }
    std::sort(times.begin() + 2, times.end());  // behind two that warm up
    return times[4];
  };
  std::vector<std::string> parts;
  for (const int64_t n : {what.length, 4 * what.length}) {
    const double ours = milliseconds(what, n), theirs = milliseconds(usual, n);
    parts.push_back(fmt::format("{:.2f} ms at {} tokens, {:.2f} times softmax-fused's", ours, n, ours / theirs));
  }
  return {true, fmt::format("{}", fmt::join(parts, "; "))};
}

}  // namespace

void check_core(const CoreChecks& what, const at::Device& device, const SelftestListener& tell) {
  XF_CHECK(what.attention.base->build_core, UserError, "{} owns its projections; only a core can be checked",
           what.attention.name);
  struct Check {
    const char* claim;
    Outcome (*run)(const CoreChecks&, const at::Device&);
    bool measures = false;  // what has no right answer: too little memory is one too
  };
  static constexpr Check kChecks[] = {{"gives [b,h,n,d] of numbers", shapes},
                                      {"padding changes no valid token", padding},
                                      {"appended padding", appended},
                                      {"a second pass gives the same bits", determinism},
                                      {"gradients are those of differences", gradient},
                                      {"no token sees a later one", causality},
                                      {"memory", memory, true},
                                      {"a training step", speed, true}};
  for (const auto& [claim, run, measures] : kChecks) {
    try {
      const Outcome outcome = run(what, device);
      tell({claim, outcome.passed, outcome.detail});
    } catch (const OutOfMemory& error) {
      tell({claim, measures, error.what()});
    } catch (const std::exception& error) {
      tell({claim, false, error.what()});
    }
  }
}

}  // namespace xformer::inspect
