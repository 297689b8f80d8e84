// Heads in 16 bits on a device: what takes them as they are, and what is computed in float.
#include <catch2/catch.hpp>

#include "attention/shared/full_precision.h"
#include "attention/support.h"
#include "device/walked_device.h"
#include "kernels/policy_scope.h"

namespace xformer::attention::half_attention_test {

using namespace support;
using Catch::Matchers::Contains;

// Heads wider than the kernels take are computed in float, from the same rounded numbers.
TEST_CASE("heads in bf16 and fp16 on a device are taken as they are, wider ones than the kernels in float") {
  kernels::set_walk_order(kernels::WalkOrder::kForward);
  const SequenceMask mask = length_mask({70, 41}, 70);
  const Json none = Json::object(), scales{{"scales", {1, 4}}};
  const std::vector<std::pair<std::string, Json>> attentions{
      {"softmax-fused", none},
      {"linear", none},
      {"performer", none},
      {"performer-relu", none},
      {"mrs-softmax-fused", scales},
      {"mrs-linear", scales},
      {"linformer", none},
      {"none", none},
      {"local-window", Json{{"window", {8}}}},
      {"local-block", Json{{"block", 20}}},
      {"mrs-local-window", scales},
      {"longformer", Json{{"window", {8}}, {"dilation", {1, 2}}}},
      {"etc", Json{{"window", {8}}, {"global_tokens", 5}}},
      {"bigbird", Json{{"block", 8}}},
      {"image-local-1d", Json{{"block", 16}, {"memory_length", 8}}},
      {"image-local-2d", Json{{"columns", 10}, {"block_height", 3}, {"memory_width", 2}}},
      {"blockwise", Json{{"blocks", 3}}}};
  for (const auto& [name, options] : attentions)
    for (const auto& [type, word, rounding] :
         {std::tuple{at::kBFloat16, "bf16", 1.0 / 256}, {at::kHalf, "fp16", 1.0 / 2048}})
      for (const int64_t width : {16, 80}) {
        CAPTURE(name, word, width);
        std::vector<at::Tensor> heads;
        for (const char* one : {"q", "k", "v"}) heads.push_back(random_tensor(one, {2, 2, 70, width}).to(type));
        const BuiltCore core = make_core(name, options, {.head_dim = width, .max_len = 70, .type = at::kFloat});
        const at::Tensor meant = core(heads[0].to(at::kFloat), heads[1].to(at::kFloat), heads[2].to(at::kFloat), mask);
        SequenceMask there = mask;
        there.key_valid = mask.key_valid.to(kernels::kWalkedDevice);
        for (at::Tensor& one : heads) one = one.to(kernels::kWalkedDevice);
        core.module->to(kernels::kWalkedDevice), core.shared->to(kernels::kWalkedDevice);
        static_cast<void>(kernels::take_device_work());
        const at::Tensor out = core(heads[0], heads[1], heads[2], there);
        const int64_t own = kernels::take_device_work().launches;
        const bool kernel = width == 16;
        const bool mixes = name != "none";
        CHECK(out.scalar_type() == (kernel || !mixes ? type : at::kFloat));
        if (kernel && mixes) CHECK(own > 0);
        if (kernel && name == "softmax-fused")
          CHECK_THAT(core.module->backend(), Contains(std::string("fused-hpu-") + word));
        // Of features and pooled rows there are roundings more.
        CHECK((out.cpu().to(at::kFloat) - meant).abs().max().item<double>() < (kernel ? rounding * 8 : rounding));
      }
}

// LibTorch's own operator would drop others, by its generator.
TEST_CASE("softmax-fused drops on a device what it drops on a CPU, whatever its heads and their type") {
  kernels::set_walk_order(kernels::WalkOrder::kForward);
  const SequenceMask mask = length_mask({70, 41}, 70);
  const BuildContext context = make_context({.dropout = 0.3});
  const Resolved softmax = resolve("softmax-fused");
  const std::shared_ptr<AttentionCore> core = build_core(softmax, full_options(softmax), context);
  core->train();
  const auto out_on = [&](const c10::Device& device, int64_t width, at::ScalarType type, uint64_t seed) {
    std::vector<at::Tensor> heads;
    for (const char* name : {"q", "k", "v"})
      heads.push_back(random_tensor(name, {2, 2, 70, width}).to(at::kFloat).to(type).to(device));
    SequenceMask there = mask;
    there.key_valid = mask.key_valid.to(device);
    context.dropout_stream->to(device);
    context.dropout_stream->set_step(3);
    at::manual_seed(seed);
    Carry carry;
    return core->forward(heads[0], heads[1], heads[2], there, carry).cpu().to(at::kFloat);
  };
  for (const int64_t width : {16, 80}) {
    CAPTURE(width);
    const at::Tensor meant = out_on(at::kCPU, width, at::kFloat, 1);
    for (const uint64_t seed : {1, 2})
      CHECK((out_on(kernels::kWalkedDevice, width, at::kFloat, seed) - meant).abs().max().item<double>() < 1e-5);
    // Of rounded heads; an element dropped otherwise is a tenth and more.
    CHECK((out_on(kernels::kWalkedDevice, width, at::kBFloat16, 1) - meant).abs().max().item<double>() < 0.05);
  }
  CHECK_THAT(core->backend(), Contains("reference in training"));  // the last heads were wide
}

TEST_CASE("between projections 16 bits stay for what takes them on a device, and nowhere else") {
  const at::Tensor here = at::ones({2}, at::kHalf), there = here.to(kernels::kWalkedDevice);
  CHECK(FullPrecision(at::kHPU, false, true)(there).scalar_type() == at::kHalf);
  CHECK(FullPrecision(at::kHPU, true)(there).scalar_type() == at::kFloat);
  CHECK(FullPrecision(at::kCPU, false, true)(here).scalar_type() == at::kFloat);
}

TEST_CASE("attentions over windows are given 16 bits on a device where their kernels run, and floats elsewhere") {
  for (const char* name : {"local-window", "longformer", "etc", "bigbird", "image-local-1d", "blockwise"}) {
    CAPTURE(name);
    const BuiltCore core = make_core(name, Json::object(), {.head_dim = 16, .max_len = 70, .type = at::kFloat});
    const at::Tensor q = at::ones({2, 2, 70, 16}, at::TensorOptions(kernels::kWalkedDevice).dtype(at::kHalf));
    CHECK(core.module->takes_half_on_devices(q));
    CHECK_FALSE(core.module->takes_half_on_devices(q.repeat({1, 1, 1, 5})));
    const kernels::PolicyScope scope(kernels::Policy::kComposite);
    CHECK_FALSE(core.module->takes_half_on_devices(q));
  }
}

}  // namespace xformer::attention::half_attention_test
