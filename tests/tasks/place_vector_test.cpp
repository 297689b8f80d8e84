// Vectors at every place: loss and shares against sums in double, place by place; what is left out; what is written.
#include <ATen/Functions.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numbers>

#include "scratch.h"
#include "tasks/task.h"

namespace xformer::tasks::place_vector_test {

namespace {

constexpr int64_t kRows = 3, kPlaces = 5, kWidth = 2;
// The first row is full, the second has three places, the last is empty.
const std::vector<uint8_t> kValid{1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0};

data::DataShape shape_of_vectors() {
  const data::Field answer{
      .name = "answer", .element = data::Element::kF32, .axes = data::Axes::kTokenByK, .k = kWidth};
  return {.max_len = kPlaces, .width = kWidth, .target = {"place-vector", "vectors", {answer}}};
}

at::Tensor all_values() {
  return (at::arange(kRows * kPlaces * kWidth, at::kFloat) * 1.7).sin().view({kRows, kPlaces, kWidth});
}
// At place i the vector of place (i + 2) mod 3, which both rows have.
at::Tensor all_answers() { return at::index_select(all_values(), 1, at::tensor({2, 0, 1, 2, 0}, at::kLong)); }
at::Tensor all_outputs() {
  return all_answers() + (at::arange(kRows * kPlaces * kWidth, at::kFloat) * 2.3).cos().view({kRows, kPlaces, kWidth});
}

data::HostBatch vectors_batch() {
  data::HostBatch batch;
  batch.reset(shape_of_vectors(), kRows, kPlaces);
  batch.filled = 2;
  const auto put = [&](const char* name, const at::Tensor& numbers) {
    batch.numbers(name).assign(numbers.const_data_ptr<float>(), numbers.const_data_ptr<float>() + numbers.numel());
  };
  put("values", all_values()), put("answer", all_answers());
  batch.key_valid = kValid;
  batch.row_valid = {1, 1, 0};
  batch.indices = {7, 3, -1};
  return batch;
}

// The definition, place by place.
struct PlainVectors {
  double squared = 0, places = 0, right = 0;
};
PlainVectors plain_vectors(const at::Tensor& outputs) {
  PlainVectors result;
  const at::Tensor values = all_values(), answers = all_answers();
  const auto distance = [&](const at::Tensor& a, int64_t i, const at::Tensor& b, int64_t j, double sign = 1) {
    double sum = 0;
    for (int64_t c = 0; c < kWidth; ++c) {
      const double one = a.const_data_ptr<float>()[i * kWidth + c], other = b.const_data_ptr<float>()[j * kWidth + c];
      sum += (one - sign * other) * (one - sign * other);
    }
    return sum;
  };
  for (int64_t i = 0; i < kRows * kPlaces; ++i) {
    if (kValid[static_cast<size_t>(i)] == 0) continue;
    const int64_t first = i / kPlaces * kPlaces;
    int64_t nearest = first;
    for (int64_t j = first; j < first + kPlaces; ++j)
      if (kValid[static_cast<size_t>(j)] != 0 &&
          distance(outputs, i, values, j) < distance(outputs, i, values, nearest))
        nearest = j;
    result.squared += distance(outputs, i, answers, i);
    result.places += 1;
    const bool mirrored = distance(outputs, i, values, i, -1) < distance(outputs, i, answers, i);
    result.right += distance(answers, i, values, nearest) == 0 && !mirrored ? 1 : 0;
  }
  return result;
}

struct VectorScore {
  double loss, weight;
  std::vector<Metric> metrics;
};
VectorScore judge_vectors(const at::Tensor& outputs) {
  DeviceBatch batch(at::kCPU, kRows, kPlaces, shape_of_vectors());
  batch.load(vectors_batch());
  const BatchView& view = batch.widened();
  const auto task = make_task(shape_of_vectors());
  const Meters meters(task->meters());
  const at::Tensor loss = task->loss(outputs, view), weight = task->weight(view);
  const at::Tensor sums = meters.count(loss, weight, outputs, view);
  return {loss.item<double>(), weight.item<double>(),
          meters.read({sums.const_data_ptr<double>(), static_cast<size_t>(sums.numel())}).metrics};
}

}  // namespace

TEST_CASE("the loss of vectors is the sum of squared distances, and right is whose nearest is the answer",
          "[place-vector]") {
  const PlainVectors meant = plain_vectors(all_outputs());
  REQUIRE((meant.places == 8 && meant.right > 0 && meant.right < 8));
  const VectorScore found = judge_vectors(all_outputs());
  CHECK(found.loss == Approx(meant.squared).epsilon(1e-6));
  CHECK(found.weight == 8);
  REQUIRE(found.metrics.size() == 2);
  CHECK(found.metrics[0].spec == accuracy_metric());
  CHECK(found.metrics[0].value == Approx(meant.right / 8));
  CHECK(found.metrics[1].spec == rmse_metric());
  CHECK(found.metrics[1].value == Approx(std::sqrt(meant.squared / 8)).epsilon(1e-6));
  const VectorScore perfect = judge_vectors(all_answers());
  CHECK((perfect.loss == 0 && perfect.metrics[0].value == 1));
  const OutputSpec output = make_task(shape_of_vectors())->output();
  CHECK((output.columns == kWidth && output.per_position && !output.causal));
}

TEST_CASE("the mirror image of a place's own vector is no answer, though its nearest is the one asked for",
          "[place-vector]") {
  // Of the unit vectors of a plane at 0, 100, 170 and 230 degrees the furthest from the first is the third.
  data::HostBatch host = vectors_batch();
  std::vector<float>&values = host.numbers("values"), &answers = host.numbers("answer");
  const std::array<double, 4> degrees{0, 100, 170, 230};
  for (size_t place = 0; place < 4; ++place) {
    values[2 * place] = static_cast<float>(std::cos(degrees.at(place) * std::numbers::pi / 180));
    values[2 * place + 1] = static_cast<float>(std::sin(degrees.at(place) * std::numbers::pi / 180));
  }
  host.key_valid = {1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  answers[0] = values[4], answers[1] = values[5];
  DeviceBatch batch(at::kCPU, kRows, kPlaces, shape_of_vectors());
  batch.load(host);
  const BatchView& view = batch.widened();
  const auto right = [&](double x, double y) {
    at::Tensor outputs = at::zeros({kRows, kPlaces, kWidth});  // of which no other place makes an answer
    for (int64_t place = 1; place < 4; ++place) outputs[0][place] = -view.field("values")[0][place];
    outputs[0][0][0] = x, outputs[0][0][1] = y;
    return make_task(shape_of_vectors())->meters().front()->count(outputs, view).front().item<int64_t>();
  };
  const int64_t others = right(1, 0);  // places but the first
  CHECK(right(-1, 0) == others);       // -u
  CHECK(right(-1, 0.05) == others);    // nearer to -u than to the answer
  CHECK(right(values[4], values[5]) == others + 1);
  CHECK(right(-1, 0.14) == others + 1);
}

TEST_CASE("two vectors that differ in the last bit are told apart", "[place-vector]") {
  data::HostBatch host = vectors_batch();
  std::vector<float>&values = host.numbers("values"), &answers = host.numbers("answer");
  values[0] = 1, values[1] = 0;
  values[2] = std::nextafter(1.0F, 2.0F), values[3] = 0;
  for (size_t place = 0; place < kPlaces; ++place) answers[place * kWidth] = values[2], answers[place * kWidth + 1] = 0;
  DeviceBatch batch(at::kCPU, kRows, kPlaces, shape_of_vectors());
  batch.load(host);
  const BatchView& view = batch.widened();
  at::Tensor outputs = all_answers();
  outputs[0].copy_(view.field("answer")[0]);
  const auto found = [&] {
    const auto meter = std::move(make_task(shape_of_vectors())->meters().front());
    return meter->count(outputs, view).front().item<int64_t>();
  };
  CHECK(found() == 8);
  outputs[0][0][0] = 1;  // the other one
  CHECK(found() == 7);
}

TEST_CASE("places and rows that are not there have no gradient and count in nothing", "[place-vector]") {
  DeviceBatch batch(at::kCPU, kRows, kPlaces, shape_of_vectors());
  batch.load(vectors_batch());
  at::Tensor outputs = all_outputs();
  for (int64_t i = 0; i < kRows * kPlaces; ++i)
    if (kValid[static_cast<size_t>(i)] == 0)
      outputs.view({-1, kWidth})[i].fill_(std::numeric_limits<float>::quiet_NaN());
  outputs.requires_grad_();
  make_task(shape_of_vectors())->loss(outputs, batch.widened()).backward();
  const at::Tensor moved = outputs.grad().abs().sum(-1).flatten();
  for (size_t i = 0; i < kValid.size(); ++i)
    CHECK((moved[static_cast<int64_t>(i)].item<float>() > 0) == (kValid[i] != 0));
  CHECK(moved.isfinite().all().item<bool>());
  const VectorScore odd = judge_vectors(outputs.detach()), plain = judge_vectors(all_outputs());
  CHECK(odd.loss == plain.loss);
  CHECK(odd.metrics[0].value == plain.metrics[0].value);
}

TEST_CASE("what is written of vectors is by sequence, and the best constant answer is their mean", "[place-vector]") {
  const scratch::Folder folder;
  const auto answers = make_task(shape_of_vectors())->answers();
  answers->add(all_outputs().narrow(0, 0, 2).contiguous(), vectors_batch());
  answers->write(folder / "predictions.csv", {});
  const std::string written = scratch::get(folder / "predictions.csv");
  CHECK(written.starts_with("index,places,right,squared_distance\n7,5,"));
  CHECK(written.find("\n3,3,") != std::string::npos);
  const at::Tensor valid = at::tensor(std::vector<int64_t>(kValid.begin(), kValid.end())).to(at::kBool);
  const at::Tensor asked = all_answers().view({-1, kWidth}).index({valid});
  const at::Tensor mean = asked.to(at::kDouble).mean(0).to(at::kFloat);
  const PlainVectors meant = plain_vectors(mean.expand({kRows, kPlaces, kWidth}).contiguous());
  const std::vector<Metric> constant = answers->constant_answer();
  REQUIRE(constant.size() == 2);
  CHECK(constant[0].value == Approx(meant.right / 8));
  CHECK(constant[1].value == Approx(std::sqrt(meant.squared / 8)).epsilon(1e-5));
}

}  // namespace xformer::tasks::place_vector_test
