// Heads in 16 bits on a device: what takes them as they are, and what is computed in float.
#include <catch2/catch.hpp>

#include "attention/shared/full_precision.h"
#include "attention/support.h"
#include "device/walked_device.h"

namespace xformer::attention::half_attention_test {

using namespace support;
using Catch::Matchers::Contains;

TEST_CASE("softmax-fused takes heads in bf16 and fp16 on a device, wider ones than its kernels in float") {
  kernels::set_walk_order(kernels::WalkOrder::kForward);
  const SequenceMask mask = length_mask({70, 41}, 70);
  for (const auto& [type, word, rounding] :
       {std::tuple{at::kBFloat16, "bf16", 1.0 / 256}, {at::kHalf, "fp16", 1.0 / 2048}}) {
    CAPTURE(word);
    for (const int64_t width : {16, 80}) {
      CAPTURE(width);
      std::vector<at::Tensor> heads;
      for (const char* name : {"q", "k", "v"}) heads.push_back(random_tensor(name, {2, 2, 70, width}).to(type));
      const BuiltCore core = make_core("softmax-fused", {}, {.type = at::kFloat});
      const at::Tensor meant = core(heads[0].to(at::kFloat), heads[1].to(at::kFloat), heads[2].to(at::kFloat), mask);
      SequenceMask there = mask;
      there.key_valid = mask.key_valid.to(kernels::kWalkedDevice);
      for (at::Tensor& one : heads) one = one.to(kernels::kWalkedDevice);
      static_cast<void>(kernels::take_device_work());
      const at::Tensor out = core(heads[0], heads[1], heads[2], there);
      const bool kernel = width == 16;
      CHECK(out.scalar_type() == (kernel ? type : at::kFloat));
      CHECK((kernels::take_device_work().launches > 0) == kernel);
      if (kernel) CHECK_THAT(core.module->backend(), Contains(std::string("fused-hpu-") + word));
      CHECK((out.cpu().to(at::kFloat) - meant).abs().max().item<double>() < (kernel ? rounding : 1e-5) * 4);
    }
  }
}

TEST_CASE("between projections 16 bits stay for what takes them on a device, and nowhere else") {
  const at::Tensor here = at::ones({2}, at::kHalf), there = here.to(kernels::kWalkedDevice);
  CHECK(FullPrecision(at::kHPU, false, true)(there).scalar_type() == at::kHalf);
  CHECK(FullPrecision(at::kHPU, true)(there).scalar_type() == at::kFloat);
  CHECK(FullPrecision(at::kCPU, false, true)(here).scalar_type() == at::kFloat);
}

}  // namespace xformer::attention::half_attention_test
