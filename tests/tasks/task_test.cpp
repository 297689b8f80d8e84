// Batches on the device; every kind's loss, metrics and answers over their valid rows.
#include "tasks/task.h"

#include <ATen/Functions.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "scratch.h"

namespace xformer::tasks {

namespace {

const data::DataShape kIds{.max_len = 4, .vocabulary = 6, .target = data::class_target(3)};

// Two full rows and one empty row of length 4.
data::HostBatch partial(const data::DataShape& shape = kIds) {
  data::HostBatch batch;
  batch.reset(shape, 3, 4);
  batch.filled = 2;
  batch.whole("tokens") = {1, 2, 3, 0, 4, 5, 0, 0, 0, 0, 0, 0};
  batch.key_valid = {1, 1, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0};
  batch.row_valid = {1, 1, 0};
  if (shape.target.has("target")) batch.numbers("target") = {0.5f, -1, 0};
  else batch.whole("label") = {shape.target.classes() == 2 ? 1 : 2, 0, 0};
  batch.indices = {7, 3, -1};
  return batch;
}

struct Judged {
  at::Tensor loss;
  std::vector<Metric> metrics;
};

Judged judge(const at::Tensor& outputs, const BatchView& batch, const data::DataShape& shape, double smoothing = 0) {
  const auto task = make_task(shape, {smoothing});
  const Meters meters(task->meters());
  const at::Tensor loss = task->loss(outputs, batch), sums = meters.count(loss, task->weight(batch), outputs, batch);
  return {loss, meters.read({sums.const_data_ptr<double>(), static_cast<size_t>(sums.numel())}).metrics};
}

}  // namespace

TEST_CASE("empty rows count in no loss, accuracy or gradient") {
  DeviceBatch batch(at::kCPU, 3, 4, kIds);
  batch.load(partial());
  at::Tensor logits = at::tensor({0.f, 0.f, 1.f, 0.f, 2.f, 0.f, 9.f, 9.f, 9.f}).view({3, 3}).requires_grad_();
  const Judged sums = judge(logits, batch.widened(), kIds);
  const double first = -1 + std::log(2 + std::exp(1.0)), second = std::log(2 + std::exp(2.0));
  CHECK(sums.loss.item<float>() == Approx(first + second));
  CHECK(sums.metrics.front().value == 0.5);
  sums.loss.backward();
  CHECK(logits.grad()[2].abs().sum().item<float>() == 0);
  CHECK(logits.grad()[0].abs().sum().item<float>() > 0);
}

TEST_CASE("an empty row with scores that are not numbers still counts in nothing") {
  DeviceBatch batch(at::kCPU, 3, 4, kIds);
  batch.load(partial());
  at::Tensor logits = at::zeros({3, 3});
  logits[2].fill_(std::numeric_limits<float>::quiet_NaN());
  CHECK(judge(logits, batch.widened(), kIds).loss.item<float>() == Approx(2 * std::log(3.0)));
}

TEST_CASE("one logit, and a number, are judged by their own loss, over valid rows only") {
  data::DataShape shape = kIds;
  shape.target = data::binary_target();
  DeviceBatch batch(at::kCPU, 3, 4, shape);
  batch.load(partial(shape));
  const at::Tensor logits = at::tensor({2.f, 0.5f, NAN}).view({3, 1});
  const Judged binary = judge(logits, batch.widened(), shape);
  CHECK(binary.loss.item<float>() == Approx(std::log1p(std::exp(-2.0)) + std::log1p(std::exp(0.5))));
  CHECK(binary.metrics.front().value == 0.5);
  shape.target = data::number_target(1, 1.6);
  DeviceBatch numbers(at::kCPU, 3, 4, shape);
  numbers.load(partial(shape));
  const BatchView& view_of_numbers = numbers.widened();
  const Judged number = judge(logits, view_of_numbers, shape);
  CHECK(number.loss.item<float>() == Approx(1.5 * 1.5 + 1.5 * 1.5));
  CHECK((number.metrics.front().spec == accuracy_metric() && number.metrics.front().value == 1));
  shape.target = data::number_target(1, 1.4);
  CHECK(judge(logits, view_of_numbers, shape).metrics.front().value == 0);
  CHECK_THROWS_AS(judge(logits.expand({3, 2}), view_of_numbers, shape), InternalError);
}

TEST_CASE("smoothed and mixed labels are one soft target, and the five highest scores are counted") {
  data::DataShape shape{.max_len = 4, .vocabulary = 6, .target = data::class_target(7, {.top5 = true, .mixed = true})};
  DeviceBatch batch(at::kCPU, 3, 4, shape);
  data::HostBatch host = partial(shape);
  host.whole("second_label") = {5, 0, 0};
  host.numbers("share") = {0.7f, 1, 1};
  batch.load(host);
  const BatchView& view = batch.widened();
  const at::Tensor logits = at::arange(21, at::kFloat).view({3, 7}).sin();
  const Judged sums = judge(logits, view, shape, 0.1);
  at::Tensor target = at::full({3, 7}, 0.1 / 7);
  target[0][2] += 0.9 * 0.7;
  target[0][5] += 0.9 * 0.3;
  target[1][0] += 0.9;
  CHECK(target[0].sum().item<double>() == Approx(1));
  const double expected = -(target * logits.log_softmax(-1)).slice(0, 0, 2).sum().item<double>();
  CHECK(sums.loss.item<double>() == Approx(expected).epsilon(1e-6));
  CHECK(judge(logits, view, shape).loss.item<double>() != Approx(expected).epsilon(1e-3));
  int64_t within = 0;
  for (const int64_t row : {0, 1}) {
    const auto own = logits[row][host.whole("label")[static_cast<size_t>(row)]].item<float>();
    within += (logits[row] > own).sum().item<int64_t>() < 5 ? 1 : 0;
  }
  REQUIRE(sums.metrics.size() == 2);
  CHECK((sums.metrics[1].spec == top5_metric() && sums.metrics[1].value == static_cast<double>(within) / 2));
  CHECK(make_task(kIds)->meters().size() == 1);
}

TEST_CASE("numbers without a tolerance are measured by RMSE in their own unit") {
  data::DataShape shape = kIds;
  shape.target = data::number_target(3);
  DeviceBatch batch(at::kCPU, 3, 4, shape);
  batch.load(partial(shape));
  const Judged numbers = judge(at::tensor({2.5f, 1.f, NAN}).view({3, 1}), batch.widened(), shape);
  REQUIRE(numbers.metrics.size() == 1);
  CHECK((numbers.metrics[0].spec == rmse_metric() && numbers.metrics[0].value == Approx(3 * 2)));
}

TEST_CASE("answers are written by kind, and the best constant answer is known for every metric") {
  const scratch::Folder folder;
  AnswerNames names;
  const auto written = [&](const data::DataShape& shape, const at::Tensor& outputs, double constant) {
    const data::HostBatch host = partial(shape);
    const auto answers = make_task(shape)->answers();
    answers->add(outputs, host);
    answers->write(folder / "predictions.csv", names);
    CHECK(answers->constant_answer().front().value == Approx(constant));
    CHECK(answers->constant_answer().size() == make_task(shape)->meters().size());
    return scratch::get(folder / "predictions.csv");
  };
  data::DataShape shape = kIds;
  CHECK(written(shape, at::tensor({0.f, 0.5f, 0.25f, 1.f, 0.f, 1.f}).view({2, 3}), 0.5) ==
        "index,label,prediction,score_0,score_1,score_2\n7,2,1,0,0.5,0.25\n3,0,0,1,0,1\n");
  shape.target = data::class_target(7, {.top5 = true});
  const auto two = make_task(shape)->answers();
  two->add(at::zeros({2, 7}), partial());
  CHECK((two->constant_answer()[1].spec == top5_metric() && two->constant_answer()[1].value == 1));
  shape.target = data::number_target(2);
  CHECK(written(shape, at::tensor({0.125f, 3.f}).view({2, 1}), 2 * 0.75) ==
        "index,target,prediction\n7,0.5,0.125\n3,-1,3\n");
  shape.target = data::number_target(2, 0.8);
  CHECK(written(shape, at::tensor({0.125f, 3.f}).view({2, 1}), 1).size() > 0);
  shape.target = data::binary_target();
  CHECK(written(shape, at::tensor({0.125f, -3.f}).view({2, 1}), 0.5) ==
        "index,label,prediction,score_0\n7,1,1,0.125\n3,0,0,-3\n");
  names = {{"no", "a, \"b\""}, [](int64_t index) { return fmt::format("val/{}.png", index); }};
  CHECK(written(shape, at::tensor({0.125f, -3.f}).view({2, 1}), 0.5) ==
        "index,label,prediction,score_0,label_name,prediction_name,file\n"
        "7,1,1,0.125,\"a, \"\"b\"\"\",\"a, \"\"b\"\"\",val/7.png\n3,0,0,-3,no,no,val/3.png\n");
  shape.target = data::number_target(2);
  CHECK(written(shape, at::tensor({0.125f, 3.f}).view({2, 1}), 2 * 0.75) ==
        "index,target,prediction,file\n7,0.5,0.125,val/7.png\n3,-1,3,val/3.png\n");
}

TEST_CASE("every kind says what it is, and a kind that nobody wrote is refused by name") {
  for (const TaskKind& kind : all_kinds().all()) CHECK_FALSE(kind.summary.empty());
  data::DataShape shape = kIds;
  shape.target.kind = "regresion";
  CHECK_THROWS_WITH(make_task(shape), Catch::Matchers::Contains("regression"));
  shape.target.kind = "regression";  // whose field the data does not have
  CHECK_THROWS_AS(make_task(shape), InternalError);
}

TEST_CASE("pairs and numbers have buffers of their own shape") {
  data::DataShape pairs = kIds;
  pairs.sequences = 2;
  const DeviceBatch two(at::kCPU, 3, 4, pairs);
  CHECK(two.widened().inputs.tokens.sizes() == at::IntArrayRef({3, 2, 4}));
  CHECK(two.widened().inputs.key_valid.sizes() == at::IntArrayRef({3, 2, 4}));
  const data::DataShape numbers{.max_len = 2, .width = 3, .target = data::class_target(3)};
  DeviceBatch series(at::kCPU, 3, 2, numbers);
  data::HostBatch host;
  host.reset(numbers, 3, 2);
  for (size_t i = 0; i < 18; ++i) host.numbers("values")[i] = static_cast<float>(i);
  series.load(host);
  CHECK(series.widened().rows(1, 1).inputs.values[0][1][2].item<float>() == 11);
  CHECK_FALSE(series.widened().inputs.tokens.defined());
}

TEST_CASE("ids, labels of places and missing ones arrive whole, in whatever type their range lets them travel") {
  for (const int64_t range : {2, 128, 129, 256, 257, 32'768, 32'769, 65'536, 65'537, 1'000'000}) {
    CAPTURE(range);
    data::DataShape shape = kIds;
    shape.vocabulary = range;
    shape.target = data::place_target(range);
    DeviceBatch batch(at::kCPU, 3, 4, shape);
    data::HostBatch host;
    host.reset(shape, 3, 4);
    for (const char* field : {"tokens", "label"})
      for (size_t i = 0; i < 12; ++i) host.whole(field)[i] = i % 2 == 0 ? range - 1 : static_cast<int64_t>(i) % range;
    host.whole("label")[3] = -1;
    batch.load(host);
    const BatchView& view = batch.widened();
    for (const char* field : {"tokens", "label"}) {
      REQUIRE(view.field(field).scalar_type() == at::kLong);
      CHECK(at::equal(view.field(field).flatten(), at::tensor(host.whole(field))));
    }
    CHECK(view.inputs.tokens.const_data_ptr() == view.field("tokens").const_data_ptr());
  }
}

TEST_CASE("a batch keeps its buffers, and micro-batches are views of them") {
  DeviceBatch batch(at::kCPU, 3, 4, kIds);
  const BatchView all = batch.widened(), part = all.rows(1, 2);
  const void* before = all.inputs.tokens.const_data_ptr();
  batch.load(partial());
  CHECK(batch.widened().inputs.tokens.const_data_ptr() == before);
  CHECK(all.field("label")[0].item<int64_t>() == 2);
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
