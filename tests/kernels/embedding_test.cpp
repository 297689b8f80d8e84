// Embedding in one pass against its definition: outputs and gradients of both tables, and wrong ids.
#include "kernels/embedding/embedding.h"

#include <ATen/Parallel.h>

#include <cstring>

#include "core/error.h"
#include "core/random.h"
#include "fused_support.h"
#include "kernels/embedding/cpu.h"
#include "kernels/policy.h"
#include "place_support.h"
#include "tensor/op_counter.h"

namespace xformer::kernels {

namespace {

struct EmbeddingCase {
  int64_t batch, length, width, rows, position_rows;  // position_rows 0: no positions
  double dropout = 0;
};

at::Tensor random_ids(const EmbeddingCase& one) {
  Stream numbers(static_cast<uint64_t>(one.length + 100 * one.rows));
  at::Tensor ids = at::empty({one.batch, one.length}, at::kLong);
  for (int64_t i = 0; i < ids.numel(); ++i)
    ids.view({-1})[i] = static_cast<int64_t>(numbers.next_below(static_cast<uint64_t>(one.rows)));
  return ids;
}

TensorFunction embedding_operator(const at::Tensor& ids, double p, bool reference) {
  return [=](const Tensors& x) {
    return Tensors{reference ? embedding_reference(x[0], ids, x[1], place_of(p))
                             : embedding(x[0], ids, x[1], place_of(p))};
  };
}

Tensors tables_of(const EmbeddingCase& one, at::ScalarType type) {
  return {random_tensor("tokens", {one.rows, one.width}, type),
          one.position_rows > 0 ? random_tensor("positions", {one.position_rows, one.width}, type) : at::Tensor()};
}

double difference_of(const EmbeddingCase& one, at::ScalarType type) {
  const at::Tensor ids = random_ids(one);
  return worst_difference(embedding_operator(ids, one.dropout, false), embedding_operator(ids, one.dropout, true),
                          tables_of(one, type));
}

}  // namespace

TEST_CASE("embedding in one pass equals its definition, with gradients of both tables") {
  const std::vector<EmbeddingCase> cases = {
      {1, 1, 1, 1, 1},           {2, 7, 5, 3, 0, 0.3},    {3, 200, 64, 18, 200, 0.1},  {4, 65, 16, 20, 80, 0.1},
      {2, 300, 33, 50, 300},     {1, 3, 5000, 4, 3, 0.1}, {2, 40, 64, 20000, 64, 0.2}, {0, 5, 8, 3, 5},
      {5, 129, 24, 7, 129, 0.5},
  };
  for (const EmbeddingCase& one : cases) {
    CAPTURE(one.batch, one.length, one.width, one.rows, one.position_rows, one.dropout);
    CHECK(difference_of(one, at::kDouble) < 1e-11);
    CHECK(difference_of(one, at::kFloat) < 1e-5);
  }
}

TEST_CASE("embedding over random shapes") {
  Stream numbers(3);
  const auto below = [&](uint64_t bound) { return static_cast<int64_t>(numbers.next_below(bound)); };
  for (int turn = 0; turn < 25; ++turn) {
    EmbeddingCase one{1 + below(5), 1 + below(150), 1 + below(90), 1 + below(300), 0};
    if (below(3) > 0) one.position_rows = one.length + below(5);
    one.dropout = below(2) == 0 ? 0.2 : 0;
    CAPTURE(one.batch, one.length, one.width, one.rows, one.position_rows, one.dropout);
    CHECK(difference_of(one, at::kDouble) < 1e-11);
  }
}

TEST_CASE("embedding refuses an id outside its table, as at::embedding does") {
  const at::Tensor table = random_tensor("table", {4, 8}, at::kFloat);
  for (const int64_t wrong : {int64_t{-1}, int64_t{4}, int64_t{1} << 40}) {
    at::Tensor ids = at::zeros({2, 3}, at::kLong);
    ids[1][1] = wrong;
    CHECK_THROWS_AS(embedding(table, ids, {}, {}), c10::IndexError);
    CHECK_THROWS_AS(embedding_reference(table, ids, {}, {}), c10::Error);
  }
}

TEST_CASE("embedding takes ids of 32 bits and tables as they lie, and positions without a gradient") {
  const at::Tensor ids = random_ids({3, 20, 0, 6, 0});
  const at::Tensor table = random_tensor("table", {8, 6}).t(), positions = random_tensor("positions", {20, 8});
  const at::Tensor meant = embedding_reference(table, ids, positions, place_of(0.1));
  CHECK(difference(embedding(table, ids.to(at::kInt), positions, place_of(0.1)), meant) < 1e-12);
  const at::Tensor turned = ids.t().contiguous().t();
  CHECK(difference(embedding(table, turned, positions, place_of(0.1)), meant) < 1e-12);
  at::Tensor leaf = table.contiguous().requires_grad_(true);
  embedding(leaf, ids, positions, {}).sum().backward();
  CHECK(leaf.grad().sum().item<double>() == Approx(3 * 20 * 8));
}

TEST_CASE("embedding gives the same bits on any number of threads") {
  const EmbeddingCase one{8, 300, 64, 18, 300, 0.1};
  const TensorFunction run = embedding_operator(random_ids(one), one.dropout, false);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Tensors alone = run_with_gradients(run, tables_of(one, at::kFloat));
  at::set_num_threads(5);
  const Tensors five = run_with_gradients(run, tables_of(one, at::kFloat));
  at::set_num_threads(before);
  for (size_t i = 0; i < alone.size(); ++i) CHECK(at::equal(alone[i], five[i]));
}

TEST_CASE("--kernels=check holds the embedding against its definition, --kernels=reference runs that") {
  const EmbeddingCase one{2, 50, 16, 9, 50, 0.1};
  const at::Tensor ids = random_ids(one);
  set_policy(Policy::kCheck);
  CHECK_NOTHROW(run_with_gradients(embedding_operator(ids, 0.1, false), tables_of(one, at::kFloat)));
  set_policy(Policy::kReference);
  const Tensors tables = tables_of(one, at::kFloat);
  const OpCounter counter;
  CHECK(at::equal(embedding(tables[0], ids, tables[1], {}), at::embedding(tables[0], ids) + tables[1]));
  set_policy(Policy::kAuto);
  CHECK(counter.counts().calls > 3);
}

// Of two loops that a compiler makes of one, for tables that lie near each other and for others, either may round less.
TEST_CASE("rows of the embedding have the same bits wherever they lie") {
  constexpr int64_t kRows = 7, kTokens = 3;
  const std::vector<int64_t> ids{1, 0, 1, 1, 2, 1, 0};
  for (const int64_t width : {4, 16, 40}) {
    const int64_t size = kRows * width;
    const auto numbers = [&](const char* name, int64_t count) { return random_tensor(name, {count}, at::kFloat); };
    const at::Tensor tokens = numbers("tokens", kTokens * width), places = numbers("places", size),
                     slopes = numbers("slopes", size);
    std::vector<uint16_t> draws;
    for (int64_t i = 0; i < size; ++i) draws.push_back(static_cast<uint16_t>(i * 2654435761 >> 7));
    std::vector<float> meant;
    // The order of tables in memory, and how far they are apart.
    std::vector<int64_t> order{0, 1, 2, 3, 4};
    do
      for (const int64_t gap : {64, 0, 1, 3, 16}) {
        std::vector<float> room(static_cast<size_t>(4 * size + kTokens * width + 5 * gap));
        float *place = room.data(), *lies[5];
        for (const int64_t which : order) {
          lies[which] = place;
          place += (which == 3 ? kTokens * width : size) + gap;
        }
        auto [out, slope, place_sums, token_sums, drawn] = lies;
        std::memcpy(drawn, draws.data(), draws.size() * sizeof(uint16_t));
        const EmbeddingRows<float> block{kRows, width,   ids.data(), reinterpret_cast<const uint16_t*>(drawn),
                                         6554,  1 / 0.9F};
        embedding_rows(block, tokens.const_data_ptr<float>(), places.const_data_ptr<float>(), out);
        std::copy_n(slopes.const_data_ptr<float>(), size, slope);
        std::vector<float> scratch(static_cast<size_t>(width)), got(out, out + size);
        embedding_gradient_rows(block, slope, token_sums, place_sums, scratch.data());
        got.insert(got.end(), place_sums, place_sums + size);
        got.insert(got.end(), token_sums, token_sums + kTokens * width);
        if (meant.empty()) meant = got;
        CAPTURE(width, gap, order);
        CHECK(got == meant);
      }
    while (std::next_permutation(order.begin(), order.end()));
  }
}

}  // namespace xformer::kernels
