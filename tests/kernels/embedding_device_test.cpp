// The embedding as a device computes it, walked on the CPU, against the definition in double precision.
#include "device_support.h"
#include "kernels/embedding/device.h"
#include "kernels/embedding/embedding.h"
#include "kernels/operator.h"
#include "place_support.h"
#include "plan_support.h"
#include "poisoned_memory.h"

namespace xformer::kernels::embedding_device_test {

namespace {

struct WalkedEmbedding {
  int64_t b = 3, n = 50, m = 16, vocabulary = 20, position_rows = 60;  // the last 0: no positions
  double p = 0.2;
  at::Tensor needed = {};

  [[nodiscard]] at::Tensor ids() const {
    Stream numbers(static_cast<uint64_t>(n + 100 * vocabulary));
    at::Tensor result = at::empty({b, n}, at::kLong);
    for (int64_t i = 0; i < result.numel(); ++i)
      result.view({-1})[i] = static_cast<int64_t>(numbers.next_below(static_cast<uint64_t>(vocabulary)));
    return result;
  }
  // The tokens' table, and the positions' if there are any.
  [[nodiscard]] Tensors tables() const {
    Tensors result{random_tensor("tokens", {vocabulary, m}, at::kFloat)};
    if (position_rows > 0) result.push_back(random_tensor("positions", {position_rows, m}, at::kFloat));
    return result;
  }
  [[nodiscard]] at::Tensor gradient() const { return random_tensor("gradient", {b, n, m}, at::kFloat); }
};

// The rows, then the gradients of both tables.
Tensors embedded(const WalkedEmbedding& one, const at::Tensor& ids, const at::Tensor& gradient, WalkOrder order) {
  const auto launch = [order](const EmbeddingArguments& a) { run_embedding(a, walking(order)); };
  const Tensors tables = one.tables();
  const at::Tensor positions = one.position_rows > 0 ? tables[1] : at::Tensor();
  const at::Tensor out =
      embedding_forward_device(tables[0], ids, positions, place_of(one.p), one.needed, at::kFloat, launch);
  const EmbeddingGradients found =
      embedding_backward_device(gradient, ids, one.vocabulary, one.position_rows, place_of(one.p), one.needed, launch);
  Tensors result{out, found.tokens};
  if (one.position_rows > 0) result.push_back(found.positions);
  return result;
}

Tensors meant(const WalkedEmbedding& one) {
  return in_double(
      [&](const Tensors& in) {
        return Tensors{embedding_reference(in[0], one.ids(), one.position_rows > 0 ? in[1] : at::Tensor(),
                                           place_of(one.p), one.needed)};
      },
      one.tables(), {one.gradient()});
}

double worst_embedding(const WalkedEmbedding& one) {
  const at::Tensor ids = one.ids(), gradient = one.gradient();
  lose_others(gradient, one.needed);
  return worst_walked([&](WalkOrder order) { return embedded(one, ids, gradient, order); }, meant(one));
}

constexpr double kLikeFloat = 2e-6;

int counted_embeddings = 0;

void count_embedding(const EmbeddingArguments&) { ++counted_embeddings; }

at::Tensor counted_forward(const at::Tensor& tokens, const at::Tensor& ids, const at::Tensor& positions,
                           const DropoutPlace& drop, const at::Tensor& needed, at::ScalarType type) {
  return embedding_forward_device(tokens, ids, positions, drop, needed, type, count_embedding);
}
EmbeddingGradients counted_backward(const at::Tensor& gradient, const at::Tensor& ids, int64_t token_rows,
                                    int64_t position_rows, const DropoutPlace& drop, const at::Tensor& needed) {
  return embedding_backward_device(gradient, ids, token_rows, position_rows, drop, needed, count_embedding);
}

}  // namespace

TEST_CASE("embedding on a device: every length from 1 to 130") {
  const PoisonedMemory poisoned;
  for (int64_t n = 1; n <= 130; ++n) {
    CAPTURE(n);
    CHECK(worst_embedding({.b = 1 + n % 3,
                           .n = n,
                           .m = 1 + n % 20,
                           .vocabulary = 1 + n % 30,
                           .position_rows = n % 4 == 0 ? 0 : n + n % 3,
                           .p = n % 2 == 0 ? 0.2 : 0}) < kLikeFloat);
  }
}

TEST_CASE("embedding on a device: widths, vocabularies and parts") {
  const PoisonedMemory poisoned;
  for (const int64_t m : {8, 63, 64, 65, 72, 130}) {
    CAPTURE(m);
    CHECK(worst_embedding({.m = m}) < kLikeFloat);
  }
  for (const int64_t vocabulary : {63, 64, 65, 256}) {
    CAPTURE(vocabulary);
    CHECK(worst_embedding({.vocabulary = vocabulary}) < kLikeFloat);
  }
  // Six tiles of 70 by 130 make parts of several tiles.
  const WalkedEmbedding one{.b = 60, .n = 100, .m = 130, .vocabulary = 70, .position_rows = 101};
  EmbeddingArguments a;
  a.b = one.b, a.n = one.n, a.m = one.m, a.vocabulary = one.vocabulary;
  CHECK((embedding_division(a).parts == 47 && embedding_division(a).part_tiles == 2));
  const Tensors got = embedded(one, one.ids(), one.gradient(), WalkOrder::kForward), wanted = meant(one);
  for (size_t i = 0; i < got.size(); ++i) CHECK(difference(got[i].to(at::kDouble), wanted[i]) < kLikeFloat);
}

TEST_CASE("embedding on a device of needed places: zeros elsewhere, whatever gradient arrives there") {
  const PoisonedMemory poisoned;
  for (const int64_t n : {1, 50, 64, 130}) {
    const at::Tensor place = at::arange(n), some = random_tensor("which", {3, n}).gt(0.5);
    for (const at::Tensor& needed :
         {some, at::stack({place.lt(n / 2), place.lt(0), place.lt(n)}), at::zeros({3, n}, at::kBool)}) {
      CAPTURE(n, needed);
      CHECK(worst_embedding({.n = n, .m = 24, .position_rows = n, .needed = needed}) < kLikeFloat);
    }
  }
}

TEST_CASE("embedding on a device drops the elements that the CPU drops") {
  const WalkedEmbedding one{.m = 13};
  const at::Tensor kept = embedded(one, one.ids(), one.gradient(), WalkOrder::kForward)[0],
                   meant = embedding_reference(one.tables()[0], one.ids(), one.tables()[1], place_of(one.p));
  CHECK(at::equal(kept == 0, meant == 0));
  CHECK((kept == 0).sum().item<int64_t>() > 0);
}

TEST_CASE("embedding on a device: ids that no token has give rows of NaN, and take no gradient") {
  const PoisonedMemory poisoned;
  const WalkedEmbedding one{.p = 0};
  at::Tensor ids = one.ids(), gradient = one.gradient();
  ids[0][3] = -1, ids[2][49] = one.vocabulary;
  const Tensors got = embedded(one, ids, gradient, WalkOrder::kForward);
  const at::Tensor wrong = (ids < 0).logical_or(ids >= one.vocabulary).unsqueeze(-1);
  CHECK(at::equal(got[0].isnan(), wrong.expand_as(got[0])));
  const at::Tensor meant = at::zeros({one.vocabulary, one.m}, at::kDouble)
                               .index_add(0, ids.clamp(0, one.vocabulary - 1).view({-1}),
                                          gradient.masked_fill(wrong, 0).to(at::kDouble).view({-1, one.m}));
  CHECK(difference(got[1].to(at::kDouble), meant) < kLikeFloat);
}

// LibTorch's meta device has shapes and types but no memory: what is launched there is counted.
TEST_CASE("a device with kernels of the embedding runs them: one launch forwards, one for each table backwards") {
  counted_embeddings = 0;
  torch::Library library(torch::Library::IMPL, "xformer", c10::DispatchKey::Meta, __FILE__, __LINE__);
  library.impl("embedding_forward", dispatched<counted_forward>);
  library.impl("embedding_backward", dispatched<counted_backward>);
  const auto launches = [&](int64_t vocabulary, at::ScalarType type, bool positions) {
    const auto leaf = [&](int64_t rows) {
      return at::empty({rows, 16}, at::TensorOptions(at::kMeta).dtype(type)).requires_grad_(true);
    };
    Tensors tables{leaf(vocabulary)};
    if (positions) tables.push_back(leaf(12));
    const at::Tensor ids = at::empty({2, 10}, at::TensorOptions(at::kMeta).dtype(at::kLong));
    const at::Tensor out = embedding(tables[0], ids, positions ? tables[1] : at::Tensor(), {});
    const Tensors found = torch::autograd::grad({out}, tables, {at::ones_like(out)});
    for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].sizes() == tables[i].sizes());
    return std::exchange(counted_embeddings, 0);
  };
  CHECK(launches(20, at::kFloat, true) == 3);
  CHECK(launches(kMostTokens, at::kFloat, false) == 2);
  // The definition there misses LibTorch's index_select.
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(launches(kMostTokens + 1, at::kFloat, true), Contains("aten::index_select"));
  CHECK_THROWS_WITH(launches(20, at::kDouble, true), Contains("aten::index_select"));
  CHECK(counted_embeddings == 0);
}

TEST_CASE("plans of the embedding fit a device at any size") {
  constexpr auto fits = [](int64_t b, int64_t n, int64_t m) {
    for (const int64_t vocabulary : {int64_t{1}, kMostTokens}) {
      EmbeddingArguments a;
      a.b = b, a.n = n, a.m = m, a.vocabulary = vocabulary, a.position_rows = n;
      const LaunchGrid rows = embedding_grid(a);
      a.stage = EmbeddingStage::kTokenGradient;
      const LaunchGrid tokens = embedding_grid(a), sums = part_sums_grid(vocabulary * m, kEmbeddingThreads);
      a.stage = EmbeddingStage::kPositionGradient;
      const LaunchGrid positions = embedding_grid(a);
      const RowDivision division = embedding_division(a);
      if (!launch_fits<EmbeddingProgram>(rows) || !launch_fits<TokenGradientProgram<ProductKind::kFloat>>(tokens) ||
          !launch_fits<PositionGradientProgram>(positions) || !launch_fits<PartSumsProgram<8>>(sums) ||
          rows.blocks * kEmbeddingThreads < b * n * runs_of(m) ||
          !is_division(division.parts, division.part_tiles, tiles_of(b * n)))
        return false;
    }
    return true;
  };
  STATIC_REQUIRE(all_fit({1, 64, 2048, 1 << 16}, fits));
  // The last run that there is, and one that is none.
  const int64_t rows = int64_t{1} << 32, m = 9, runs = rows * runs_of(m);
  const EmbeddingPlace last(runs - 1, rows, m), behind(runs, rows, m);
  CHECK((last.row == rows - 1 && last.column == kRun && last.count == 1 && behind.count == 0));
}

}  // namespace xformer::kernels::embedding_device_test
