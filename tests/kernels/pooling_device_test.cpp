// Pooling and repeating as a device computes them, walked on the CPU, against the definition in double precision.
#include "device_support.h"
#include "kernels/operator.h"
#include "kernels/pooling/device.h"
#include "plan_support.h"
#include "poisoned_memory.h"

namespace xformer::kernels::pooling_device_test {

namespace {

struct WalkedPools {
  std::vector<HeadGroup> groups{{1, {1, 3}}, {3, {0}}, {9, {2}}};
  int64_t n = 30, d = 5, pinned = 0;
  bool masked = true, gaps = false;
  at::ScalarType type = at::kFloat;

  [[nodiscard]] int64_t heads() const { return static_cast<int64_t>(GroupLists::of(groups).heads.size()); }
  [[nodiscard]] at::Tensor valid() const { return masked ? ragged_flags(3, n) : at::Tensor(); }
  [[nodiscard]] at::Tensor tokens(const std::string& name) const {
    return float_heads(name, {3, heads(), n, d}, gaps).to(type);
  }
  [[nodiscard]] Tensors rows(const std::string& name) const {
    Tensors result;
    for (const HeadGroup& group : groups)
      result.push_back(float_heads(name + std::to_string(group.scale),
                                   {3, static_cast<int64_t>(group.heads.size()), pooled_len(n, group.scale, pinned), d},
                                   gaps)
                           .to(type));
    return result;
  }
};

template <bool kPool>
auto walked_pool(WalkOrder order) {
  return [order](const PoolArguments& a) { run_pool<WalkedTypes, kPool>(a, walking(order)); };
}

// Rows of all groups, then the gradient of x.
Tensors pooled(const WalkedPools& one, const at::Tensor& x, const Tensors& gradients, WalkOrder order) {
  const GroupLists lists = GroupLists::of(one.groups);
  Tensors result = pooled_on_device(x, one.valid(), lists, one.pinned, /*mean=*/true, walked_pool<true>(order));
  result.push_back(
      repeated_on_device(gradients, one.valid(), one.n, lists, one.pinned, /*share=*/true, walked_pool<false>(order)));
  return result;
}

// Tokens, then the gradients of the rows of all groups.
Tensors repeated(const WalkedPools& one, const Tensors& rows, const at::Tensor& gradient, WalkOrder order) {
  const GroupLists lists = GroupLists::of(one.groups);
  Tensors result{repeated_on_device(rows, {}, one.n, lists, one.pinned, /*share=*/false, walked_pool<false>(order))};
  for (const at::Tensor& more :
       pooled_on_device(gradient, {}, lists, one.pinned, /*mean=*/false, walked_pool<true>(order)))
    result.push_back(more);
  return result;
}

double worst_pool(const WalkedPools& one) {
  const at::Tensor x = one.tokens("x");
  const Tensors gradients = one.rows("gradient");
  return worst_walked([&](WalkOrder order) { return pooled(one, x, gradients, order); },
                      in_double(
                          [&](const Tensors& in) {
                            return pool_heads_reference(in[0], {one.valid(), false}, one.groups, one.pinned);
                          },
                          {x}, gradients));
}

double worst_repeat(const WalkedPools& one) {
  const Tensors rows = one.rows("rows");
  const at::Tensor gradient = one.tokens("gradient");
  return worst_walked(
      [&](WalkOrder order) { return repeated(one, rows, gradient, order); },
      in_double([&](const Tensors& in) { return Tensors{repeat_heads_reference(in, one.n, one.groups, one.pinned)}; },
                rows, {gradient}));
}

constexpr double kLikeFloat = 1e-6;

int counted_pools = 0;

void count_pool(const PoolArguments&) { ++counted_pools; }

std::vector<at::Tensor> counted_pool(const at::Tensor& x, const at::Tensor& valid, const GroupLists& groups,
                                     int64_t pinned) {
  return pooled_on_device(x, valid, groups, pinned, true, count_pool);
}
at::Tensor counted_pool_backward(const std::vector<at::Tensor>& gradients, const at::Tensor& valid, int64_t n,
                                 const GroupLists& groups, int64_t pinned) {
  return repeated_on_device(gradients, valid, n, groups, pinned, true, count_pool);
}
at::Tensor counted_repeat(const std::vector<at::Tensor>& rows, int64_t n, const GroupLists& groups, int64_t pinned) {
  return repeated_on_device(rows, {}, n, groups, pinned, false, count_pool);
}
std::vector<at::Tensor> counted_repeat_backward(const at::Tensor& gradient, const GroupLists& groups, int64_t pinned) {
  return pooled_on_device(gradient, {}, groups, pinned, false, count_pool);
}

}  // namespace

TEST_CASE("pooling and repeating on a device: every length from 1 to 130") {
  const PoisonedMemory poisoned;
  for (int64_t n = 1; n <= 130; ++n) {
    CAPTURE(n);
    const WalkedPools one{.n = n, .pinned = n % 3 == 0 ? 1 : 0, .masked = n % 4 > 0};
    CHECK(pooled_rows(n, 3, one.pinned) == pooled_len(n, 3, one.pinned));
    CHECK(worst_pool(one) < kLikeFloat);
    CHECK(worst_repeat(one) < kLikeFloat);
  }
}

TEST_CASE("pooling and repeating on a device: widths, scales, strides and tokens of their own") {
  const PoisonedMemory poisoned;
  const std::vector<HeadGroup> both{{7, {0, 1}}}, wide{{16, {1}}, {40, {0}}, {64, {2}}};
  for (WalkedPools one :
       {WalkedPools{.d = 1}, WalkedPools{.d = 8}, WalkedPools{.d = 32}, WalkedPools{.d = 70},
        WalkedPools{.groups = both, .n = 100, .d = 16}, WalkedPools{.groups = wide, .n = 101, .d = 24},
        WalkedPools{.groups = wide, .n = 64, .pinned = 2}, WalkedPools{.gaps = true}})
    for (const bool masked : {false, true}) {
      one.masked = masked;
      // In 16 bits: one rounding, of sums in float.
      for (const auto& [type, bound] :
           {std::pair{at::kFloat, kLikeFloat}, {at::kBFloat16, 1.0 / 256}, {at::kHalf, 1.0 / 2048}}) {
        one.type = type;
        CAPTURE(one.n, one.d, one.pinned, masked, type);
        CHECK(worst_pool(one) < bound);
        CHECK(worst_repeat(one) < bound);
      }
    }
}

TEST_CASE("pooling on a device: what stands in padding does not matter, but where tokens are handed on") {
  const PoisonedMemory poisoned;
  const WalkedPools one{.groups = {{2, {0, 1}}, {20, {2}}}, .n = 50, .pinned = 1};
  const at::Tensor x = one.tokens("x");
  const Tensors gradients = one.rows("gradient");
  const Tensors clean = pooled(one, x, gradients, WalkOrder::kForward),
                lost = pooled(one, lost_padding(x, one.valid()), gradients, WalkOrder::kForward);
  for (size_t i = 0; i < clean.size(); ++i) CHECK(at::equal(lost[i], clean[i]));
  // A gradient that is lost stays in its span.
  Tensors broken = gradients;
  broken[0].select(2, 3).fill_(NAN);
  const at::Tensor found = pooled(one, x, broken, WalkOrder::kForward).back(), flags = one.valid();
  for (int64_t i = 0; i < one.n; ++i) CHECK(found[0][0][i].isnan().any().item<bool>() == (i == 5 || i == 6));
  CHECK_FALSE(found[2].isnan().any().item<bool>());  // of no valid token
}

// LibTorch's meta device has shapes and types but no memory: what is launched there is counted.
TEST_CASE("a device with kernels of pooling runs them: all groups in one launch") {
  counted_pools = 0;
  torch::Library library(torch::Library::IMPL, "xformer", c10::DispatchKey::Meta, __FILE__, __LINE__);
  library.impl("pool_heads_forward", dispatched<counted_pool>);
  library.impl("pool_heads_backward", dispatched<counted_pool_backward>);
  library.impl("repeat_heads_forward", dispatched<counted_repeat>);
  library.impl("repeat_heads_backward", dispatched<counted_repeat_backward>);
  const auto launches = [&](const std::vector<HeadGroup>& groups, int64_t heads, at::ScalarType type) {
    const at::Tensor x = at::empty({2, heads, 10, 8}, at::TensorOptions(at::kMeta).dtype(type)).requires_grad_(true);
    const Tensors rows = pool_heads(x, {}, groups);
    const at::Tensor back = repeat_heads(rows, 10, groups);
    CHECK(back.sizes() == x.sizes());
    const Tensors found = torch::autograd::grad({back}, {x}, {at::ones_like(back)});
    CHECK(found[0].sizes() == x.sizes());
    return std::exchange(counted_pools, 0);
  };
  CHECK(launches({{1, {0, 2}}, {2, {1}}}, 3, at::kFloat) == 4);
  CHECK(launches({{1, {0, 2}}, {2, {1}}}, 3, at::kDouble) == 0);
  std::vector<HeadGroup> many;
  std::vector<int64_t> heads;
  for (int64_t i = 0; i <= kMostPoolGroups; ++i) many.push_back({i + 1, {i}});
  CHECK(launches(many, kMostPoolGroups + 1, at::kFloat) == 0);
  for (int64_t i = 0; i < kMostPooledHeads; ++i) heads.push_back(i);
  CHECK(launches({{2, heads}}, kMostPooledHeads, at::kFloat) == 4);
  heads.push_back(kMostPooledHeads);
  CHECK(launches({{2, heads}}, kMostPooledHeads + 1, at::kFloat) == 0);
}

TEST_CASE("plans of pooling fit a device at any size") {
  constexpr auto has_lanes = [](int64_t scale) {
    const int lanes = pool_lanes(scale);
    return lanes >= 1 && kWarp % lanes == 0 && (lanes == 1 || 4 * lanes <= scale);
  };
  constexpr auto fits = [has_lanes](int64_t b, int64_t n, int64_t d) {
    for (const int64_t scale : {int64_t{1}, int64_t{2}, int64_t{7}, int64_t{8}, int64_t{64}, kMostNumbered}) {
      PoolArguments a;
      a.b = b, a.n = n, a.d = static_cast<int>(d), a.count = kMostPoolGroups;
      for (PoolArguments::Group& group : a.groups)
        group.heads = kMostPooledHeads / kMostPoolGroups, group.scale = scale, group.pooled = pooled_rows(n, scale, 0);
      if (!has_lanes(scale)) return false;
      if (is_held(b * kMostPooledHeads, n, d) && !launch_fits<PoolProgram<float, true>>(pool_grid(a))) return false;
    }
    return true;
  };
  STATIC_REQUIRE(all_fit({1, 32, 512, kMostNumbered}, fits));
  const auto taken = [](int64_t n, int64_t d, int64_t scale) {
    return fits_pool_programs({at::empty({1, 1, n, d}, at::kMeta)}, {{scale, {0}}});
  };
  CHECK((taken(kMostNumbered, 1, kMostNumbered) && taken(1, kMostNumbered, 2)));
  for (const int64_t many : {kMostNumbered + 1, int64_t{1} << 32})
    CHECK_FALSE((taken(many, 1, 2) || taken(1, many, 2) || taken(1, 1, many)));
}

}  // namespace xformer::kernels::pooling_device_test
