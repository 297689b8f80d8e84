// Dropout: the operator against its meaning, the numbering of elements, the share it keeps, its gradients.
#include "kernels/dropout/dropout.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/random.h"
#include "kernels/dropout/cpu.h"
#include "kernels/dropout/numbers.h"
#include "kernels/dropout/place.h"
#include "kernels/policy_scope.h"
#include "tensor/init.h"

namespace xformer::kernels::dropout_test {

at::Tensor numbers(at::IntArrayRef shape, at::ScalarType type = at::kFloat) {
  return InitStream(5).normal("x", shape, 1).to(type);
}

// Which of n elements survive.
at::Tensor kept(int64_t n, double p, const DropoutStream& stream, int64_t site) {
  return dropout(at::ones({n}), p, stream.state, site) != 0;
}

// Two masks of n elements with share 1 - p kept are unrelated: they agree in p^2 + (1 - p)^2 of n, within 5 sigma.
void check_unrelated(const at::Tensor& left, const at::Tensor& right, double p) {
  const auto n = static_cast<double>(left.numel());
  const double agreement = p * p + (1 - p) * (1 - p);
  const auto agreed = static_cast<double>((left == right).sum().item<int64_t>());
  CHECK(std::abs(agreed - n * agreement) < 5 * std::sqrt(n * agreement * (1 - agreement)));
}

TEST_CASE("draws are the halves of Philox blocks") {
  const uint64_t key = 0x0123456789abcdef, high = 0xfedcba9876543210;
  const DrawLoops by = GENERATE(from_range(ways_to_draw()));
  const auto meant = [&](uint64_t block, uint64_t i) {
    return static_cast<uint16_t>(philox(key, block, high)[i / 2] >> (i % 2 == 0 ? 0 : 16));
  };
  for (const uint64_t first : {uint64_t{0}, uint64_t{0xFFFFFFF8}, uint64_t{1} << 40}) {
    std::vector<uint16_t> draws(8 * 78, 7);
    by.blocks(key, high, first, 77, draws.data());
    CHECK(std::all_of(draws.end() - 8, draws.end(), [](uint16_t after) { return after == 7; }));
    int64_t wrong = 0;
    for (uint64_t block = 0; block < 77; ++block)
      for (uint64_t i = 0; i < 8; ++i) wrong += draws[8 * block + i] != meant(first + block, i);
    CHECK(wrong == 0);
    std::vector<uint64_t> some(kSomeBlocks);
    for (size_t i = 0; i < some.size(); ++i) some[i] = first + (i * 7919) % 13 * 1000003;
    by.some(key, high, some.data(), draws.data());
    for (size_t block = 0; block < some.size(); ++block)
      for (uint64_t i = 0; i < 8; ++i) wrong += draws[8 * block + i] != meant(some[block], i);
    CHECK(wrong == 0);
  }
}

TEST_CASE("draws of some elements are those of all") {
  DropoutStream stream(3);
  stream.set_step(5, 9);
  const ElementDraws draws({0.3, stream.state, 2}, at::empty({4, 1001}));
  std::vector<uint16_t> memory;
  const std::vector<int64_t> chosen{1000, 0, 7, 8, -1, 9, 500, 500, 3, 64, 65, 66, 999, 1, 2, 12, 13, 14, 997};
  std::vector<uint16_t> some(chosen.size());
  for (const int64_t begin : {0, 1001, 3003}) {
    const uint16_t* const all = draws.draw(begin, 1001, memory);
    for (size_t count = 0; count <= chosen.size(); ++count) {
      draws.draw_chosen(begin, chosen.data(), static_cast<int64_t>(count), some.data());
      for (size_t i = 0; i < count; ++i) CHECK((chosen[i] < 0 || some[i] == all[chosen[i]]));
    }
  }
}

TEST_CASE("the kernel equals the reference exactly") {
  Stream random(11);
  const std::vector<at::ScalarType> types = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};
  for (int round = 0; round < 60; ++round) {
    DropoutStream stream(random.next_u64());
    const auto step = static_cast<int64_t>(random.next_below(kMostSteps));
    // Small offsets, and ones whose element numbers need more than 32 bits.
    const auto row = static_cast<int64_t>(random.next_below(round % 3 == 0 ? uint64_t{1} << 36 : 100));
    stream.set_step(step, row);
    std::vector<int64_t> shape = {1 + static_cast<int64_t>(random.next_below(9))};
    for (uint64_t left = random.next_below(4); left > 0; --left) {
      shape.push_back(1 + static_cast<int64_t>(random.next_below(24)));
    }
    const auto site = static_cast<int64_t>(random.next_below(kMostSites));
    const double p = random.next_unit();
    const at::Tensor x = numbers(shape, types[static_cast<size_t>(round) % types.size()]);
    const at::Tensor result = dropout(x, p, stream.state, site);
    INFO("shape " << x.sizes() << ", type " << x.scalar_type() << ", site " << site << ", step " << step << ", row "
                  << row);
    CHECK(result.scalar_type() == x.scalar_type());
    CHECK(at::equal(result, dropout_reference(x, p, stream.state, site)));
  }
}

TEST_CASE("the kernel equals the reference over many chunks and for numbers that are not finite") {
  DropoutStream stream(3);
  stream.set_step(2, 5);
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    at::Tensor x = numbers({13, 41, 67}, type);
    CHECK(at::equal(dropout(x, 0.1, stream.state, 1), dropout_reference(x, 0.1, stream.state, 1)));
    x = x.flatten();
    x.slice(0, 0, 2000, 3).fill_(infinity);
    x.slice(0, 1, 2000, 3).fill_(-infinity);
    x.slice(0, 2, 2000, 3).fill_(nan);
    x.slice(0, 2000, 4000, 1)
        .fill_(type == at::kBFloat16 ? 3.38e38 : 6.5e4);  // the scale carries some past the largest
    const at::Tensor got = dropout(x, 0.3, stream.state, 1), meant = dropout_reference(x, 0.3, stream.state, 1);
    CHECK(at::equal(got.isnan(), meant.isnan()));
    CHECK(at::equal(got.nan_to_num(7), meant.nan_to_num(7)));
    CHECK((got == 0).sum().item<int64_t>() > 0);
  }
}

TEST_CASE("bfloat16 results are rounded as LibTorch rounds") {
  DropoutStream stream(8);
  // All 65,536 bit patterns.
  const at::Tensor bits = at::arange(-32768, 32768, at::kInt).to(at::kShort);
  const at::Tensor x = bits.view(at::kBFloat16);
  for (const double p : {0.001, 0.1, 0.25, 0.37}) {
    const at::Tensor got = dropout(x, p, stream.state, 0), meant = dropout_reference(x, p, stream.state, 0);
    CHECK(at::equal(got.isnan(), meant.isnan()));
    CHECK(at::equal(got.isnan().logical_or(got == meant), at::ones_like(x, at::kBool)));
  }
}

TEST_CASE("the share kept and the mean are as promised") {
  const int64_t n = 1 << 20;
  DropoutStream stream(17);
  for (const double p : {0.001, 0.1, 0.5, 0.9}) {
    const double share = dropout_threshold(p) / 65536.0;
    CHECK(std::abs(share - p) <= 0.5 / 65536);
    const double sigma = std::sqrt(static_cast<double>(n) * share * (1 - share));
    for (int64_t site = 0; site < 4; ++site) {
      const at::Tensor result = dropout(at::ones({n}, at::kDouble), p, stream.state, site);
      const auto survivors = static_cast<double>((result != 0).sum().item<int64_t>());
      CHECK(std::abs(survivors - static_cast<double>(n) * (1 - share)) < 4 * sigma);
      CHECK(result.max().item<double>() == 1 / (1 - share));
      CHECK(std::abs(result.mean().item<double>() - 1) < 4 * sigma / (static_cast<double>(n) * (1 - share)));
    }
  }
}

TEST_CASE("sites, steps, seeds and neighbouring elements are unrelated") {
  const int64_t n = 200000;
  const double p = 0.3;
  DropoutStream stream(1), other_seed(2);
  stream.set_step(4);
  other_seed.set_step(4);
  const at::Tensor mask = kept(n, p, stream, 0);
  CHECK(at::equal(mask, kept(n, p, stream, 0)));
  check_unrelated(mask, kept(n, p, stream, 1), p);
  check_unrelated(mask, kept(n, p, other_seed, 0), p);
  for (const int64_t shift : {1, 2, 7, 8, 16, 4096}) {
    check_unrelated(mask.narrow(0, shift, n - shift), mask.narrow(0, 0, n - shift), p);
  }
  stream.set_step(5);
  check_unrelated(mask, kept(n, p, stream, 0), p);
  stream.set_step(4);
  CHECK(at::equal(mask, kept(n, p, stream, 0)));
}

TEST_CASE("rows of micro-batches are the rows of the whole batch") {
  DropoutStream stream(23);
  for (const int64_t width : {1, 5, 8, 1003}) {
    const at::Tensor x = numbers({24, width});
    stream.set_step(9, 0);
    const at::Tensor whole = dropout(x, 0.4, stream.state, 2);
    for (const int64_t rows : {1, 3, 12}) {
      std::vector<at::Tensor> parts;
      for (int64_t row = 0; row < 24; row += rows) {
        stream.set_step(9, row);
        parts.push_back(dropout(x.narrow(0, row, rows), 0.4, stream.state, 2));
      }
      CHECK(at::equal(at::cat(parts), whole));
    }
  }
}

TEST_CASE("the gradient is the mask times the incoming gradient") {
  DropoutStream stream(31);
  stream.set_step(3);
  const double p = 0.35;
  at::Tensor x = numbers({4, 3, 5}, at::kDouble).requires_grad_(true);
  const at::Tensor weights = InitStream(6).normal("w", {4, 3, 5}, 1).to(at::kDouble);
  const auto loss_of = [&](const at::Tensor& value) {
    const at::Tensor dropped = dropout(value, p, stream.state, 7);
    return (weights * dropped * dropped).sum();
  };
  const at::Tensor gradient = torch::autograd::grad({loss_of(x)}, {x})[0];
  const double width = 1e-6;
  for (int64_t i = 0; i < x.numel(); ++i) {
    at::Tensor up = x.detach().clone(), down = x.detach().clone();
    up.flatten()[i] += width;
    down.flatten()[i] -= width;
    const double difference = (loss_of(up) - loss_of(down)).item<double>() / (2 * width);
    CHECK(gradient.flatten()[i].item<double>() == Approx(difference).margin(1e-7));
  }

  // The reference has the same gradient, and both can be differentiated again.
  const at::Tensor direction = InitStream(7).normal("v", {4, 3, 5}, 1).to(at::kDouble);
  std::vector<at::Tensor> first, second;
  for (const Policy policy : {Policy::kAuto, Policy::kReference}) {
    const PolicyScope scope(policy);
    first.push_back(torch::autograd::grad({loss_of(x)}, {x}, {}, true, true)[0]);
    second.push_back(torch::autograd::grad({(first.back() * direction).sum()}, {x})[0]);
  }
  CHECK(at::allclose(first[0], gradient, 0, 1e-14));
  CHECK(at::allclose(first[0], first[1], 0, 1e-14));
  CHECK(at::allclose(second[0], second[1], 0, 1e-14));
  const at::Tensor factor = dropout(at::ones_like(weights), p, stream.state, 7);
  CHECK(at::allclose(second[0], 2 * weights * factor * factor * direction, 0, 1e-13));
}

TEST_CASE("a backward pass after the next step began is refused") {
  DropoutStream stream(1);
  const at::Tensor x = numbers({4, 4}).requires_grad_(true);
  const at::Tensor loss = dropout(x, 0.5, stream.state, 0).sum();
  stream.set_step(1);
  CHECK_THROWS_WITH(loss.backward(), Catch::Contains("modified by an inplace operation"));
}

TEST_CASE("p of 0 changes nothing and p outside [0, 1) is refused") {
  DropoutStream stream(1);
  const at::Tensor x = numbers({6, 6});
  CHECK(dropout(x, 0, stream.state, 0).is_same(x));
  CHECK(at::equal(dropout_reference(x, 0, stream.state, 0), x));
  for (const double p : {-0.1, 1.0, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    CHECK_THROWS_AS(dropout(x, p, stream.state, 0), UserError);
    CHECK_THROWS_AS(Dropout(p, std::make_shared<DropoutStream>(1)), UserError);
  }
  CHECK_THROWS_AS(dropout(x, 0.5, stream.state, -1), InternalError);
  CHECK_THROWS_AS(dropout(x, 0.5, stream.state, kMostSites), InternalError);
  CHECK_THROWS_AS(stream.set_step(kMostSteps), InternalError);
  // The nearest thing to 1 still lets one in 65,536 through.
  CHECK(dropout_threshold(0.9999999) == 65535);
}

TEST_CASE("strides do not matter, nor does an empty batch") {
  DropoutStream stream(4);
  const at::Tensor x = numbers({7, 6, 5});
  const at::Tensor turned = x.transpose(0, 2);
  CHECK(at::equal(dropout(turned, 0.5, stream.state, 3), dropout(turned.contiguous(), 0.5, stream.state, 3)));
  CHECK(at::equal(dropout(turned, 0.5, stream.state, 3), dropout_reference(turned, 0.5, stream.state, 3)));
  const at::Tensor spread = numbers({7, 1}).expand({7, 40});
  CHECK(at::equal(dropout(spread, 0.5, stream.state, 3), dropout(spread.contiguous(), 0.5, stream.state, 3)));
  CHECK(dropout(at::empty({0, 5}), 0.5, stream.state, 3).sizes() == at::IntArrayRef({0, 5}));
}

TEST_CASE("the number of threads does not change the result") {
  DropoutStream stream(6);
  const int before = at::get_num_threads();
  const at::Tensor x = numbers({300, 1001});
  std::vector<at::Tensor> results;
  for (const int threads : {1, 2, 3, 5}) {
    at::set_num_threads(threads);
    results.push_back(dropout(x, 0.1, stream.state, 3));
  }
  at::set_num_threads(before);
  for (const at::Tensor& result : results) CHECK(at::equal(result, results[0]));
}

TEST_CASE("layers take sites in turn and rest outside training") {
  const auto stream = std::make_shared<DropoutStream>(2);
  const Dropout first(0.5, stream), second(0.5, stream), off;
  CHECK(first.site() == 0);
  CHECK(second.site() == 1);
  CHECK(stream->sites == 2);
  const at::Tensor x = at::ones({64, 64});
  CHECK(first(x, false).is_same(x));
  CHECK(off(x, true).is_same(x));
  CHECK(at::equal(second(x, true), dropout(x, 0.5, stream->state, 1)));
  CHECK_FALSE(at::equal(first(x, true), second(x, true)));
}

TEST_CASE("every policy gives the same numbers") {
  CHECK(parse_policy("Auto") == Policy::kAuto);
  CHECK(parse_policy("reference") == Policy::kReference);
  CHECK(parse_policy("check") == Policy::kCheck);
  CHECK_THROWS_WITH(parse_policy("referense"), Catch::Contains("did you mean 'reference'?"));
  DropoutStream stream(12);
  const at::Tensor x = numbers({9, 50}).requires_grad_(true);
  std::vector<at::Tensor> values, gradients;
  for (const Policy wanted : {Policy::kAuto, Policy::kReference, Policy::kCheck}) {
    const PolicyScope scope(wanted);
    CHECK(policy() == wanted);
    values.push_back(dropout(x, 0.2, stream.state, 0));
    gradients.push_back(torch::autograd::grad({values.back().square().sum()}, {x})[0]);
    CHECK(at::equal(values.back(), values[0]));
    CHECK(at::equal(gradients.back(), gradients[0]));
  }
}

TEST_CASE("a step's number also seeds LibTorch's generator, so that operators which draw by themselves repeat it") {
  DropoutStream stream(11), other(12);
  const auto draw = [&](DropoutStream& of, int64_t step) {
    of.set_step(step);
    return at::rand({5});
  };
  const at::Tensor first = draw(stream, 3);
  CHECK_FALSE(first.equal(at::rand({5})));
  CHECK(first.equal(draw(stream, 3)));
  CHECK_FALSE(first.equal(draw(stream, 4)));
  CHECK_FALSE(first.equal(draw(other, 3)));
}

}  // namespace xformer::kernels::dropout_test
