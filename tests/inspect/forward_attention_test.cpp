// `xformer forward --core` and `--mixer` without their words: results and gradients against the modules called
// directly, captured tensors, drawn parameters, and what is refused.
#include "inspect/forward_attention.h"

#include <ATen/Functions.h>

#include "inspect/forward_model.h"
#include "inspect/forward_support.h"
#include "plan/options.h"
#include "scratch.h"

namespace xformer::inspect {

namespace {

using scratch::message_of;

const Json kSmall = {{"features", 12}, {"projected_len", 4}, {"scales", {1, 3}}};
constexpr int64_t kLength = 20;

AttentionForward request_for(const std::string& name, bool mixer = false, const Json& options = kSmall) {
  AttentionForward request;
  request.attention = attention::resolve(name);
  request.options = support::full_options(request.attention, options);
  request.mixer = mixer;
  return request;
}

at::Tensor mask_of() { return support::length_mask({kLength, 11}, kLength).key_valid; }

TensorMap core_inputs() {
  const support::Inputs in = support::random_inputs(2, 2, kLength, 5);
  return {{"q", in.q}, {"k", in.k}, {"v", in.v}, {"mask", mask_of()}};
}

template <class State>
TensorMap with_state(TensorMap inputs, const State& state) {
  for (const auto& [name, tensor] : state) inputs.emplace(name, tensor.detach().clone());
  return inputs;
}

// forward runs the references, which have tensors to look at; the module alone runs the fused kernels.
bool close(const at::Tensor& got, const at::Tensor& meant) {
  const double tolerance = meant.scalar_type() == at::kDouble ? 1e-10 : 1e-4;
  return (got - meant).abs().max().item<double>() <= tolerance * std::max(1.0, meant.abs().max().item<double>());
}

}  // namespace

TEST_CASE("forward of a core is the core itself, in the inputs' type, and its gradients are autograd's") {
  for (const std::string& name : attention::all_names())
    for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
      if (!attention::resolve(name).base->build_core) continue;
      INFO(name << " " << at::toString(type));
      const support::BuiltCore core = support::make_core(name, kSmall, {.max_len = kLength, .type = type});
      TensorMap inputs = with_state(core_inputs(), core.state());
      for (const char* key : {"q", "k", "v"}) inputs[key] = inputs[key].to(type);
      inputs[kGradOutput] = support::random_tensor("grad", {2, 2, kLength, 5}).to(type);
      AttentionForward request = request_for(name);
      request.view.gradients = true;
      const ForwardResult result = forward_attention(request, inputs);

      std::vector<at::Tensor> leaves;
      for (const char* key : {"q", "k", "v"}) leaves.push_back(inputs[key].clone().set_requires_grad(true));
      const at::Tensor output = core(leaves[0], leaves[1], leaves[2], {mask_of()});
      (output * inputs[kGradOutput]).sum().backward();
      CHECK(find(result, "output").scalar_type() == type);
      CHECK(close(find(result, "output"), output));
      for (size_t i = 0; i < 3; ++i)
        CHECK(close(find(result, "grad." + std::string(i == 0   ? "q"
                                                       : i == 1 ? "k"
                                                                : "v")),
                    support::gradient_of(leaves[i])));
      for (const auto& [key, parameter] : core.parameters())
        CHECK(close(find(result, "grad." + key), support::gradient_of(parameter)));
      CHECK_FALSE(inputs["q"].requires_grad());  // the caller's tensors stay as they were
    }
}

TEST_CASE("forward of a mixer is the mixer itself, with gradients of x and projections") {
  for (const std::string& name : attention::all_names()) {
    INFO(name);
    const support::BuiltMixer mixer = support::make_mixer(name, kSmall, {.max_len = kLength});
    const at::Tensor x = support::random_tensor("x", {2, kLength, 10});
    AttentionForward request = request_for(name, true);
    request.view.gradients = true;
    const ForwardResult result = forward_attention(request, with_state({{"x", x}, {"mask", mask_of()}}, mixer.state()));
    const at::Tensor leaf = x.clone().set_requires_grad(true);
    const at::Tensor output = mixer(leaf, {mask_of()});
    output.sum().backward();
    CHECK(close(find(result, "output"), output));
    CHECK(close(find(result, "grad.x"), leaf.grad()));
    if (!attention::resolve(name).base->build_block)
      CHECK(find(result, "grad.value.weight").sizes() == at::IntArrayRef({10, 10}));
    for (const auto& [key, parameter] : mixer.parameters())
      CHECK(close(find(result, "grad." + key), support::gradient_of(parameter)));
  }
}

TEST_CASE("causality, pinned tokens, heads and the longest length reach the attention") {
  AttentionForward causal = request_for("softmax");
  causal.causal = true;
  TensorMap inputs = core_inputs();
  inputs.erase("mask");
  const support::Inputs in{inputs["q"], inputs["k"], inputs["v"]};
  CHECK(support::max_difference(find(forward_attention(causal, inputs), "output"),
                                support::dense_softmax(in, {{}, true})) < 1e-12);

  AttentionForward pinned = request_for("mrs-softmax", false, {{"scales", {4}}});
  pinned.pinned = 3;
  pinned.view.captures = {"scale4.weights"};
  CHECK(find(forward_attention(pinned, inputs), "scale4.weights").size(-1) == pooled_len(kLength, 4, 3));

  AttentionForward wide = request_for("linformer", true);
  wide.heads = 5;
  wide.head_dim = 3;
  wide.max_len = 31;
  wide.seed = 1;
  const ForwardResult result = forward_attention(wide, {{"x", support::random_tensor("x", {2, kLength, 10})}});
  CHECK(find(result, "shared.linformer_e").sizes() == at::IntArrayRef({5, 4, 31}));
  CHECK(find(result, "out.weight").sizes() == at::IntArrayRef({10, 15}));
}

TEST_CASE("captured tensors are those of the computation, and their gradients too") {
  AttentionForward request = request_for("softmax");
  request.view = {{"weights"}, true};
  const TensorMap inputs = core_inputs();
  const ForwardResult result = forward_attention(request, inputs);
  CHECK(names_of(result) ==
        std::vector<std::string>{"output", "weights", "grad.q", "grad.k", "grad.v", "grad.weights"});
  const at::Tensor weights = find(result, "weights"), v = inputs.at("v");
  CHECK(support::max_difference(weights.sum(-1), at::ones({2, 2, kLength}, at::kDouble)) < 1e-12);
  CHECK(at::matmul(weights, v).equal(find(result, "output")));
  // d sum(W v) / d W_ij is the sum of row j of v.
  CHECK(support::max_difference(find(result, "grad.weights"), v.sum(-1).unsqueeze(2).expand({2, 2, kLength, kLength})) <
        1e-12);
  request.view = {{"w*s", "nothing.*"}, false};
  const std::string refused = message_of<UserError>([&] { (void)forward_attention(request, inputs); });
  CHECK(refused.find("'nothing.*'") != std::string::npos);
  CHECK(refused.find("there are weights") != std::string::npos);
}

TEST_CASE("keys and values may be those of another sequence, with the mask of that") {
  TensorMap inputs = core_inputs();
  for (const char* key : {"k", "v"}) inputs[key] = inputs[key].narrow(2, 0, 7);
  inputs["mask"] = support::length_mask({7, 4}, 7).key_valid;
  const support::Inputs in{inputs["q"], inputs["k"], inputs["v"]};
  const ForwardResult result = forward_attention(request_for("softmax"), inputs);
  CHECK(support::max_difference(find(result, "output"), support::dense_softmax(in, support::length_mask({7, 4}, 7))) <
        1e-12);
  // A fixed length is that of the keys.
  AttentionForward drawn = request_for("linformer");
  drawn.seed = 1;
  CHECK(find(forward_attention(drawn, inputs), "shared.linformer_e").sizes() == at::IntArrayRef({2, 4, 7}));
}

TEST_CASE("numbers that are none are told by tensor, count and place") {
  TensorMap inputs = core_inputs();
  inputs["k"] = inputs["k"].clone();
  inputs["k"][1][0][3][2] = std::nan("");
  inputs["k"][1][1][3][2] = std::nan("");
  inputs["v"] = inputs["v"].clone();
  inputs["v"][0][0][0][0] = INFINITY;
  const std::vector<std::string> notes = forward_attention(request_for("softmax"), inputs).notes;
  REQUIRE(notes.size() == 2);
  CHECK(notes[0].find("k: NaN in 2 of 400 numbers, first at [1,0,3,2]") != std::string::npos);
  CHECK(notes[1].find("v: infinity in 1 of 400 numbers") != std::string::npos);
  CHECK(forward_attention(request_for("softmax"), core_inputs()).notes.empty());
}

TEST_CASE("a seed draws what layer 0 of a training with it begins with, and the output is enough to compute again") {
  plan::PlanRequest words;
  words.task = "listops";
  words.seed = 3;
  for (const char* name : {"linformer", "mrs-performer"}) {
    words.model = name;
    words.layers = {{"test", {{"data.max_length", 60}, {"data.min_length", 5}}}};
    const RunPlan plan = plan::resolve_plan(words);
    const auto model = plan::build_model(plan);
    AttentionForward request = request_for(name, true, plan.group("attention"));
    request.max_len = plan::padded_len(plan);
    request.seed = 3;
    const at::Tensor x = support::random_tensor("x", {2, kLength, 64}).to(at::kFloat);
    const ForwardResult drawn = forward_attention(request, {{"x", x}});
    TensorMap again{{"x", x}};
    for (const auto& [key, tensor] : drawn.tensors)
      if (key != "output") again.emplace(key, tensor);
    CHECK(again.size() > 8);
    size_t compared = 0;
    for (const auto& [key, tensor] : models::state(*model)) {
      const std::string own = key.starts_with("layer0.mixer.") ? key.substr(13) : key;
      if (!again.contains(own)) continue;
      CHECK(again.at(own).equal(tensor));
      ++compared;
    }
    CHECK(compared == again.size() - 1);  // all but x
    request.seed.reset();
    CHECK(find(forward_attention(request, again), "output").equal(find(drawn, "output")));
  }
}

TEST_CASE("the template names every tensor with shape and meaning") {
  AttentionForward request = request_for("linformer", false, {{"projected_len", 16}, {"sharing", "headwise"}});
  request.length = 64;
  std::map<std::string, ExpectedTensor> tensors;
  for (const ExpectedTensor& tensor : expected_tensors(request, {})) tensors.emplace(tensor.name, tensor);
  CHECK(tensors.at("q").shape == std::vector<int64_t>{1, 2, 64, 32});
  CHECK_FALSE(tensors.at("mask").needed);
  CHECK(tensors.at("f").shape == std::vector<int64_t>{1, 16, 64});
  CHECK(tensors.at("f").parameter);
  for (const auto& [name, tensor] : tensors) CHECK_FALSE(tensor.meaning.empty());
  const std::vector<ExpectedTensor> sized = expected_tensors(request_for("softmax"), core_inputs());
  CHECK(sized.at(0).shape == std::vector<int64_t>{2, 2, kLength, 5});
}

TEST_CASE("inputs that do not fit are refused by name, with what was expected and found") {
  const auto refusal = [](const std::string& name, const std::function<void(TensorMap&, AttentionForward&)>& change) {
    TensorMap inputs = core_inputs();
    AttentionForward request = request_for(name);
    change(inputs, request);
    return message_of<UserError>([&] { (void)forward_attention(request, inputs); });
  };
  const struct {
    std::string name;
    std::function<void(TensorMap&, AttentionForward&)> change;
    std::vector<std::string> parts;
  } cases[] = {
      {"softmax", [](auto& in, auto&) { in.erase("k"); }, {"lacks", "k F64 [2,2,20,5]"}},
      {"softmax", [](auto& in, auto&) { in.erase("q"); }, {"lacks q", "[b,h,n,d]"}},
      {"softmax", [](auto& in, auto&) { in["q"] = in["q"][0]; }, {"q:", "[b,h,n,d]", "found [2,20,5]"}},
      {"softmax", [](auto& in, auto&) { in["q"] = in["q"].to(at::kHalf); }, {"q:", "F32 or F64", "found F16"}},
      {"softmax", [](auto& in, auto&) { in["v"] = in["v"].narrow(2, 0, 19); }, {"v:", "[2,2,20,5]", "[2,2,19,5]"}},
      {"softmax", [](auto& in, auto&) { in["k"] = in["k"].to(at::kFloat); }, {"k:", "expected type F64", "F32"}},
      {"softmax", [](auto& in, auto&) { in["mask"] = in["mask"].to(at::kFloat); }, {"mask:", "BOOL", "F32"}},
      {"softmax", [](auto& in, auto&) { in["mask"] = in["mask"].t(); }, {"mask:", "[2,20]", "[20,2]"}},
      {"softmax", [](auto& in, auto&) { in["maks"] = in["mask"]; }, {"'maks'", "did you mean 'mask'?"}},
      {"softmax", [](auto& in, auto&) { in[kGradOutput] = in["v"]; }, {"grad_output", "--grad"}},
      {"softmax", [](auto&, auto& request) { request.heads = 4; }, {"--heads is 4", "has 2"}},
      {"softmax", [](auto&, auto& request) { request.pinned = 21; }, {"--pinned", "20", "21"}},
      {"linformer", [](auto&, auto&) {}, {"shared.linformer_e F32 or F64 [2,4,20]", "--seed"}},
      {"linformer", [](auto&, auto& request) { request.max_len = 19; }, {"--max-len", "20", "19"}},
      {"linformer",
       [](auto& in, auto&) { in["shared.linformer_e"] = in["q"]; },
       {"shared.linformer_e", "expected shape [2,4,20]", "found [2,2,20,5]"}},
      {"linformer", [](auto&, auto& request) { request.causal = true; }, {"linformer has no causal form"}},
      {"mrs-softmax",
       [](auto&, auto& request) {
         request.options["scales"] = {1, 2, 4};
       },
       {"attention.scales", "3 scales", "2 heads"}},
      {"bigbird-itc",
       [](auto& in, auto& request) {
         request.options["block"] = 2;  // of 20 tokens 8 blocks are not global
         in["ranks"] = at::arange(8, at::kInt).repeat({2, 8, 1});
         in["ranks"][1][3][0] = 7;
       },
       {"ranks:", "every number from 0 to 7 once", "row [1,3]"}},
      {"sinkhorn",
       [](auto& in, auto&) {
         for (const char* key : {"k", "v"}) in[key] = in[key].narrow(2, 0, 7);
       },
       {"sinkhorn cannot attend to another sequence"}},
      {"softmax",
       [](auto& in, auto& request) {
         for (const char* key : {"k", "v"}) in[key] = in[key].narrow(2, 0, 7);
         request.causal = true;
       },
       {"--causal", "20 queries", "7 keys"}},
      {"none", [](auto&, auto& request) { request.view.captures = {"*"}; }, {"--capture", "nothing has a name"}},
      {"softmax",
       [](auto& in, auto& request) {
         request.mixer = true;
         request.heads = 3;
         in = {{"x", support::random_tensor("x", {2, 5, 10})}};
       },
       {"--heads", "3", "10"}},
      {"softmax",
       [](auto& in, auto& request) {
         request.mixer = true, in["x"] = at::ones({2, 5, 10});
       },
       {"'q'", "x"}},
  };
  for (const auto& entry : cases) {
    const std::string message = refusal(entry.name, entry.change);
    for (const std::string& part : entry.parts) {
      INFO(message << "\nexpected: " << part);
      CHECK(message.find(part) != std::string::npos);
    }
  }
}

}  // namespace xformer::inspect
