#include "attention/script.h"

#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>

#include "core/files.h"
#include "core/hash.h"
#include "tensor/op_counter.h"

namespace xformer::attention {

namespace {

// A file as it was read: every layer and scale has a module of its own made from it.
struct File {
  std::string path, bytes, sha256;
};

std::string words_of(const std::exception& error) {
  const auto* const torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
}

torch::jit::Module read_module(const File& file) {
  std::istringstream in(file.bytes);
  try {
    return torch::jit::load(in, at::Device(at::kCPU));
  } catch (const std::exception& error) {
    const std::string words = words_of(error);
    throw DataError(fmt::format("{}: no TorchScript module, as torch.jit.script(module).save(\"{}\") writes: {}",
                                file.path, file.path, words.substr(0, words.find('\n'))));
  }
}

void check_signature(const File& file, const torch::jit::Module& module) {
  const auto method = module.find_method("forward");
  XF_CHECK(method.has_value(), DataError, "{}: expected a module with forward(q, k, v, mask), found none", file.path);
  const c10::FunctionSchema& schema = method->function().getSchema();
  const auto is_tensor = [](const c10::Argument& one) { return one.type()->kind() == c10::TypeKind::TensorType; };
  bool fits = schema.arguments().size() == 5 && schema.returns().size() == 1 && is_tensor(schema.returns()[0]);
  for (size_t i = 1; fits && i < 5; ++i) fits = is_tensor(schema.arguments()[i]);
  std::ostringstream found;
  found << schema;
  XF_CHECK(fits, DataError,
           "{}: expected forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor, found {}", file.path,
           found.str());
}

// An attribute as an option; none for what is no option (tensors, modules, what the program sets itself).
std::optional<OptionInfo> option_of(const std::string& name, const c10::IValue& value, const std::string& path) {
  if (name == "training" || name == "causal" || name == "dropout" || name.starts_with('_')) return std::nullopt;
  OptionInfo info{name, OptionType::kBool, "attribute of " + path, {}, {}};
  if (value.isBool()) {
    info.fallback = value.toBool();
  } else if (value.isInt()) {
    info.type = OptionType::kInteger;
    info.fallback = value.toInt();
  } else if (value.isDouble() && std::isfinite(value.toDouble())) {  // a plan has no word for infinity
    info.type = OptionType::kReal;
    info.fallback = value.toDouble();
  } else if (value.isString()) {
    info.type = OptionType::kText;
    info.fallback = value.toStringRef();
  } else if (value.isIntList()) {
    info.type = OptionType::kIntegerList;
    info.fallback = value.toIntVector();
  } else {
    return std::nullopt;
  }
  return info;
}

c10::IValue value_of(const c10::IValue& like, const Json& value) {
  if (like.isBool()) return value.get<bool>();
  if (like.isInt()) return value.get<int64_t>();
  if (like.isDouble()) return value.get<double>();
  if (like.isString()) return value.get<std::string>();
  return value.get<std::vector<int64_t>>();
}

bool claims_causal(const torch::jit::Module& module) {
  return module.hasattr("causal") && module.attr("causal").isBool();
}

// The script's own tensors, not copies, under their own names.
void adopt(torch::nn::Module& into, const torch::jit::Module& from) {
  for (const auto& one : from.named_parameters(/*recurse=*/false))
    into.register_parameter(one.name, one.value, one.value.requires_grad());
  for (const auto& one : from.named_buffers(/*recurse=*/false)) into.register_buffer(one.name, one.value);
  for (const auto& one : from.named_children()) {
    const auto child = std::make_shared<torch::nn::Module>(one.name);
    adopt(*child, one.value);
    into.register_module(one.name, child);
  }
}

void set_training(const torch::jit::Module& module, bool on) {
  for (torch::jit::Module one : module.modules())
    if (one.hasattr("training")) one.setattr("training", on);
}

class ScriptCore : public AttentionCore {
 public:
  ScriptCore(const File& file, const Json& options, const BuildContext& context)
      : path_(file.path), script_(read_module(file)) {
    for (const auto& [name, value] : options.items())
      if (name != "sha256") script_.setattr(name, value_of(script_.attr(name), value));
    if (claims_causal(script_)) script_.setattr("causal", context.causal);
    if (script_.hasattr("dropout") && script_.attr("dropout").isDouble()) script_.setattr("dropout", context.dropout);
    set_training(script_, is_training());
    adopt(*this, script_);
  }

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    return run(q, k, v, mask.all_valid() ? every_token(q) : mask.key_valid);
  }

  void train(bool on) override {
    AttentionCore::train(on);
    set_training(script_, on);
  }

  // Counted in a pass over zeros of one example, once for a length.
  [[nodiscard]] Cost cost(const Shape& shape) const override {
    double& flops = flops_[{shape.heads, shape.query_len, shape.head_dim}];
    if (flops == 0) {
      const at::NoGradGuard no_grad;
      at::TensorOptions like = at::kFloat;
      if (const auto parameters = this->parameters(); !parameters.empty()) like = parameters.front().options();
      const at::Tensor zero = at::zeros({1, shape.heads, shape.query_len, shape.head_dim}, like);
      set_training(script_, false);
      const OpCounter counter;
      static_cast<void>(run(zero, zero, zero, every_token(zero)));
      flops = static_cast<double>(counter.counts().flops);
      set_training(script_, is_training());
    }
    const double all = flops * static_cast<double>(shape.batch);
    return {all, all, 0};
  }

 private:
  static at::Tensor every_token(const at::Tensor& x) {
    return at::ones({x.size(0), x.size(2)}, x.options().dtype(at::kBool));
  }

  [[nodiscard]] at::Tensor run(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const at::Tensor& valid) const {
    // Operators as they are written, one after the other: what is fused after some passes would be other bits.
    const torch::jit::GraphOptimizerEnabledGuard plainly(false);
    at::Tensor out;
    try {
      out = torch::jit::Module(script_).forward({q, k, v, valid}).toTensor();
    } catch (const std::exception& error) {
      const std::string words = words_of(error);
      if (words.find("DefaultCPUAllocator") != std::string::npos || words.find("out of memory") != std::string::npos)
        throw OutOfMemory(fmt::format("{}: out of memory; a smaller --micro-batch needs less: {}", path_, words));
      throw UserError(fmt::format("{}: its forward failed: {}", path_, words));
    }
    XF_CHECK(out.sizes() == v.sizes() && out.scalar_type() == v.scalar_type(), UserError,
             "{}: expected forward to give {} [{}], got {} [{}]", path_, at::toString(v.scalar_type()),
             fmt::join(v.sizes(), ","), at::toString(out.scalar_type()), fmt::join(out.sizes(), ","));
    return out;
  }

  std::string path_;
  torch::jit::Module script_;
  mutable std::map<std::array<int64_t, 3>, double> flops_;  // of an example, by heads, length and width of a head
};

Descriptor describe(const std::string& name, const File& file) {
  const torch::jit::Module module = read_module(file);
  check_signature(file, module);
  Descriptor result;
  result.name = name;
  result.title = "TorchScript module " + file.path;
  result.paper = "your own";
  result.method_class = "own";
  result.summary = fmt::format("Whatever {} computes; `xformer check {}` tells whether it is fit and what it costs.",
                               file.path, file.path);
  result.traits = {.causal_ok = claims_causal(module), .library_dropout = true};
  result.appended_padding.when = "not known";
  result.options.push_back(hash_option(file.path, file.sha256));
  for (const auto& one : module.named_attributes(/*recurse=*/false)) {
    XF_CHECK(one.name != "sha256", DataError, "{}: its attribute 'sha256' has the name of the file's own option",
             file.path);
    if (std::optional<OptionInfo> option = option_of(one.name, one.value, file.path))
      result.options.push_back(std::move(*option));
  }
  for (const auto& one : module.named_parameters()) result.tensors.push_back({one.name, "parameter of " + file.path});
  for (const auto& one : module.named_buffers()) result.tensors.push_back({one.name, "buffer of " + file.path});
  result.build_core = [file](const Json& options, const BuildContext& context) {
    return std::make_shared<ScriptCore>(file, options, context);
  };
  return result;
}

}  // namespace

const Descriptor& script_attention(const std::string& name) {
  const std::string path = own_file_path(name);
  File file{path, read_file(path), ""};
  file.sha256 = sha256(file.bytes);
  static std::mutex guard;
  static std::map<std::pair<std::string, std::string>, std::unique_ptr<const Descriptor>> known;
  const std::lock_guard<std::mutex> lock(guard);
  std::unique_ptr<const Descriptor>& entry = known[{path, file.sha256}];
  if (!entry) entry = std::make_unique<const Descriptor>(describe(name, file));
  return *entry;
}

}  // namespace xformer::attention
