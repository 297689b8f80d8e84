// luna in the encoder: the packed sequence goes from layer to layer (attention-core 3.14).
#include <ATen/Functions.h>

#include <catch2/catch.hpp>

#include <map>

#include "models/model.h"
#include "tensor/probe.h"

namespace xformer::models {

TEST_CASE("two encoder layers hand luna's P on: each adds what it packs to what the one before left") {
  for (const std::string name : {"luna", "mrs-luna"}) {
    INFO(name);
    ModelRequest request;
    request.input = {16, 13};
    request.outputs = 10;
    request.attention = attention::resolve(name);
    for (const OptionInfo& option : request.attention.options())
      request.attention_options[option.name] = option.fallback;
    for (const OptionInfo& option : all_families().get("encoder").options)
      request.model_options[option.name] = option.fallback;
    request.model_options.update({{"dim", 16}, {"head_dim", 8}, {"ff_dim", 32}});
    request.attention_options["packed_len"] = 3;
    const auto model = all_families().get("encoder").build(request);
    model->eval();
    ModelInput input{at::arange(32, at::kLong).view({2, 16}).remainder(12) + 1, at::ones({2, 16}, at::kBool)};
    input.key_valid[1].narrow(0, 9, 7).fill_(false);

    const ProbeRecorder recorder([](const std::string&) { return true; });
    (void)model->forward(input);
    const std::map<std::string, at::Tensor> kept(recorder.kept().begin(), recorder.kept().end());
    for (const std::string scale : {"", "scale1.", "scale2."}) {
      if (scale.empty() != (name == "luna")) continue;
      const auto of_layer = [&](int layer, const std::string& what) {
        return kept.at("layer" + std::to_string(layer) + ".mixer." + scale + what);
      };
      const at::Tensor first = of_layer(0, "packed"), second = of_layer(1, "packed");
      const at::Tensor added = at::matmul(of_layer(1, "pack.weights"), of_layer(1, "v")).transpose(1, 2).flatten(2);
      CHECK((second - first - added).abs().max().item<float>() < 1e-5);
      CHECK(added.abs().max().item<float>() > 1e-3);
    }
  }
}

}  // namespace xformer::models
