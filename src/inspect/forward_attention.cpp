#include "inspect/forward_attention.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include "core/error.h"

namespace xformer::inspect {

namespace {

struct Sizes {
  int64_t batch = 1, heads = 2, length = 2048, head_dim = 32, model_dim = 64;
  at::ScalarType type = at::kFloat;
  int64_t keys = 0;  // of another sequence; 0: q, k and v are one
};

// The first input, which the others must fit; its own shape and type are checked here.
const at::Tensor& leading(const TensorMap& inputs, const char* name, size_t axes, const char* shape) {
  const auto found = inputs.find(name);
  XF_CHECK(found != inputs.end(), UserError, "--input lacks {} F32 or F64 {}", name, shape);
  const at::Tensor& tensor = found->second;
  XF_CHECK(tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble, UserError,
           "--input: {}: expected type F32 or F64, found {}", name, safetensors_type(tensor.scalar_type()));
  const ExpectedTensor as_found{name, tensor.sizes().vec(), {}, ""};
  XF_CHECK(tensor.sizes().size() == axes && tensor.numel() > 0, UserError,
           "--input: {}: expected shape {} without empty axes, found {}", name, shape, as_found.shape_text());
  return tensor;
}

Sizes sizes_of(const AttentionForward& request, const TensorMap& inputs) {
  Sizes sizes;
  const auto given = [](const char* option, int64_t wanted, int64_t found) {
    XF_CHECK(wanted == 0 || wanted == found, UserError, "{} is {}, but the input has {}", option, wanted, found);
  };
  if (inputs.empty()) {
    if (request.heads > 0) sizes.heads = request.heads;
    if (request.head_dim > 0) sizes.head_dim = request.head_dim;
    if (request.length > 0) sizes.length = request.length;
    sizes.model_dim = sizes.heads * sizes.head_dim;
  } else if (request.mixer) {
    const at::Tensor& x = leading(inputs, "x", 3, "[b,n,m]");
    sizes = {x.size(0), request.heads > 0 ? request.heads : 2, x.size(1), request.head_dim, x.size(2), x.scalar_type()};
    XF_CHECK(sizes.head_dim > 0 || sizes.model_dim % sizes.heads == 0, UserError,
             "--heads: {} heads do not divide the width {} of x; --head-dim says how wide a head is", sizes.heads,
             sizes.model_dim);
    if (sizes.head_dim == 0) sizes.head_dim = sizes.model_dim / sizes.heads;
    given("--length", request.length, sizes.length);
  } else {
    const at::Tensor& q = leading(inputs, "q", 4, "[b,h,n,d]");
    sizes = {q.size(0), q.size(1), q.size(2), q.size(3), q.size(1) * q.size(3), q.scalar_type()};
    given("--heads", request.heads, sizes.heads);
    given("--head-dim", request.head_dim, sizes.head_dim);
    given("--length", request.length, sizes.length);
    // Keys and values may be those of another sequence.
    if (const auto k = inputs.find("k");
        k != inputs.end() && k->second.dim() == 4 && k->second.size(2) > 0 && k->second.size(2) != sizes.length) {
      attention::check_cross(request.attention);
      XF_CHECK(!request.causal, UserError, "--causal: {} queries and {} keys have no common order", sizes.length,
               k->second.size(2));
      sizes.keys = k->second.size(2);
    }
  }
  const int64_t longest = std::max(sizes.length, sizes.keys);
  XF_CHECK(request.max_len == 0 || request.max_len >= longest, UserError,
           "--max-len: expected at least the input's length {}, got {}", longest, request.max_len);
  XF_CHECK(request.pinned <= sizes.length, UserError, "--pinned: expected at most the input's length {}, got {}",
           sizes.length, request.pinned);
  return sizes;
}

// That a fixed-length attention is built for: of the sequence that keys come from.
int64_t longest_of(const AttentionForward& request, const Sizes& sizes) {
  if (request.max_len > 0) return request.max_len;
  return sizes.keys > 0 ? sizes.keys : sizes.length;
}

struct Built {
  std::shared_ptr<attention::AttentionCore> core;  // one of the two
  std::shared_ptr<attention::SequenceMixer> mixer;
  NamedTensors parameters, buffers;

  void collect(const torch::nn::Module& module, const std::string& prefix) {
    for (const auto& entry : module.named_parameters()) parameters.emplace_back(prefix + entry.key(), entry.value());
    for (const auto& entry : module.named_buffers()) buffers.emplace_back(prefix + entry.key(), entry.value());
  }
};

// As layer 0 of a model with the request's seed.
Built build(const AttentionForward& request, const Sizes& sizes) {
  const auto seed = static_cast<uint64_t>(request.seed.value_or(0));
  attention::BuildContext context;
  context.model_dim = sizes.model_dim;
  context.heads = sizes.heads;
  context.head_dim = sizes.head_dim;
  context.max_len = longest_of(request, sizes);
  context.pinned_tokens = request.pinned;
  context.causal = request.causal;
  context.dropout_stream = std::make_shared<kernels::DropoutStream>(seed);
  context.shared = std::make_shared<attention::SharedObjects>();
  context.init = InitStream(seed).child("layer0").child("mixer");
  Built built;
  if (!request.mixer) {
    built.core = attention::build_core(request.attention, request.options, context);
    built.core->eval();
    built.collect(*built.core, "");
  } else {
    // A whole layer takes x and mask as a mixer does.
    if (request.attention.base->build_block) {
      attention::check_buildable(request.attention, request.options, context.heads, context.causal);
      built.mixer = request.attention.base->build_block(request.options, context);
    } else {
      built.mixer = attention::build_mixer(request.attention, request.options, context);
    }
    built.mixer->eval();
    built.collect(*built.mixer, "");
  }
  built.collect(*context.shared, "shared.");
  return built;
}

std::vector<ExpectedTensor> expected_of(const AttentionForward& request, const Sizes& sizes, const Built& built,
                                        bool any_type) {
  const std::vector<at::ScalarType> type = any_type ? kRealTypes : std::vector<at::ScalarType>{sizes.type};
  const std::vector<int64_t> heads{sizes.batch, sizes.heads, sizes.length, sizes.head_dim};
  const std::vector<int64_t> rows{sizes.batch, sizes.length, sizes.model_dim};
  const int64_t key_length = sizes.keys > 0 ? sizes.keys : sizes.length;
  const std::vector<int64_t> key_heads{sizes.batch, sizes.heads, key_length, sizes.head_dim};
  std::vector<ExpectedTensor> result;
  if (request.mixer) {
    result.push_back({"x", rows, type, "tokens [b,n,m]"});
  } else {
    result.push_back({"q", heads, type, "queries [b,h,n,d]"});
    result.push_back({"k", key_heads, type, "keys [b,h,n,d], or [b,h,k,d] of another sequence"});
    result.push_back({"v", key_heads, type, "values, as many as keys"});
  }
  result.push_back({"mask",
                    {sizes.batch, key_length},
                    {at::kBool},
                    "true where a token (a key) is valid; absent: everywhere",
                    false});
  result.push_back({kGradOutput, request.mixer ? rows : heads, kRealTypes,
                    "--grad differentiates sum(output * grad_output); absent: ones", false});
  for (const NamedTensors& tensors : {built.parameters, built.buffers})
    for (const auto& [name, tensor] : tensors)
      result.push_back({name, tensor.sizes().vec(),
                        tensor.is_floating_point() ? kRealTypes : std::vector<at::ScalarType>{tensor.scalar_type()},
                        attention::tensor_meaning(request.attention, name), !request.seed, true});
  return result;
}

// Given values over drawn ones, all of them in the type of the computation and on its device.
void fill(const NamedTensors& tensors, const TensorMap& inputs, at::ScalarType type, at::Device device) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : tensors) {
    const auto found = inputs.find(name);
    const at::Tensor value = found != inputs.end() ? found->second : tensor.detach();
    tensor.set_data(value.to(device, tensor.is_floating_point() ? type : tensor.scalar_type(), false, /*copy=*/true));
  }
}

}  // namespace

std::vector<ExpectedTensor> expected_tensors(const AttentionForward& request, const TensorMap& inputs) {
  const Sizes sizes = sizes_of(request, inputs);
  return expected_of(request, sizes, build(request, sizes), inputs.empty());
}

ForwardResult forward_attention(const AttentionForward& request, const TensorMap& inputs) {
  XF_CHECK(!inputs.empty(), UserError, "--input holds no tensor; --template prints what it may hold");
  const Sizes sizes = sizes_of(request, inputs);
  const Built built = build(request, sizes);
  check_inputs(inputs, expected_of(request, sizes, built, false), request.view,
               "--seed N draws initial values in place of what is missing");
  for (const auto& [name, tensor] : inputs) {
    const std::string fault = attention::tensor_fault(request.attention, name, tensor);
    XF_CHECK(fault.empty(), UserError, "--input: {}: {}", name, fault);
  }
  fill(built.parameters, inputs, sizes.type, request.device);
  fill(built.buffers, inputs, sizes.type, request.device);

  ForwardPass pass;
  pass.result_name = "output";
  for (const char* name : {"q", "k", "v", "x"})
    if (const auto found = inputs.find(name); found != inputs.end())
      pass.leaves.emplace_back(name, found->second.to(request.device, sizes.type, false, /*copy=*/true).detach());
  const NamedTensors in = pass.leaves;
  pass.leaves.insert(pass.leaves.end(), built.parameters.begin(), built.parameters.end());
  if (const auto found = inputs.find(kGradOutput); found != inputs.end())
    pass.grad_output = found->second.to(request.device, sizes.type);
  SequenceMask mask{{}, request.causal, /*cross=*/sizes.keys > 0};
  if (const auto found = inputs.find("mask"); found != inputs.end()) mask.key_valid = found->second.to(request.device);
  attention::Carry carry;
  pass.run = [&] {
    if (request.mixer) return built.mixer->forward(in[0].second, mask, carry);
    return built.core->forward(in[0].second, in[1].second, in[2].second, mask, carry);
  };
  ForwardResult result = run_forward(pass, request.view);
  result.notes = notes_on_numbers(inputs);
  if (request.seed)
    for (const NamedTensors& tensors : {built.parameters, built.buffers})
      for (const auto& [name, tensor] : tensors) result.tensors.emplace_back(name, tensor.detach());

  Json options{{"heads", sizes.heads},
               {"head_dim", sizes.head_dim},
               {"max_len", longest_of(request, sizes)},
               {"pinned", request.pinned},
               {"causal", request.causal}};
  if (request.seed) options["seed"] = *request.seed;
  for (const auto& [key, value] : request.options.items()) options["attention." + key] = value;
  result.metadata = {{request.mixer ? "mixer" : "core", request.attention.name}, {"options", options.dump()}};
  return result;
}

}  // namespace xformer::inspect
