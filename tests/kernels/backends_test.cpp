// What ran is told by operator, from the calls themselves.
#include <ATen/Functions.h>

#include <catch2/catch.hpp>

#include "kernels/adamw/adamw.h"
#include "kernels/cpu/tile_product.h"
#include "kernels/dropout/dropout.h"
#include "kernels/gelu_dropout/gelu_dropout.h"
#include "kernels/linear/linear.h"
#include "kernels/policy_scope.h"
#include "tensor/probe.h"

namespace xformer::kernels::backends_test {

using Ran = std::map<std::string, std::string>;

// A product, an activation with dropout, and an update.
void run_some() {
  const at::Tensor x = at::ones({4, 8}), weight = at::ones({8, 8});
  const DropoutStream stream(1);
  static_cast<void>(gelu_dropout(linear(x, {weight, {}}), false, {0.5, stream.state, 0}));
  const auto number = [](double value) { return at::scalar_tensor(value, at::kDouble); };
  adamw(at::ones({8}), at::ones({8}), at::zeros({8}), at::zeros({8}),
        {number(0.1), number(0.9), number(1), number(1), number(0)}, {});
}

Ran after(Policy policy) {
  const PolicyScope scope(policy);
  reset_backends();
  run_some();
  return backends_run();
}

TEST_CASE("every policy tells which kernels ran, and composite runs none but dropout's") {
  Ran fused{{"adamw", "fused-cpu"}, {"gelu_dropout", "fused-cpu"}, {"linear", "fused-cpu"}, {"products", "mkl"}};
  CHECK(after(Policy::kBlas) == fused);
  if (tile_products().available) fused["products"] = tile_products().name;
  CHECK(after(Policy::kAuto) == fused);
  fused["dropout"] = "fused-cpu";  // in the composition that is compared with
  CHECK(after(Policy::kCheck) == fused);
  Ran plain{{"adamw", "reference"}, {"dropout", "reference"}, {"gelu_dropout", "reference"}, {"linear", "reference"}};
  CHECK(after(Policy::kReference) == plain);
  plain["dropout"] = "fused-cpu";
  CHECK(after(Policy::kComposite) == plain);
  reset_backends();
  CHECK(backends_run().empty());
}

TEST_CASE("an operator that ran both ways says both") {
  reset_backends();
  run_some();
  const PolicyScope scope(Policy::kReference);
  run_some();
  CHECK(backends_run().at("linear") == "fused-cpu+reference");
}

}  // namespace xformer::kernels::backends_test
