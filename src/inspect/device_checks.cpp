#include "inspect/device_checks.h"

#include <ATen/Functions.h>

#include <limits>

#include "attention/multi_head.h"
#include "core/error.h"
#include "inspect/forward.h"
#include "inspect/tiny.h"
#include "tensor/autocast.h"
#include "training/step.h"

namespace xformer::inspect {

namespace {

constexpr int64_t kBatch = 3, kLength = 200, kHeads = 2, kHeadDim = 32;

// The mixer of a name with its shared tensors, in a type on a device. Initial values depend on neither.
struct Mixer {
  std::shared_ptr<attention::SequenceMixer> module;
  std::shared_ptr<attention::SharedObjects> shared = std::make_shared<attention::SharedObjects>();
  bool causal;

  Mixer(const std::string& name, bool is_causal, at::ScalarType type, const at::Device& device) : causal(is_causal) {
    const attention::Resolved attention = attention::resolve(name);
    attention::BuildContext context;
    context.model_dim = kHeads * kHeadDim;
    context.heads = kHeads;
    context.head_dim = kHeadDim;
    context.max_len = kLength;
    context.causal = causal;
    context.shared = shared;
    context.dropout_stream = std::make_shared<kernels::DropoutStream>(5);
    context.init = InitStream(5);
    const Json options = defaults_of(attention.options());
    // A whole layer takes x and mask as a mixer does.
    if (attention.base->build_block) module = attention.base->build_block(options, context);
    else module = attention::build_mixer(attention, options, context);
    module->to(device, type);
    shared->to(device, type);
    module->eval();
  }

  // Output, then the gradients of x and of every parameter, by name, in double on the CPU; products by autocast to the
  // other type, if any.
  [[nodiscard]] NamedTensors run(at::ScalarType type, const at::Device& device,
                                 std::optional<at::ScalarType> products = {}) const {
    const InitStream numbers(6);
    const at::Tensor x =
        numbers.normal("x", {kBatch, kLength, kHeads * kHeadDim}, 1).to(device, type).requires_grad_(true);
    const at::Tensor lengths = at::tensor({kLength, int64_t{131}, int64_t{1}}, at::kLong).unsqueeze(1);
    const at::Tensor valid = (at::arange(kLength, at::kLong).unsqueeze(0) < lengths).to(device);
    attention::Carry carry;
    at::Tensor out;
    {
      const AutocastScope autocast(device.type(), products);
      out = module->forward(x, {valid, causal}, carry).to(type).masked_fill(valid.logical_not().unsqueeze(-1), 0);
    }
    (out * numbers.normal("weights", out.sizes(), 1).to(device, type)).sum().backward();
    NamedTensors result{{"output", out}, {"gradient of x", x.grad()}};
    for (const auto& part :
         {std::static_pointer_cast<torch::nn::Module>(module), std::static_pointer_cast<torch::nn::Module>(shared)})
      for (const auto& entry : part->named_parameters())
        result.emplace_back("gradient of " + entry.key(), gradient_of(entry.value()));
    for (auto& [name, tensor] : result) tensor = tensor.detach().to(at::kCPU, at::kDouble);
    return result;
  }
};

// A float's products on a device are TF32's while it lives.
class Tf32Scope {
 public:
  explicit Tf32Scope(bool on) { at::globalContext().setAllowTF32CuBLAS(on); }
  ~Tf32Scope() { at::globalContext().setAllowTF32CuBLAS(before_); }
  Tf32Scope(const Tf32Scope&) = delete;
  Tf32Scope& operator=(const Tf32Scope&) = delete;

 private:
  bool before_ = at::globalContext().allowTF32CuBLAS();
};

struct Trained {
  std::vector<training::StepSums> steps;
  NamedTensors weights;
  int64_t recorded = 0;
};

Trained train_tiny(const std::string& name, const plan::TrainingOptions& options, const at::Device& device,
                   const training::Recorder& recorder) {
  const auto model = build_tiny_model(name);
  model->to(device);
  const MarkTask source;
  training::TrainStep step(*model, source.info().shape, options, device, recorder);
  Trained result;
  // Lengths take turns, as buckets do; the last batch of a length is partial.
  std::vector<data::HostBatch> batches(4);
  for (size_t i = 0; i < batches.size(); ++i) {
    data::BatchRows rows{{}, i % 2 == 0 ? int64_t{16} : int64_t{12}};
    for (int64_t row = 0; row < options.batch - (i >= 2 ? 3 : 0); ++row)
      rows.rows.push_back(static_cast<int64_t>(i) * options.batch + row);
    data::fill_batch(source, data::Split::kTrain, rows, options.batch, batches[i]);
  }
  for (int64_t i = 0; i < 16; ++i) {
    step.run(batches[static_cast<size_t>(i) % batches.size()], i,
             {1e-3 * static_cast<double>(i + 1), 0.95 - 0.005 * static_cast<double>(i)});
    result.steps.push_back(step.read_and_reset());
  }
  result.recorded = step.recorded();
  for (const auto& [key, tensor] : models::state(*model)) result.weights.emplace_back(key, tensor.detach().cpu());
  return result;
}

// "" when equal in every bit.
std::string first_difference(const Trained& plain, const Trained& recorded) {
  for (size_t i = 0; i < plain.steps.size(); ++i) {
    const training::StepSums &a = plain.steps[i], &b = recorded.steps[i];
    if (a.loss != b.loss || a.metric->value != b.metric->value || a.weight != b.weight ||
        a.gradient_norm != b.gradient_norm || a.skipped != b.skipped)
      return fmt::format("step {}: loss {:.9g} plainly, {:.9g} recorded; gradient norm {:.9g}, {:.9g}", i, a.loss,
                         b.loss, a.gradient_norm, b.gradient_norm);
  }
  for (size_t i = 0; i < plain.weights.size(); ++i)
    if (!plain.weights[i].second.equal(recorded.weights[i].second)) return "final weights of " + plain.weights[i].first;
  return "";
}

}  // namespace

std::vector<DoubleCheck> double_checks(const at::Device& device) {
  std::vector<DoubleCheck> checks;
  // Sums of some thousand products in float32; a kernel that is wrong is off by far more.
  for (const std::string& name : attention::distinct_names()) checks.push_back({name, 1e-3});
  for (const std::string& name : attention::distinct_names())
    if (attention::resolve(name).traits().causal_ok) checks.push_back({name, 1e-3, /*causal=*/true});
  // Whose heads are in 16 bits then: a few roundings of 2^-8, or of 2^-11. What cancels, such as the gradient of the
  // keys' bias, leaves them.
  for (const char* name : {"softmax-fused", "linear", "performer", "mrs-linear"}) {
    checks.push_back({name, 0.03, false, false, at::kBFloat16});
    if (!device.is_cpu()) checks.push_back({name, 0.01, false, false, at::kHalf});
  }
  // Products with operands of 2^-11, which a CPU has none of. Not where small differences choose other keys.
  for (const char* name : {"softmax-fused", "linear", "performer", "linformer", "longformer", "entmax15", "mrs-linear"})
    if (!device.is_cpu()) checks.push_back({name, 0.01, false, /*tf32=*/true});
  return checks;
}

SelftestItem check_against_double(const DoubleCheck& check, const at::Device& device) {
  const NamedTensors meant = Mixer(check.name, check.causal, at::kDouble, at::kCPU).run(at::kDouble, at::kCPU);
  const Tf32Scope scope(check.tf32);
  const NamedTensors got = Mixer(check.name, check.causal, at::kFloat, device).run(at::kFloat, device, check.products);
  double worst = 0;
  std::string where;
  for (size_t i = 0; i < meant.size(); ++i) {
    const double least = check.products || check.tf32 ? 1 : 1e-2;
    const double largest = std::max(meant[i].second.abs().max().item<double>(), least);
    const double difference = (meant[i].second - got[i].second).abs().max().item<double>() / largest;
    if (difference <= worst) continue;  // also for what is not a number: caught below
    worst = difference;
    where = meant[i].first;
  }
  const bool finite = std::all_of(
      got.begin(), got.end(), [](const auto& entry) { return entry.second.isfinite().all().template item<bool>(); });
  const char* const precision = check.tf32                     ? " in tf32"
                                : !check.products              ? ""
                                : *check.products == at::kHalf ? " in fp16"
                                                               : " in bf16";
  return {fmt::format("{}{}{} on {} agrees with float64 on the CPU", check.name, check.causal ? ", causal" : "",
                      precision, device.str()),
          finite && worst < check.tolerance,
          finite ? fmt::format("{:.1e} in {}", worst, where) : "a value is not finite"};
}

SelftestItem check_lives_of_recordings(const at::Device& device, const training::Recorder& recorder) {
  SelftestItem item{"recordings succeed after the last one is gone and after one that failed", true, "3 rounds"};
  const at::Tensor x = at::zeros({4}, device);
  const auto work = [&] { x.add_(at::ones_like(x)); };
  const auto draw = [&] { return at::rand_like(x).sum().item<float>(); };  // reads a value back
  try {
    work();
    static_cast<void>(draw());
    for (int round = 0; round < 3; ++round) {
      bool refused = false;
      recorder.record(work)->replay();
      try {
        static_cast<void>(recorder.record([&] { static_cast<void>(draw()); }));
      } catch (const c10::Error&) {
        refused = true;
      }
      static_cast<void>(draw());
      const auto first = recorder.record(work), second = recorder.record(work);
      first->replay();
      second->replay();
      if (refused != device.is_cuda() || x.sum().item<float>() != static_cast<float>(4 + 12 * (round + 1)))
        item.passed = false, item.detail = refused ? "a sum is wrong" : "what reads a value back was recorded";
    }
  } catch (const c10::Error& error) {
    item.passed = false;
    item.detail = error.what_without_backtrace();
  }
  return item;
}

void check_recorded_steps(const at::Device& device, const training::Recorder& recorder,
                          const std::vector<std::string>& precisions, const SelftestListener& tell) {
  for (const std::string& precision : precisions)
    for (const std::string& name : attention::distinct_names()) {
      // A CPU takes its time over half precision, and there it is the frame that counts.
      if (device.is_cpu() && precision != "fp32" && name != "softmax") continue;
      plan::TrainingOptions options;
      options.batch = 8;
      options.micro_batch = 3;
      options.clip_norm = 1;
      options.precision = precision;
      std::string reason;
      training::Recorder listening = recorder;
      listening.say = [&](const std::string& line) { reason = line; };
      const Trained plain = train_tiny(name, options, device, {}),
                    recorded = train_tiny(name, options, device, listening);
      std::string difference = first_difference(plain, recorded);
      if (recorded.recorded != 2) difference = reason.empty() ? "the steps were not recorded" : reason;
      tell({fmt::format("{} in {}: recorded steps equal plain ones", name, precision), difference.empty(),
            difference.empty() ? fmt::format("16 steps, {} skipped", plain.steps.back().skipped) : difference});
    }
}

}  // namespace xformer::inspect
