// What dropout keeps between the passes of fused operators on the CPU: bits instead of draws.
#include <ATen/Functions.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>

#include "kernels/attention/weight_draws.h"
#include "kernels/branch/branch.h"
#include "kernels/cpu/lanes_512.h"
#include "kernels/dropout/cpu.h"
#include "kernels/dropout/numbers.h"
#include "kernels/embedding/embedding.h"
#include "kernels/feed_forward/feed_forward.h"
#include "kernels/hashed_attention/hashed_attention.h"
#include "kernels/window_attention/window_attention.h"
#include "place_support.h"
#include "tensor/init.h"

namespace xformer::kernels::kept_bits_test {

namespace {

at::Tensor numbers(at::IntArrayRef shape) { return InitStream(5).normal("x", shape, 1); }

// What the draws of rows say, a few rows at a time.
std::vector<bool> kept_by(const ElementDraws& draws, int64_t rows, int64_t width) {
  std::vector<bool> result;
  std::vector<uint16_t> memory;
  for (int64_t row = 0; row < rows; row += 3) {
    const int64_t count = std::min<int64_t>(3, rows - row) * width;
    const uint16_t* const drawn = draws.draw(row * width, count, memory, /*beyond=*/16);
    CHECK(memory.data() + memory.size() >= drawn + count + 16);
    for (int64_t i = 0; i < count; ++i) result.push_back(drawn[i] >= draws.threshold());
  }
  return result;
}

// Attention of one head to the first of some keys.
at::Tensor attended(const at::Tensor& queries, const at::Tensor& keys, int64_t valid, const DropoutPlace& place) {
  AttentionOptions options;
  options.dropout = place;
  options.mask.key_valid = (at::arange(keys.size(1)) < valid).expand({keys.size(0), keys.size(1)});
  return attention(queries.unsqueeze(1), keys.unsqueeze(1), keys.unsqueeze(1), options);
}

at::Tensor windowed(const at::Tensor& x, const Windows& windows, const DropoutPlace& place) {
  WindowAttentionOptions options;
  options.windows = windows;
  options.dropout = place;
  return window_attention(x.unsqueeze(1), x.unsqueeze(1), x.unsqueeze(1), {}, options);
}

}  // namespace

TEST_CASE("a place remembers what the forward pass kept, to the bit, and the backward pass draws nothing") {
  if (!has_512()) SUCCEED("only by AVX-512 are bits kept");
  for (const int64_t width : {8, 24, 32, 40, 72, 264}) {
    const double p = width == 40 ? 1.0 : 0.3;
    const int64_t rows = 7;
    const DropoutPlace place = place_of(p), remembered = remembering(place_of(p), rows * width, width);
    CHECK(remembered.kept.defined() == has_512());
    const at::Tensor x = at::empty({1}).expand({rows, width});
    const std::vector<bool> meant = kept_by({place, x}, rows, width);
    CHECK(kept_by({remembered, x}, rows, width) == meant);
    if (!has_512()) continue;
    remembered.state.fill_(9);  // of another step
    CHECK(kept_by({remembered, x, DrawnBy::kBackward}, rows, width) == meant);
    CHECK(kept_by({place_of(p / 2), x}, rows, width) != meant);
  }
  CHECK_FALSE(remembering(place_of(0), 64, 8).kept.defined());
  CHECK_FALSE(remembering(place_of(0.1), 60, 12).kept.defined());
}

TEST_CASE("a tile of attention's weights has the draws of the whole of them, made or remembered") {
  struct {
    int64_t m, first, count, n = 70;
  } const given[] = {{64, 0, 64},        {64, 0, 27},       {128, 0, 37},    {128, 0, 100},     {256, 0, 250},
                     {24, 8, 16},        {21, 0, 13},       {21, 3, 18},     {300, 256, 44},    {300, 0, 256},
                     {304, 0, 256},      {64, 0, 27, 10},   {21, 3, 18, 10}, {300, 0, 256, 10}, {304, 0, 256, 10},
                     {304, 256, 43, 10}, {304, 256, 48, 64}};
  for (const auto& [m, first, count, n] : given) {
    const HeadSizes sizes{2, 3, n, m, 8, 8};
    DropoutPlace place = place_of(0.3);
    place.state.mutable_data_ptr<int64_t>()[2] = 5;  // rows of a micro-batch
    const int64_t all = sizes.b * sizes.h * sizes.n * m;
    std::vector<uint16_t> memory;
    const uint16_t* const meant =
        ElementDraws(place, at::empty({1}).expand({sizes.b, all / sizes.b})).draw(0, all, memory);
    const auto same = [&](const WeightDraws& draws, auto&& alike) {
      const int64_t rows = 4, row = 5, b = 1, h = 2;
      std::vector<uint16_t> tile(draws.room(rows, count));
      std::vector<const uint16_t*> starts(static_cast<size_t>(rows));
      draws.draw(b, h, row, rows, first, count, tile, starts);
      int64_t wrong = 0;
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t i = 0; i < count; ++i)
          wrong += !alike(starts[static_cast<size_t>(r)][i], meant[((b * 3 + h) * sizes.n + row + r) * m + first + i]);
      for (const uint16_t* start : starts) wrong += start + count > tile.data() + tile.size();
      return wrong == 0;
    };
    INFO(count << " of " << m << " keys from " << first << ", " << n << " queries");
    const DropoutPlace remembered = remembering_weights(place, sizes);
    CHECK(remembered.kept.defined() == (has_512() && m % 8 == 0 && (m <= 256 || n <= 64)));
    CHECK(same(WeightDraws(remembered, sizes), [](uint16_t got, uint16_t of) { return got == of; }));
    if (!remembered.kept.defined()) continue;
    std::vector<uint16_t> tile(static_cast<size_t>(all + 64));
    std::vector<const uint16_t*> starts(static_cast<size_t>(sizes.n));
    for (int64_t z = 0; z < sizes.b * sizes.h; ++z)  // all of them, in other tiles
      WeightDraws(remembered, sizes).draw(z / sizes.h, z % sizes.h, 0, sizes.n, 0, m, tile, starts);
    remembered.state.fill_(9);
    const uint32_t threshold = dropout_threshold(0.3);
    CHECK(same(WeightDraws(remembered, sizes, DrawnBy::kBackward),
               [&](uint16_t got, uint16_t of) { return (got >= threshold) == (of >= threshold); }));
  }
}

TEST_CASE("nothing is written behind the last bit or the last draw") {
  if (!has_512()) SUCCEED("only by AVX-512 are bits kept");
  const std::vector<uint16_t> draws(72, 40000);
  for (int64_t count = 8; count <= 64 && has_512(); count += 8) {
    std::vector<uint8_t> kept(9, 0);
    std::vector<uint16_t> back(72, 7);
    kept_bits_by_512(draws.data(), count, 40000, kept.data());
    draws_of_bits_by_512(kept.data(), count, back.data());
    CHECK(std::count(kept.begin(), kept.end(), 0xFF) == count / 8);
    CHECK(std::count(kept.begin(), kept.end(), 0) == 9 - count / 8);
    CHECK(std::count(back.begin(), back.end(), 7) == 72 - count);
  }
}

TEST_CASE("operators draw in the forward pass alone") {
  const bool possible = has_512();
  if (!possible) SUCCEED("only by AVX-512 are bits kept");
  const at::Tensor x = numbers({3, 24, 16}), norm_weight = numbers({16}), wide = numbers({24, 16}),
                   narrow = numbers({16, 24}), ids = at::arange(72, at::kLong).view({3, 24}).remainder(7);
  const LinearMap in{wide, numbers({24})}, out{narrow, numbers({16})};
  using Make = std::function<at::Tensor(const at::Tensor& x, const DropoutPlace& place)>;
  const Make makers[] = {
      [&](const at::Tensor& y, const DropoutPlace& place) {
        return residual_norm(x, y, place, {norm_weight, norm_weight}).normed;
      },
      [&](const at::Tensor& y, const DropoutPlace& place) { return feed_forward(y, in, out, false, place, {}); },
      [&](const at::Tensor& y, const DropoutPlace& place) {
        return add_branch(x, Branch{y, out, in}, place);
      },
      [&](const at::Tensor& y, const DropoutPlace& place) {
        return branch_norm(x, Branch{y, {wide.narrow(0, 0, 16), out.bias}}, place, {norm_weight, norm_weight}).normed;
      },
      [&](const at::Tensor& y, const DropoutPlace& place) {
        return branch_norm(x, Branch{y, out, in, false, place}, {}, {norm_weight, norm_weight}).normed;
      },
      [&](const at::Tensor& y, const DropoutPlace& place) {
        return embedding(y.select(0, 0).narrow(0, 0, 7).contiguous(), ids, {}, place);
      },
      [&](const at::Tensor& y, const DropoutPlace& place) {
        HashedAttentionOptions options;
        options.dropout = place;
        return hashed_attention(y.unsqueeze(1), x.unsqueeze(1), {}, options).narrow(2, 0, 16);
      },
      [&](const at::Tensor& y, const DropoutPlace& place) { return attended(y, x, 24, place); },
      [&](const at::Tensor& y, const DropoutPlace& place) {
        return attended(y, numbers({3, 128, 16}), 37, place);
      },
      [&](const at::Tensor& y, const DropoutPlace& place) {
        return windowed(y, Windows::own_block(24, 8, false), place);
      },
      [&](const at::Tensor& y, const DropoutPlace& place) { return windowed(y, Windows::sliding(24, 4, 4), place); },
      [&](const at::Tensor& y, const DropoutPlace& place) { return windowed(y, Windows::segments(24, 8, 4), place); }};
  int64_t number = 0;
  for (const Make& make : makers) {
    INFO("operator " << number++);
    const auto gradient = [&](bool changes) {
      const DropoutPlace place = place_of(0.3);
      const at::Tensor y = x.detach().clone().requires_grad_();
      const at::Tensor made = make(y, place);
      if (changes) place.state.mutable_data_ptr<int64_t>()[0] = 9;  // past what autograd looks at
      return torch::autograd::grad({(made * at::arange(made.numel()).view(made.sizes()).sin()).sum()}, {y})[0];
    };
    CHECK(at::equal(gradient(true), gradient(false)) == possible);
  }
}

}  // namespace xformer::kernels::kept_bits_test
