// What multiplies in a training step on a CPU, and when code is made for it: the models of the speed tables at ListOps'
// widths, on batches of examples of different lengths.
#include <catch2/catch.hpp>

#include "core/random.h"
#include "kernels/cpu/tile_product.h"
#include "kernels/policy_scope.h"
#include "tensor/op_profiler.h"
#include "training/step.h"

namespace xformer::training::step_products_test {

namespace {

// Several chunks of reformer's, landmarks of nystromformer's that stand for several tokens, and as many keys as a block
// of attention's has.
constexpr int64_t kRows = 4, kLength = 256, kExamples = 16;

const std::vector<std::string> kModels{"none",          "linear",   "linformer",    "performer",
                                       "nystromformer", "reformer", "softmax-fused"};

// From full to short, no two alike, few of them a multiple of anything.
int64_t length_of(int64_t example) { return kLength - 16 * example - example % 3; }

RunPlan plan_of(const std::string& model, const std::string& precision) {
  plan::PlanRequest request;
  request.task = "listops";
  request.model = model;
  request.protocol = "mlpen";
  request.layers.push_back(
      {"test", {{"model.length_rule", "exact"}, {"training.batch", kRows}, {"training.precision", precision}}});
  return plan::resolve_plan(request);
}

data::DataShape shape_of(const RunPlan& plan) {
  data::DataShape shape = plan::planned_shape(plan);
  shape.max_len = kLength;
  return shape;
}

class Trained {
 public:
  Trained(const std::string& model, const std::string& precision) : Trained(plan_of(model, precision)) {}

  void take(const data::HostBatch& batch) { step_.run(batch, steps_++, {1e-4, 0.9}); }
  // The batch of these places in an epoch that puts every `stride`-th example behind each other.
  void take(int64_t first, int64_t stride) {
    data::HostBatch batch;
    batch.reset(shape_, kRows, kLength);
    batch.filled = kRows;
    for (int64_t row = 0; row < kRows; ++row) {
      const int64_t example = (first + row) * stride % kExamples;
      Stream numbers(static_cast<uint64_t>(example));
      for (int64_t i = 0; i < length_of(example); ++i) {
        const auto at = static_cast<size_t>(row * kLength + i);
        batch.whole("tokens")[at] = 1 + static_cast<int64_t>(numbers.next_below(9));
        batch.key_valid[at] = 1;
      }
      const auto at = static_cast<size_t>(row);
      batch.row_valid[at] = 1;
      batch.whole("label")[at] = example % 10;
      batch.indices[at] = example;
    }
    take(batch);
  }
  void take_epoch(int64_t stride) {
    for (int64_t first = 0; first < kExamples; first += kRows) take(first, stride);
  }

 private:
  explicit Trained(const RunPlan& plan)
      : shape_(shape_of(plan)),
        model_(plan::build_model(plan, shape_)),
        step_(*model_, shape_, plan::training_schema().read(plan.group("training")), at::kCPU) {}

  data::DataShape shape_;
  std::shared_ptr<models::Model> model_;
  TrainStep step_;
  int64_t steps_ = 0;
};

template <class Test>
void for_all(const Test& test) {
  const kernels::PolicyScope fused(kernels::Policy::kAuto);
  for (const char* precision : {"fp32", "bf16"})
    for (const std::string& model : kModels) {
      INFO(model << " in " << precision);
      test(Trained(model, precision));
    }
}

bool makes_code() {
  const kernels::TileProducts& products = kernels::tile_products();
  if (!products.available)
    WARN("skipped: no code is made here" << (products.note.empty() ? "" : "; ") << products.note);
  return products.available;
}

}  // namespace

// Nobody's product is excepted: not the classifier's, whose rows are the batch, nor those of nystromformer's landmarks.
TEST_CASE("every product of a training step is a tile of our operators, and none is LibTorch's") {
  for_all([](Trained trained) {
    trained.take_epoch(1);  // what is made once may be made by anybody
    const OpProfiler profiler;
    trained.take(0, 1);
    trained.take(kRows, 5);
    int64_t ours = 0;
    for (const auto& [name, figures] : profiler.profile().operators) {
      INFO(name);
      // Also those that are not one product: of a vector, a convolution, LibTorch's attention.
      if (!name.starts_with("xformer::")) CHECK(figures.flops == 0);
      else ours += figures.flops;
    }
    CHECK(ours > 0);
    for (const auto& [product, figures] : profiler.profile().products)
      FAIL_CHECK(product.batch << " x [" << product.rows << ", " << product.inner << "] x [" << product.inner << ", "
                               << product.columns << "], " << figures.calls << " times");
  });
}

TEST_CASE("a training step whose shapes were met makes no code") {
  if (!makes_code()) return;
  for_all([](Trained trained) {
    for (int i = 0; i < 2; ++i) trained.take(kRows, 1);
    const int64_t made = kernels::tile_products_made();
    CHECK(made > 0);
    for (int i = 0; i < 3; ++i) trained.take(kRows, 1);
    CHECK(kernels::tile_products_made() == made);
  });
}

// Shapes are those of an example's own length, and of as many times 64 rows as lie beside each other without padding.
TEST_CASE("after some epochs none makes code, in whatever order its examples come") {
  if (!makes_code()) return;
  for_all([](Trained trained) {
    for (const int64_t stride : {1, 5, 9}) trained.take_epoch(stride);
    const int64_t made = kernels::tile_products_made();
    for (const int64_t stride : {3, 7, 11}) trained.take_epoch(stride);
    CHECK(kernels::tile_products_made() == made);
  });
}

}  // namespace xformer::training::step_products_test
