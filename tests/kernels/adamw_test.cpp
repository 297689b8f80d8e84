// The CPU's kernel of AdamW against its definition from plain operations. (That definition against the equations in
// double precision: tests/training/adamw_test.cpp.)
#include "kernels/adamw/adamw.h"

#include <ATen/Functions.h>

#include <catch2/catch.hpp>

#include "core/error.h"
#include "kernels/policy.h"
#include "tensor/init.h"

namespace xformer::kernels {

namespace {

at::Tensor number(double value) { return at::scalar_tensor(value, at::kDouble); }

struct Buffers {
  at::Tensor x, gradient, m, v;

  Buffers(int64_t size, at::ScalarType type) {
    const InitStream numbers(3);
    const auto normal = [&](const char* name) { return numbers.normal(name, {size}, 1).to(type); };
    x = normal("x");
    gradient = normal("gradient");
    m = normal("m");
    v = normal("v").square();
  }
};

}  // namespace

TEST_CASE("the CPU kernel of AdamW equals its definition, for any size and type") {
  for (const bool rectified : {false, true})
    for (const at::ScalarType type : {at::kFloat, at::kDouble})
      for (const int64_t size : {1, 7, 64, 1000, 100003}) {
        const AdamWConstants constants{0.98, 1e-7, 0.05, rectified, /*decayed=*/size / 3};
        Buffers ours(size, type), meant(size, type);
        const double tolerance = type == at::kDouble ? 1e-14 : 2e-6;
        for (int t = 1; t <= 12; ++t) {
          const AdamWControls controls{number(0.01 * t), number(0.95 - 0.01 * t), number(1.0 / t), number(t),
                                       number(0)};
          adamw(ours.x, ours.gradient, ours.m, ours.v, controls, constants);
          adamw_reference(meant.x, meant.gradient, meant.m, meant.v, controls, constants);
        }
        CHECK(at::allclose(ours.x, meant.x, tolerance, tolerance));
        CHECK(at::allclose(ours.m, meant.m, tolerance, tolerance));
        CHECK(at::allclose(ours.v, meant.v, tolerance, tolerance));
        CHECK_FALSE(at::allclose(ours.x, Buffers(size, type).x, 1e-3, 1e-3));
      }
}

TEST_CASE("a skipped update of AdamW leaves everything, whatever the gradient holds, in kernel and definition") {
  for (const bool reference : {false, true}) {
    Buffers buffers(100, at::kFloat);
    const Buffers before(100, at::kFloat);
    buffers.gradient[3] = std::numeric_limits<float>::quiet_NaN();
    const AdamWControls controls{number(0.1), number(0.9), number(1), number(4), number(1)};
    (reference ? adamw_reference : adamw)(buffers.x, buffers.gradient, buffers.m, buffers.v, controls, {});
    CHECK(buffers.x.equal(before.x));
    CHECK(buffers.m.equal(before.m));
    CHECK(buffers.v.equal(before.v));
  }
}

TEST_CASE("--kernels check runs AdamW's kernel beside its definition") {
  Buffers buffers(1000, at::kFloat);
  const AdamWControls controls{number(0.1), number(0.9), number(1), number(1), number(0)};
  set_policy(Policy::kCheck);
  CHECK_NOTHROW(adamw(buffers.x, buffers.gradient, buffers.m, buffers.v, controls, {}));
  set_policy(Policy::kAuto);
  CHECK_FALSE(buffers.x.equal(Buffers(1000, at::kFloat).x));
}

TEST_CASE("AdamW refuses buffers that do not fit together") {
  Buffers buffers(100, at::kFloat);
  const AdamWControls controls{number(0.1), number(0.9), number(1), number(1), number(0)};
  CHECK_THROWS_AS(adamw(buffers.x, buffers.gradient.narrow(0, 0, 50), buffers.m, buffers.v, controls, {}),
                  InternalError);
  CHECK_THROWS_AS(adamw(buffers.x, buffers.gradient.to(at::kDouble), buffers.m, buffers.v, controls, {}),
                  InternalError);
}

}  // namespace xformer::kernels
