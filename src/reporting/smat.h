// SMAT, AdaMRA's score of speed, memory and accuracy together (Zhang et al., "Adaptive Multi-Resolution Attention with
// Linear Complexity", 2021, section 4.3 and Table 3).
#pragma once

#include <string>
#include <vector>

namespace xformer::reporting {

struct SmatInput {
  std::string model;
  double examples_per_s = 0, peak_memory = 0, accuracy = 0;  // memory and accuracy in any unit, the same for all
};

// Each from 0, the worst of the models compared, to 1, the best; all are 0 where the models do not differ but memory,
// which is then 1.
struct SmatScore {
  double speed = 0, memory = 0, accuracy = 0;
  [[nodiscard]] double total() const { return speed + memory + accuracy; }
};

enum class SmatRounding {
  kExact,
  kTerms,  // each term to two decimals before they are added, as in the published table
};

// In the order of the models. A score has no meaning without them: one more model changes all. UserErrors: fewer than
// two models, one of them twice, a number that is not finite or a speed or memory that is not positive. What stands for
// accuracy may be an error: then less is better.
[[nodiscard]] std::vector<SmatScore> smat_scores(const std::vector<SmatInput>& models, SmatRounding rounding,
                                                 bool higher_is_better = true);

}  // namespace xformer::reporting
