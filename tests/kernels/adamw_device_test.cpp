// AdamW and the norm of gradients as a device computes them, walked on the CPU, against their definitions.
#include <catch2/catch.hpp>
#include <cmath>

#include "block_walk.h"
#include "kernels/adamw/device.h"
#include "kernels/gradient_norm/device.h"
#include "plan_support.h"
#include "tensor/init.h"

namespace xformer::kernels::adamw_device_test {

namespace {

at::Tensor device_scalar(double value) { return at::scalar_tensor(value, at::kDouble); }

struct UpdatedBuffers {
  at::Tensor x, gradient, m, v;

  UpdatedBuffers(int64_t size, at::ScalarType type, int64_t shift = 0) {
    const InitStream numbers(3);
    const auto normal = [&](const char* name) {
      return numbers.normal(name, {size + shift}, 1).to(type).narrow(0, shift, size);
    };
    x = normal("x"), gradient = normal("gradient"), m = normal("m"), v = normal("v").square();
  }
};

void walk_adamw(const UpdatedBuffers& on, const AdamWControls& controls, const AdamWConstants& constants,
                WalkOrder order) {
  adamw_device(on.x, on.gradient, on.m, on.v, controls, constants, [&](const AdamWArguments& a) {
    choose_program(a, [&](const auto& program) { walk(adamw_grid(a.elements), program, order); });
  });
}

void check_update(int64_t size, at::ScalarType type, int64_t shift, bool rectified, int steps) {
  CAPTURE(size, type, shift, rectified);
  const AdamWConstants constants{0.98, 1e-7, 0.05, rectified, /*decayed=*/size / 3};
  const UpdatedBuffers ours(size, type, shift), backwards(size, type, shift), meant(size, type, shift);
  const double tolerance = type == at::kDouble ? 1e-13 : 2e-6;
  for (int t = 1; t <= steps; ++t) {
    const AdamWControls controls{device_scalar(0.01 * t), device_scalar(0.95 - 0.01 * t), device_scalar(1.0 / t),
                                 device_scalar(t), device_scalar(0)};
    walk_adamw(ours, controls, constants, WalkOrder::kForward);
    walk_adamw(backwards, controls, constants, WalkOrder::kBackward);
    adamw_reference(meant.x, meant.gradient, meant.m, meant.v, controls, constants);
  }
  CHECK(at::allclose(ours.x, meant.x, tolerance, tolerance));
  CHECK(at::allclose(ours.m, meant.m, tolerance, tolerance));
  CHECK(at::allclose(ours.v, meant.v, tolerance, tolerance));
  CHECK(at::equal(ours.x, backwards.x));
}

struct NormResult {
  double norm, factor, skip, step;
};

NormResult walk_norm(const at::Tensor& gradients, const at::Tensor& scale, double clip, WalkOrder order) {
  const GradientControls controls{device_scalar(NAN), device_scalar(NAN), device_scalar(NAN), device_scalar(6),
                                  at::zeros({}, at::kInt)};
  gradient_norm_device(gradients, scale, clip, controls, [&](const GradientNormArguments& a) {
    run_gradient_norm(a, [&](const LaunchGrid& grid, const auto& program) { walk(grid, program, order); });
  });
  CHECK(controls.ready.item<int>() == 0);  // for the next launch
  return {controls.norm.item<double>(), controls.factor.item<double>(), controls.skip.item<double>(),
          controls.step.item<double>()};
}

NormResult defined_norm(const at::Tensor& gradients, const at::Tensor& scale, double clip) {
  const GradientControls controls{device_scalar(NAN), device_scalar(NAN), device_scalar(NAN), device_scalar(6),
                                  at::Tensor()};
  gradient_norm_reference(gradients, scale, clip, controls);
  return {controls.norm.item<double>(), controls.factor.item<double>(), controls.skip.item<double>(),
          controls.step.item<double>()};
}

}  // namespace

TEST_CASE("AdamW on a device equals its definition, for every size from 1 to 130") {
  for (int64_t size = 1; size <= 130; ++size)
    for (const at::ScalarType type : {at::kFloat, at::kDouble})
      for (const int64_t shift : {0, 1}) check_update(size, type, shift, /*rectified=*/size % 2 == 0, /*steps=*/2);
}

TEST_CASE("AdamW on a device equals its definition, for any size, place and type") {
  for (const bool rectified : {false, true})
    for (const at::ScalarType type : {at::kFloat, at::kDouble})
      for (const int64_t size : {1, 7, 64, 1000, 5003})
        for (const int64_t shift : {0, 1}) check_update(size, type, shift, rectified, /*steps=*/9);
}

TEST_CASE("AdamW on a device leaves everything when a step is skipped") {
  const UpdatedBuffers buffers(100, at::kFloat), before(100, at::kFloat);
  buffers.gradient[3] = NAN;
  walk_adamw(buffers, {device_scalar(0.1), device_scalar(0.9), device_scalar(1), device_scalar(4), device_scalar(1)},
             {}, WalkOrder::kForward);
  CHECK(buffers.x.equal(before.x));
  CHECK(buffers.m.equal(before.m));
  CHECK(buffers.v.equal(before.v));
}

TEST_CASE("the norm of gradients on a device: every size from 1 to 130") {
  for (int64_t size = 1; size <= 130; ++size)
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      CAPTURE(size, type);
      const at::Tensor gradients = InitStream(5).normal("g", {size + 1}, 1).to(type).narrow(0, size % 2, size);
      const NormResult got = walk_norm(gradients, {}, 0.5, WalkOrder::kForward),
                       meant = defined_norm(gradients, {}, 0.5);
      CHECK(got.norm == Approx(meant.norm).epsilon(1e-6));
      CHECK(got.factor == Approx(meant.factor).epsilon(1e-6));
    }
}

TEST_CASE("the norm of gradients on a device: norm, clipping, loss scale, in any order") {
  for (const at::ScalarType type : {at::kFloat, at::kDouble})
    for (const int64_t size : {1, 9, 2048, 100003})
      for (const double clip : {0.0, 0.5, 1e6})
        for (const bool scaled : {false, true}) {
          CAPTURE(size, clip, scaled);
          const at::Tensor gradients = InitStream(5).normal("g", {size + 1}, 1).to(type).narrow(0, size % 2, size);
          const at::Tensor scale = scaled ? at::scalar_tensor(1024.0, at::kFloat) : at::Tensor();
          const NormResult got = walk_norm(gradients, scale, clip, WalkOrder::kForward);
          const NormResult backwards = walk_norm(gradients, scale, clip, WalkOrder::kBackward);
          const NormResult meant = defined_norm(gradients, scale, clip);
          CHECK(got.norm == Approx(meant.norm).epsilon(1e-6));
          CHECK(got.norm == backwards.norm);
          CHECK(got.factor == Approx(meant.factor).epsilon(1e-6));
          CHECK((got.skip == 0 && got.step == 7));
        }
}

TEST_CASE("the norm of gradients on a device skips what is not finite, as the definition does") {
  for (const double odd : {double(NAN), double(INFINITY), -double(INFINITY), 1e30})
    for (const int64_t place : {0, 8190, 20000}) {
      at::Tensor gradients = at::zeros({20001}, at::kFloat);
      gradients[place] = odd;
      for (const double clip : {0.0, 1.0}) {
        const NormResult got = walk_norm(gradients, {}, clip, WalkOrder::kForward);
        const NormResult meant = defined_norm(gradients, {}, clip);
        CHECK(got.skip == meant.skip);
        CHECK(got.step == meant.step);
        CHECK(got.skip == 1);
      }
    }
}

TEST_CASE("plans of the update fit a device at any size") {
  constexpr auto fits = [](int64_t elements) {
    return launch_fits<AdamWProgram<double>>(adamw_grid(elements)) &&
           launch_fits<GradientNormProgram<double>>(norm_parts_grid(elements)) &&
           norm_parts_grid(elements).blocks <= kNormParts && adamw_grid(elements).shared_bytes <= 1024;
  };
  STATIC_REQUIRE((fits(1) && fits(100000) && fits((int64_t{1} << 31) + 1) && fits(int64_t{1} << 45)));
}

}  // namespace xformer::kernels::adamw_device_test
