// The loop that makes sequences: which places the model is given, whose draws they are, what follows the last place.
#include "inspect/generate.h"

#include <ATen/Functions.h>

#include <catch2/catch.hpp>

#include "core/error.h"
#include "core/random.h"
#include "inspect/tiny.h"

namespace xformer::inspect::generate_test {

namespace {

using Classes = std::vector<int64_t>;
using Sequences = std::vector<Classes>;

constexpr int64_t kClasses = 5;

// Its scores depend on the last id alone; it writes down what it was given.
class Scripted : public models::Model, public models::DecodingModel {
 public:
  explicit Scripted(bool remembers = false) : Model(1), remembers_(remembers) {}
  at::Tensor forward(const models::ModelInput&, models::State&) override { return {}; }
  [[nodiscard]] attention::Cost cost(int64_t, int64_t) const override { return {}; }
  [[nodiscard]] models::State init_state(int64_t batch) const override {
    models::State state;
    if (remembers_) state["memory"] = at::zeros({batch, 1});
    return state;
  }
  at::Tensor decode(const at::Tensor& ids, models::Decoded& so_far) override {
    given.push_back({so_far.places, ids.clone()});
    if (remembers_ && so_far.places == 6) so_far.places = 0;
    so_far.places += ids.size(1);
    return scores_of(ids.select(1, ids.size(1) - 1));
  }
  static at::Tensor scores_of(const at::Tensor& last) {
    return at::sin(last.to(at::kDouble).unsqueeze(-1) * 1.7 + at::arange(kClasses, at::kDouble) * 2.3) * 2;
  }

  struct Given {
    int64_t before;
    at::Tensor ids;
  };
  std::vector<Given> given;

 private:
  bool remembers_;
};

GenerationRequest request_for(int64_t count, int64_t length) {
  GenerationRequest request;
  request.begin = {0};
  request.places = 6;
  request.count = count;
  request.length = length;
  return request;
}

Sequences made(models::Model& model, GenerationRequest request) {
  Sequences sequences(static_cast<size_t>(request.count));
  request.next = [&](const Classes& classes) {
    for (size_t i = 0; i < classes.size(); ++i) sequences[i].push_back(classes[i]);
  };
  generate(model, request);
  return sequences;
}

}  // namespace

TEST_CASE("a sequence is what it begins with, then each drawn symbol, place by place", "[generate]") {
  Scripted model;
  GenerationRequest request = request_for(2, 3);
  request.begin = {4, 2, 3};
  request.first_id = 1;
  const Sequences sequences = made(model, request);
  REQUIRE(model.given.size() == 3);
  CHECK(
      (model.given[0].before == 0 && model.given[0].ids.equal(at::tensor({4, 2, 3, 4, 2, 3}, at::kLong).view({2, 3}))));
  CHECK((model.given[2].before == 4 && model.given[2].ids.size(1) == 1));
  for (size_t i = 0; i < 2; ++i) {
    // The draws of sequence i: stream i under the seed's key for this.
    Stream numbers(derive_seed(0, "generate"), i);
    int64_t last = 3;
    for (size_t place = 0; place < 3; ++place) {
      const at::Tensor scores = Scripted::scores_of(at::tensor({last}, at::kLong));
      const std::span<const double> row(scores.const_data_ptr<double>(), kClasses);
      CHECK(sequences[i][place] == drawn_class(sampling_distribution(row, {}), numbers.next_unit()));
      last = sequences[i][place] + 1;
      if (place < 2) CHECK(model.given[place + 1].ids[static_cast<int64_t>(i)][0].item<int64_t>() == last);
    }
  }
}

TEST_CASE("a seed gives the same sequences, beside more of them too; another seed others", "[generate]") {
  Scripted model;
  const Sequences two = made(model, request_for(2, 6)), five = made(model, request_for(5, 6));
  CHECK(two == Sequences(five.begin(), five.begin() + 2));
  CHECK(two[0] != two[1]);
  GenerationRequest other = request_for(2, 6);
  other.seed = 1;
  CHECK(made(model, other) != two);
  other.sampling.greedy = true;
  const Sequences greedy = made(model, other);
  CHECK(greedy[0] == greedy[1]);
}

TEST_CASE("behind its last place a model begins anew with half of them, and one that remembers goes on", "[generate]") {
  Scripted model;
  GenerationRequest request = request_for(1, 9);
  const Sequences sequences = made(model, request);
  std::vector<std::pair<int64_t, int64_t>> given;  // places before, and ids at once
  for (const auto& [before, ids] : model.given) given.emplace_back(before, ids.size(1));
  const decltype(given) wanted{{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {0, 3}, {3, 1}, {4, 1}};
  CHECK(given == wanted);
  const Classes& all = sequences[0];
  CHECK(model.given[6].ids.equal(at::tensor({all[3] + 1, all[4] + 1, all[5] + 1}, at::kLong).view({1, 3})));
  Scripted keeper(/*remembers=*/true);
  static_cast<void>(made(keeper, request));
  for (const auto& [before, ids] : keeper.given) CHECK(ids.size(1) == 1);
}

TEST_CASE("a model that answers once for a sequence is not read place by place", "[generate]") {
  const auto encoder = build_tiny_model("linear");  // a Transformer, but not a causal one
  CHECK_THROWS_AS(made(*encoder, request_for(1, 1)), InternalError);
  class Other : public models::Model {
   public:
    Other() : Model(1) {}
    at::Tensor forward(const models::ModelInput&, models::State&) override { return {}; }
    [[nodiscard]] attention::Cost cost(int64_t, int64_t) const override { return {}; }
  } other;
  CHECK_THROWS_WITH(made(other, request_for(1, 1)), Catch::Matchers::Contains("decoder"));
}

}  // namespace xformer::inspect::generate_test
