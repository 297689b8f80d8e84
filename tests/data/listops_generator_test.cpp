// The generator against the procedure of lra-recipe 8.2, the properties of lra-recipe 8.3, and itself.
#include <catch2/catch.hpp>
#include <set>

#include "core/error.h"
#include "data/listops/listops_generator.h"
#include "listops_text.h"
#include "readers/listops.h"
#include "scratch.h"

namespace xformer::listops_generator_test {

using namespace data;
using Catch::Matchers::Contains;
namespace listops = readers::listops;

struct Example {
  Split split;
  std::vector<uint8_t> tokens;
  int64_t label;
  bool operator==(const Example&) const = default;
};

std::vector<Example> examples_of(const ListOpsOptions& options, int64_t threads = 0) {
  std::vector<Example> result;
  ListOpsGenerator(options, threads)
      .generate(
          [&](Split split, std::span<const uint8_t> tokens, int64_t label) {
            result.push_back({split, {tokens.begin(), tokens.end()}, label});
          },
          {});
  return result;
}

ListOpsOptions small(int64_t train, int64_t dev, int64_t test) {
  ListOpsOptions options;
  options.train_examples = train;
  options.dev_examples = dev;
  options.test_examples = test;
  return options;
}

TEST_CASE("generated examples have the lengths, labels and splits that were asked for") {
  const std::vector<Example> examples = examples_of(small(4000, 60, 40));
  REQUIRE(examples.size() == 4100);
  std::set<std::vector<uint8_t>> distinct;
  std::array<int64_t, 3> sizes{};
  std::array<double, 10> labels{};
  double total_length = 0;
  int64_t wrong = 0, outside = 0, unordered = 0;
  for (size_t i = 0; i < examples.size(); ++i) {
    const Example& example = examples[i];
    std::vector<uint8_t> reread;
    listops::encode(listops::decode(example.tokens), "here:1", reread);
    wrong += reread == example.tokens && listops::evaluate(reread) == example.label ? 0 : 1;
    const size_t length = example.tokens.size();
    outside += length <= 500 || length >= 2000 ? 1 : 0;
    unordered += i > 0 && example.split < examples[i - 1].split ? 1 : 0;
    ++sizes[static_cast<size_t>(example.split)];
    labels[static_cast<size_t>(example.label)] += 100.0 / 4100;
    total_length += static_cast<double>(length);
    distinct.insert(example.tokens);
  }
  CHECK(wrong == 0);
  CHECK(outside == 0);
  CHECK(unordered == 0);
  CHECK(sizes == std::array<int64_t, 3>{4000, 60, 40});
  CHECK(distinct.size() == examples.size());
  CHECK(total_length / 4100 == Approx(1043).margin(30));
  const std::array<double, 10> measured{16.6, 9.0, 6.9, 7.5, 9.5, 9.0, 8.2, 7.5, 8.7, 17.3};
  for (size_t label = 0; label < 10; ++label) CHECK(labels[label] == Approx(measured[label]).margin(1.5));
}

TEST_CASE("before rejection a quarter of the nodes are operators, with 2 to 10 arguments each as often") {
  ListOpsOptions options;
  options.max_length = 1'000'000;  // nothing is given up
  Stream stream(11);
  int64_t nodes = 0, operators = 0, deepest = 0, deep_operators = 0, trees = 0, accepted = 0;
  std::array<int64_t, 11> arity{};
  std::array<int64_t, 16> symbols{};
  for (std::vector<uint8_t> tokens; trees < 20000; ++trees) {
    REQUIRE(draw_listops_tree(stream, options, tokens));
    accepted += tokens.size() > 500 && tokens.size() < 2000 ? 1 : 0;
    std::vector<size_t> arguments;
    for (const uint8_t id : tokens) {
      ++symbols[id];
      if (id == listops::kClose) {
        ++arity.at(arguments.back());
        arguments.pop_back();
        continue;
      }
      const auto depth = static_cast<int64_t>(arguments.size()) + 1;
      const bool is_operator = id >= listops::kMin;
      deepest = std::max(deepest, depth);
      if (depth < 10) nodes += 1, operators += is_operator ? 1 : 0;
      else deep_operators += is_operator ? 1 : 0;
      if (!arguments.empty()) ++arguments.back();
      if (is_operator) arguments.push_back(0);
    }
  }
  CHECK(deepest == 10);
  CHECK(deep_operators == 0);
  CHECK(static_cast<double>(operators) / static_cast<double>(nodes) == Approx(0.25).margin(0.01));
  CHECK((arity[0] == 0 && arity[1] == 0));
  for (size_t count = 2; count <= 10; ++count)
    CHECK(static_cast<double>(arity[count]) / static_cast<double>(operators) == Approx(1.0 / 9).margin(0.005));
  for (size_t id = listops::kMin; id <= listops::kSm; ++id)
    CHECK(static_cast<double>(symbols[id]) / static_cast<double>(operators) == Approx(0.25).margin(0.01));
  CHECK(static_cast<double>(accepted) / 20000 == Approx(0.081).margin(0.01));
}

TEST_CASE("a draw gives up exactly the trees that are too long") {
  ListOpsOptions bounded, unbounded;
  bounded.max_length = 200;
  unbounded.max_length = 1'000'000;
  int64_t given_up = 0, differing = 0;
  for (uint64_t number = 0; number < 3000; ++number) {
    Stream one(3, number), two(3, number);
    std::vector<uint8_t> tokens, whole;
    const bool kept = draw_listops_tree(one, bounded, tokens);
    (void)draw_listops_tree(two, unbounded, whole);
    given_up += kept ? 0 : 1;
    differing += kept != (whole.size() < 200) || (kept && tokens != whole) ? 1 : 0;
  }
  CHECK(given_up > 100);
  CHECK(differing == 0);
}

TEST_CASE("the output does not depend on the number of threads") {
  ListOpsOptions options = small(1500, 30, 20);
  options.max_length = GENERATE(2000, 30);  // the latter with repetitions to reject
  options.min_length = options.max_length == 30 ? 0 : 500;
  const std::vector<Example> one = examples_of(options, 1);
  CHECK(one == examples_of(options, 2));
  CHECK(one == examples_of(options, 7));
}

TEST_CASE("seeds give different data and one seed the same") {
  ListOpsOptions options = small(20, 1, 1);
  const std::vector<Example> first = examples_of(options);
  CHECK(first == examples_of(options));
  options.generator_seed = 1;
  const std::vector<Example> second = examples_of(options);
  int64_t equal = 0;
  for (size_t i = 0; i < first.size(); ++i) equal += first[i] == second[i] ? 1 : 0;
  CHECK(equal == 0);
}

TEST_CASE("more examples begin with the same ones") {
  const std::vector<Example> few = examples_of(small(30, 1, 1)), many = examples_of(small(40, 1, 1));
  int64_t differing = 0;
  for (size_t i = 0; i < 30; ++i) differing += few[i] == many[i] ? 0 : 1;
  CHECK(differing == 0);
}

TEST_CASE("repetitions are rejected within and across splits") {
  ListOpsOptions options = small(6, 2, 2);
  options.min_length = 0;
  options.max_length = 2;  // the ten digits, each once
  std::set<int64_t> labels;
  for (const Example& example : examples_of(options)) labels.insert(example.label);
  CHECK(labels.size() == 10);
}

TEST_CASE("impossible settings are UserErrors that say what to change") {
  ListOpsOptions options = small(1, 1, 1);
  options.max_length = 501;
  CHECK_THAT(scratch::message_of<UserError>([&] { (void)examples_of(options); }),
             Contains("data.min_length 500") && Contains("data.max_length 501") && Contains("at least 502"));
  options.max_length = 2000;
  options.max_depth = 1;  // single digits are never longer than 500
  CHECK_THAT(scratch::message_of<UserError>([&] { (void)examples_of(options); }),
             Contains("1000000 draws") && Contains("data.max_depth 1"));
  options = small(9, 1, 1);
  options.min_length = 0;
  options.max_length = 2;  // eleven of ten digits
  CHECK_THAT(scratch::message_of<UserError>([&] { (void)examples_of(options); }), Contains("fewer examples"));
}

TEST_CASE("progress reaches its total") {
  std::vector<uint64_t> done;
  uint64_t last_total = 0;
  ListOpsGenerator(small(1500, 3, 2))
      .generate([](Split, std::span<const uint8_t>, int64_t) {},
                [&](std::string_view, uint64_t now, uint64_t total) {
                  done.push_back(now);
                  last_total = total;
                });
  REQUIRE_FALSE(done.empty());
  CHECK(std::is_sorted(done.begin(), done.end()));
  CHECK((done.back() == 1505 && last_total == 1505));
}

TEST_CASE("the sample of the repository is what the generator makes") {
  ListOpsOptions options = small(20, 5, 5);
  options.min_length = 7;
  options.max_length = 41;
  std::array<std::string, 3> files{"Source\tTarget\n", "Source\tTarget\n", "Source\tTarget\n"};
  for (const Example& example : examples_of(options))
    files[static_cast<size_t>(example.split)] +=
        listops_text::bracketed(example.tokens) + "\t" + std::to_string(example.label) + "\n";
  const Path sample = Path(__FILE__).parent_path() / "../../datasets/listops/sample";
  const std::array<const char*, 3> names{"basic_train.tsv", "basic_val.tsv", "basic_test.tsv"};
  for (size_t i = 0; i < names.size(); ++i) {
    if (std::getenv("XFORMER_WRITE_SAMPLE") != nullptr) scratch::put(sample / names[i], files[i]);
    CHECK(scratch::get(sample / names[i]) == files[i]);
  }
}

}  // namespace xformer::listops_generator_test
