// Batches on the device; loss and what is right over their valid rows.
#include "tasks/objective.h"

#include <ATen/Functions.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "core/error.h"

namespace xformer::tasks {

namespace {

const data::DataShape kIds{.max_len = 4, .vocabulary = 6, .target = data::class_target(3)};

// Two full rows and one empty row of length 4.
data::HostBatch partial() {
  data::HostBatch batch;
  batch.batch = 3;
  batch.padded_len = 4;
  batch.filled = 2;
  batch.tokens = {1, 2, 3, 0, 4, 5, 0, 0, 0, 0, 0, 0};
  batch.key_valid = {1, 1, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0};
  batch.row_valid = {1, 1, 0};
  batch.labels = {2, 0, 0};
  batch.targets = {0.5f, -1, 0};
  batch.indices = {7, 3, -1};
  return batch;
}

}  // namespace

TEST_CASE("empty rows count in no loss, accuracy or gradient") {
  DeviceBatch batch(at::kCPU, 3, 4, kIds);
  batch.load(partial());
  at::Tensor logits = at::tensor({0.f, 0.f, 1.f, 0.f, 2.f, 0.f, 9.f, 9.f, 9.f}).view({3, 3}).requires_grad_();
  const Sums sums = judge(logits, batch.all(), kIds);
  const double first = -1 + std::log(2 + std::exp(1.0)), second = std::log(2 + std::exp(2.0));
  CHECK(sums.loss.item<float>() == Approx(first + second));
  CHECK(sums.correct.item<int64_t>() == 1);
  sums.loss.backward();
  CHECK(logits.grad()[2].abs().sum().item<float>() == 0);
  CHECK(logits.grad()[0].abs().sum().item<float>() > 0);
}

TEST_CASE("an empty row with scores that are not numbers still counts in nothing") {
  DeviceBatch batch(at::kCPU, 3, 4, kIds);
  batch.load(partial());
  at::Tensor logits = at::zeros({3, 3});
  logits[2].fill_(std::numeric_limits<float>::quiet_NaN());
  CHECK(judge(logits, batch.all(), kIds).loss.item<float>() == Approx(2 * std::log(3.0)));
}

TEST_CASE("one logit, and a number, are judged by their own loss, over valid rows only") {
  data::DataShape shape = kIds;
  shape.target = data::binary_target();
  DeviceBatch batch(at::kCPU, 3, 4, shape);
  data::HostBatch host = partial();
  host.labels = {1, 0, 0};
  batch.load(host);
  const at::Tensor logits = at::tensor({2.f, 0.5f, NAN}).view({3, 1});
  const Sums binary = judge(logits, batch.all(), shape);
  CHECK(binary.loss.item<float>() == Approx(std::log1p(std::exp(-2.0)) + std::log1p(std::exp(0.5))));
  CHECK(binary.correct.item<int64_t>() == 1);
  shape.target = data::number_target(1, 1.6);
  const Sums number = judge(logits, batch.all(), shape);
  CHECK(number.loss.item<float>() == Approx(1.5 * 1.5 + 1.5 * 1.5));
  CHECK(number.correct.item<int64_t>() == 2);
  shape.target = data::number_target(1, 1.4);
  CHECK(judge(logits, batch.all(), shape).correct.item<int64_t>() == 0);
  CHECK_THROWS_AS(judge(logits.expand({3, 2}), batch.all(), shape), InternalError);
}

TEST_CASE("smoothed and mixed labels are one soft target, and the five highest scores are counted") {
  data::DataShape shape{.max_len = 4, .vocabulary = 6, .target = data::class_target(7, {.top5 = true, .mixed = true})};
  DeviceBatch batch(at::kCPU, 3, 4, shape);
  data::HostBatch host = partial();
  host.second_labels = {5, 0, 0};
  host.shares = {0.7f, 1, 1};
  batch.load(host);
  const at::Tensor logits = at::arange(21, at::kFloat).view({3, 7}).sin();
  const Sums sums = judge(logits, batch.all(), shape, 0.1);
  at::Tensor target = at::full({3, 7}, 0.1 / 7);
  target[0][2] += 0.9 * 0.7;
  target[0][5] += 0.9 * 0.3;
  target[1][0] += 0.9;
  CHECK(target[0].sum().item<double>() == Approx(1));
  const double expected = -(target * logits.log_softmax(-1)).slice(0, 0, 2).sum().item<double>();
  CHECK(sums.loss.item<double>() == Approx(expected).epsilon(1e-6));
  CHECK(judge(logits, batch.all(), shape).loss.item<double>() != Approx(expected).epsilon(1e-3));
  int64_t within = 0;
  for (const int64_t row : {0, 1}) {
    const auto own = logits[row][host.labels[static_cast<size_t>(row)]].item<float>();
    within += (logits[row] > own).sum().item<int64_t>() < 5 ? 1 : 0;
  }
  CHECK(sums.top5.item<int64_t>() == within);
  CHECK_FALSE(judge(at::zeros({3, 3}), DeviceBatch(at::kCPU, 3, 4, kIds).all(), kIds).top5.defined());
}

TEST_CASE("numbers without a tolerance are measured by RMSE in their own unit, everything else by accuracy") {
  data::DataShape shape = kIds;
  CHECK(metric_of(shape, 4, 0.25).value == 0.25);
  CHECK(metric_of(shape, 4, 0.25).better_than(0.2));
  shape.target = data::number_target(3);
  const Metric rmse = metric_of(shape, 4, 0);
  CHECK((rmse.spec.name == "rmse" && rmse.value == 6 && rmse.better_than(7) && !rmse.better_than(5)));
  shape.target = data::number_target(3, 0.1);
  CHECK(metric_of(shape, 4, 0.25).spec.name == "accuracy");
}

TEST_CASE("pairs and numbers have buffers of their own shape") {
  data::DataShape pairs = kIds;
  pairs.sequences = 2;
  const DeviceBatch two(at::kCPU, 3, 4, pairs);
  CHECK(two.all().inputs.tokens.sizes() == at::IntArrayRef({3, 2, 4}));
  CHECK(two.all().inputs.key_valid.sizes() == at::IntArrayRef({3, 2, 4}));
  DeviceBatch series(at::kCPU, 3, 2, {.max_len = 2, .width = 3, .target = data::class_target(3)});
  data::HostBatch host = partial();
  host.padded_len = 2;
  host.tokens.clear();
  host.key_valid = {1, 1, 1, 0, 0, 0};
  for (int i = 0; i < 18; ++i) host.values.push_back(static_cast<float>(i));
  series.load(host);
  CHECK(series.rows(1, 1).inputs.values[0][1][2].item<float>() == 11);
  CHECK_FALSE(series.all().inputs.tokens.defined());
}

TEST_CASE("a batch keeps its buffers, and micro-batches are views of them") {
  DeviceBatch batch(at::kCPU, 3, 4, kIds);
  const BatchView all = batch.all(), part = batch.rows(1, 2);
  const void* before = all.inputs.tokens.const_data_ptr();
  batch.load(partial());
  CHECK(batch.all().inputs.tokens.const_data_ptr() == before);
  CHECK(all.field("label")[0].item<int64_t>() == 2);
  CHECK(batch.filled().item<double>() == 2);
  CHECK(part.inputs.tokens.sizes() == at::IntArrayRef({2, 4}));
  CHECK(part.inputs.tokens[0][1].item<int64_t>() == 5);  // what was loaded after the view was made
  CHECK(part.inputs.key_valid[0][1].item<bool>());
  CHECK_FALSE(part.inputs.key_valid[0][2].item<bool>());
  CHECK(part.row_valid[1].item<float>() == 0);
  data::HostBatch other = partial();
  other.padded_len = 2;
  CHECK_THROWS_AS(batch.load(other), InternalError);
}

}  // namespace xformer::tasks
