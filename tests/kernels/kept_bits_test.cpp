// What dropout keeps between the passes of fused operators on the CPU: bits instead of draws.
#include <ATen/Functions.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>

#include "kernels/branch/branch.h"
#include "kernels/cpu/lanes_512.h"
#include "kernels/dropout/cpu.h"
#include "kernels/embedding/embedding.h"
#include "kernels/feed_forward/feed_forward.h"
#include "kernels/hashed_attention/hashed_attention.h"
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
      }};
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
