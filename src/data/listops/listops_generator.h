// ListOps by the procedure of the Long Range Arena (its data/listops.py), from counters instead of a
// generator with a state: example number i depends on (seed, i) and on no thread.
//
// A node is an operator with probability 1/4 (a digit at the deepest level), has 2 to max_args arguments and
// draws in this order: operator or digit, number of arguments, the arguments one after the other, which
// operator. Trees are kept when min_length < length < max_length, and once.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/progress_callback.h"
#include "core/random.h"
#include "core/schema.h"
#include "data/source.h"

namespace xformer::data {

struct ListOpsOptions {
  int64_t min_length = 500;
  int64_t max_length = 2000;
  int64_t max_depth = 10;
  int64_t max_args = 10;
  int64_t train_examples = 96000;
  int64_t dev_examples = 2000;
  int64_t test_examples = 2000;
  int64_t generator_seed = 0;
};

[[nodiscard]] const Schema<ListOpsOptions>& listops_schema();

// One draw, kept or not: the ids of a tree (readers/listops.h). False when it was given up because it cannot
// stay below max_length.
[[nodiscard]] bool draw_listops_tree(Stream& stream, const ListOpsOptions& options, std::vector<uint8_t>& tokens);

class ListOpsGenerator {
 public:
  // threads 0: as many as the machine has. Impossible settings are a UserError, here or, when only trying
  // can tell, in generate().
  explicit ListOpsGenerator(const ListOpsOptions& options, int64_t threads = 0);

  using Accept = std::function<void(Split split, std::span<const uint8_t> tokens, int64_t label)>;
  // Hands over all examples, train first, in order of their index, in the calling thread.
  void generate(const Accept& accept, const ProgressCallback& progress) const;

 private:
  struct Candidate;
  void draw_until_kept(Candidate& candidate) const;

  ListOpsOptions options_;
  int64_t threads_;
};

}  // namespace xformer::data
