// Batch norm of ragged sequences: what counts, what is remembered, what evaluation uses. Layer norm of needed places.
#include <ATen/Functions.h>

#include <catch2/catch.hpp>

#include "models/norm.h"

namespace xformer::models {

namespace {

constexpr double kEpsilon = 1e-5;

// Rows of 4, 2 and 0 valid places of 5; what stands in padded places is far from the rest.
struct Batch {
  at::Tensor x = at::randn({3, 5, 2}, at::kDouble), valid = at::zeros({3, 5}, at::kBool);
  Batch() {
    valid[0].narrow(0, 0, 4).fill_(true);
    valid[1].narrow(0, 0, 2).fill_(true);
    x.add_((~valid).unsqueeze(-1) * 7.0);
  }
};

struct Moments {
  double mean = 0, variance = 0;
  int64_t count = 0;
};

Moments moments(const Batch& batch, int64_t channel, bool all_places) {
  std::vector<double> values;
  for (int64_t b = 0; b < 3; ++b)
    for (int64_t i = 0; i < 5; ++i)
      if (batch.valid[b][i].item<bool>() || (all_places && b < 2))
        values.push_back(batch.x[b][i][channel].item<double>());
  Moments result;
  result.count = static_cast<int64_t>(values.size());
  for (const double value : values) result.mean += value / static_cast<double>(values.size());
  for (const double value : values)
    result.variance += (value - result.mean) * (value - result.mean) / static_cast<double>(values.size());
  return result;
}

at::Tensor buffer(const BatchNorm& norm, const std::string& name) { return norm.named_buffers()[name]; }

}  // namespace

TEST_CASE("batch norm takes mean and variance over valid places, or over all of examples that hold any",
          "[models][norm]") {
  const bool all_places = GENERATE(false, true);
  const Batch batch;
  BatchNorm norm(2, kEpsilon, all_places);
  norm.to(at::kDouble);
  norm.named_parameters()["weight"].data().fill_(3);
  norm.named_parameters()["bias"].data().fill_(0.5);
  const at::Tensor got = norm.behind(batch.x, {}, {}, batch.valid).normed;
  for (int64_t channel = 0; channel < 2; ++channel) {
    const Moments own = moments(batch, channel, all_places);
    CHECK(own.count == (all_places ? 10 : 6));
    const at::Tensor meant = (batch.x.select(2, channel) - own.mean) / std::sqrt(own.variance + kEpsilon) * 3 + 0.5;
    CHECK((got.select(2, channel) - meant).abs().max().item<double>() < 1e-12);
    const double unbiased = own.variance * static_cast<double>(own.count) / static_cast<double>(own.count - 1);
    CHECK(buffer(norm, "running_mean")[channel].item<double>() == Approx(0.1 * own.mean));
    CHECK(buffer(norm, "running_variance")[channel].item<double>() == Approx(0.9 + 0.1 * unbiased));
  }
  // Without a mask all places count: torch's own.
  const at::Tensor one = at::ones({2}, at::kDouble), zero = at::zeros({2}, at::kDouble);
  const at::Tensor torchs = at::batch_norm(batch.x.transpose(1, 2), one * 3, one * 0.5, zero.clone(), one.clone(),
                                           /*training=*/true, 0.1, kEpsilon, /*cudnn_enabled=*/false);
  CHECK((norm.behind(batch.x, {}, {}, {}).normed - torchs.transpose(1, 2)).abs().max().item<double>() < 1e-12);
}

TEST_CASE("evaluation uses the running statistics and leaves them", "[models][norm]") {
  const Batch first, second;
  BatchNorm norm(2, kEpsilon, false);
  norm.to(at::kDouble);
  (void)norm.behind(first.x, {}, {}, first.valid);
  (void)norm.behind(second.x, {}, {}, second.valid);
  const at::Tensor mean = buffer(norm, "running_mean").clone(), variance = buffer(norm, "running_variance").clone();
  CHECK(mean[0].item<double>() ==
        Approx(0.9 * 0.1 * moments(first, 0, false).mean + 0.1 * moments(second, 0, false).mean));
  norm.eval();
  const at::Tensor meant = (first.x - mean) / (variance + kEpsilon).sqrt();
  CHECK((norm.behind(first.x, {}, {}, first.valid).normed - meant).abs().max().item<double>() < 1e-12);
  CHECK(buffer(norm, "running_mean").equal(mean));
  CHECK(buffer(norm, "running_variance").equal(variance));
}

TEST_CASE("a batch of numbers that are none leaves the running statistics as they were", "[models][norm]") {
  const Batch batch;
  BatchNorm norm(2, kEpsilon, false);
  norm.to(at::kDouble);
  batch.x[0][0][0] = std::numeric_limits<double>::infinity();
  (void)norm.behind(batch.x, {}, {}, batch.valid);
  CHECK(buffer(norm, "running_mean")[0].item<double>() == 0);
  CHECK(buffer(norm, "running_variance")[0].item<double>() == 1);
  CHECK(buffer(norm, "running_mean")[1].item<double>() != 0);
}

TEST_CASE("layer norm of needed places makes these alone, whatever stands in others and comes back for them",
          "[models][norm]") {
  const Batch batch;
  LayerNorm norm(2, kEpsilon), all(2, kEpsilon);
  norm.to(at::kDouble), all.to(at::kDouble);
  const at::Tensor other = (~batch.valid).unsqueeze(-1);
  const at::Tensor x = batch.x.masked_fill(other, NAN).requires_grad_();
  const at::Tensor plain = batch.x.detach().clone().requires_grad_();
  const at::Tensor got = norm.forward(x, batch.valid), meant = all.forward(plain);
  CHECK(got.equal(meant.masked_fill(other, 0)));
  const at::Tensor slopes = at::randn_like(plain);
  got.backward(slopes.masked_fill(other, NAN));
  meant.backward(slopes.masked_fill(other, 0));
  CHECK(x.grad().equal(plain.grad()));
  for (const auto& one : norm.named_parameters())
    CHECK(at::allclose(one.value().grad(), all.named_parameters()[one.key()].grad(), 0, 1e-12));
}

}  // namespace xformer::models
