#include "data/listops/listops_generator.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/parallel.h"
#include "data/duplicates.h"
#include "readers/listops.h"

namespace xformer::data {
namespace {

namespace listops = readers::listops;

constexpr double kOperatorShare = 0.25;
constexpr int64_t kMostAttempts = 1'000'000;  // the defaults need 12 on average
constexpr int64_t kChunkTokens = 32'000'000;  // bounds the memory of one round of the threads

}  // namespace

const Schema<ListOpsOptions>& listops_schema() {
  static const Schema<ListOpsOptions> kSchema =
      Schema<ListOpsOptions>()
          .add(&ListOpsOptions::min_length, "min_length", "generated expressions are longer than this", at_least(0))
          .add(&ListOpsOptions::max_length, "max_length",
               "generated expressions are shorter than this; expressions of files are cut to it on the right",
               between(2, 1'000'000))
          .add(&ListOpsOptions::max_depth, "max_depth", "deepest level of a generated expression", between(1, 1000))
          .add(&ListOpsOptions::max_args, "max_args", "most arguments of a generated operator", between(2, 1000))
          .add(&ListOpsOptions::train_examples, "train_examples", "generated training examples", between(1, 100e6))
          .add(&ListOpsOptions::dev_examples, "dev_examples", "generated dev examples", between(1, 100e6))
          .add(&ListOpsOptions::test_examples, "test_examples", "generated test examples", between(1, 100e6))
          .add(&ListOpsOptions::generator_seed, "generator_seed", "seed of the generator, apart from the run's seed",
               at_least(0));
  return kSchema;
}

bool draw_listops_tree(Stream& stream, const ListOpsOptions& options, std::vector<uint8_t>& tokens) {
  struct Open {
    size_t position;  // where its operator will stand
    int64_t missing;  // arguments still to come
  };
  std::vector<Open> open;  // a stack of our own: the depth is an option
  int64_t missing = 0;     // over all of `open`
  tokens.clear();
  while (true) {
    const auto depth = static_cast<int64_t>(open.size()) + 1;
    const bool is_operator = depth < options.max_depth && stream.next_unit() <= kOperatorShare;
    if (is_operator) {
      const auto arguments = 2 + static_cast<int64_t>(stream.next_below(static_cast<uint64_t>(options.max_args) - 1));
      open.push_back({tokens.size(), arguments});
      missing += arguments;
      tokens.push_back(0);
    } else {
      tokens.push_back(static_cast<uint8_t>(listops::kFirstDigit + stream.next_below(10)));
      // A finished node may finish its parent, and so on.
      while (!open.empty()) {
        --missing;
        if (--open.back().missing > 0) break;
        tokens[open.back().position] = static_cast<uint8_t>(listops::kMin + stream.next_below(4));
        tokens.push_back(listops::kClose);
        open.pop_back();
      }
      if (open.empty()) return static_cast<int64_t>(tokens.size()) < options.max_length;
    }
    // At least one symbol for every missing argument and a bracket for every open node; each open node but
    // the root is itself one of the missing arguments.
    const auto shortest = static_cast<int64_t>(tokens.size()) + missing + 1;
    if (shortest >= options.max_length) return false;
  }
}

struct ListOpsGenerator::Candidate {
  Stream stream{0};
  int64_t attempts = 0;
  std::vector<uint8_t> tokens;
  std::string key;
  int64_t label = 0;
};

ListOpsGenerator::ListOpsGenerator(const ListOpsOptions& options, int64_t threads)
    : options_(options), threads_(threads) {
  XF_CHECK(
      options.min_length + 1 < options.max_length, UserError,
      "data.min_length {} and data.max_length {} leave no length between them: expected at least {} for the latter",
      options.min_length, options.max_length, options.min_length + 2);
}

void ListOpsGenerator::draw_until_kept(Candidate& candidate) const {
  while (candidate.attempts < kMostAttempts) {
    ++candidate.attempts;
    const bool short_enough = draw_listops_tree(candidate.stream, options_, candidate.tokens);
    if (!short_enough || static_cast<int64_t>(candidate.tokens.size()) <= options_.min_length) continue;
    candidate.label = listops::evaluate(candidate.tokens);
    candidate.key = content_key(candidate.tokens);
    return;
  }
  throw UserError(fmt::format(
      "{} draws gave no new expression with a length between data.min_length {} and data.max_length {} (data.max_depth "
      "{}, data.max_args {}): widen the lengths or ask for fewer examples",
      kMostAttempts, options_.min_length, options_.max_length, options_.max_depth, options_.max_args));
}

void ListOpsGenerator::generate(const Accept& accept, const ProgressCallback& progress) const {
  const std::array<int64_t, 3> sizes{options_.train_examples, options_.dev_examples, options_.test_examples};
  const int64_t total = sizes[0] + sizes[1] + sizes[2];
  const int64_t round = std::clamp<int64_t>(kChunkTokens / options_.max_length, 16, 1024);
  const uint64_t key = derive_seed(static_cast<uint64_t>(options_.generator_seed), "listops");
  std::unordered_set<std::string> known;
  std::vector<Candidate> chunk;
  size_t split = 0;
  int64_t left_in_split = sizes[0];
  // The examples are independent and of one distribution, and the rejection of repetitions looks at no split:
  // the first so many are train, the next dev, the rest test, without a shuffle.
  for (int64_t first = 0; first < total; first += round) {
    chunk.resize(static_cast<size_t>(std::min(round, total - first)));
    for (size_t i = 0; i < chunk.size(); ++i) {
      chunk[i].stream = Stream(key, static_cast<uint64_t>(first) + i);
      chunk[i].attempts = 0;
    }
    for_each_piece(chunk.size(), threads_, [&](size_t i) { draw_until_kept(chunk[i]); });
    for (Candidate& candidate : chunk) {
      // In order of the index, so that which of two equal trees is drawn anew does not depend on the threads.
      while (!known.insert(candidate.key).second) draw_until_kept(candidate);
      while (left_in_split == 0) left_in_split = sizes[++split];
      --left_in_split;
      accept(static_cast<Split>(split), candidate.tokens, candidate.label);
    }
    if (progress) progress("making ListOps", static_cast<uint64_t>(first) + chunk.size(), static_cast<uint64_t>(total));
  }
}

}  // namespace xformer::data
