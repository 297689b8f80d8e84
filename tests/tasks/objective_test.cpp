// Loss and accuracy over the valid rows of a batch.
#include "tasks/classification.h"

#include <ATen/Functions.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "core/error.h"

namespace xformer::tasks {

namespace {

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
  batch.indices = {7, 3, -1};
  return batch;
}

}  // namespace

TEST_CASE("empty rows count in no loss, accuracy or gradient") {
  DeviceBatch batch(at::kCPU, 3, 4);
  batch.load(partial());
  at::Tensor logits = at::tensor({0.f, 0.f, 1.f, 0.f, 2.f, 0.f, 9.f, 9.f, 9.f}).view({3, 3}).requires_grad_();
  const Sums sums = classify(logits, batch.all());
  const double first = -1 + std::log(2 + std::exp(1.0)), second = std::log(2 + std::exp(2.0));
  CHECK(sums.loss.item<float>() == Approx(first + second));
  CHECK(sums.correct.item<int64_t>() == 1);
  sums.loss.backward();
  CHECK(logits.grad()[2].abs().sum().item<float>() == 0);
  CHECK(logits.grad()[0].abs().sum().item<float>() > 0);
}

TEST_CASE("an empty row with scores that are not numbers still counts in nothing") {
  DeviceBatch batch(at::kCPU, 3, 4);
  batch.load(partial());
  at::Tensor logits = at::zeros({3, 3});
  logits[2].fill_(std::numeric_limits<float>::quiet_NaN());
  CHECK(classify(logits, batch.all()).loss.item<float>() == Approx(2 * std::log(3.0)));
}

TEST_CASE("a batch keeps its buffers, and micro-batches are views of them") {
  DeviceBatch batch(at::kCPU, 3, 4);
  const BatchView all = batch.all(), part = batch.rows(1, 2);
  const void* before = all.tokens.const_data_ptr();
  batch.load(partial());
  CHECK(batch.all().tokens.const_data_ptr() == before);
  CHECK(all.labels[0].item<int64_t>() == 2);
  CHECK(batch.filled().item<double>() == 2);
  CHECK(part.tokens.sizes() == at::IntArrayRef({2, 4}));
  CHECK(part.tokens[0][1].item<int64_t>() == 5);  // what was loaded after the view was made
  CHECK(part.key_valid[0][1].item<bool>());
  CHECK_FALSE(part.key_valid[0][2].item<bool>());
  CHECK(part.row_valid[1].item<float>() == 0);
  data::HostBatch other = partial();
  other.padded_len = 2;
  CHECK_THROWS_AS(batch.load(other), InternalError);
}

}  // namespace xformer::tasks
