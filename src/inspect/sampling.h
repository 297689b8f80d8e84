// Drawing a class from the scores of a model, in double precision.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace xformer::inspect {

struct SamplingOptions {
  double temperature = 1;  // above 0
  int64_t top_k = 0;       // 0: all classes
  double top_p = 1;        // in (0, 1]
  bool greedy = false;     // the likeliest class, whatever the others say
};

// What a class is drawn from: softmax(scores / temperature); of its classes the top_k likeliest, scaled to one; of
// these the fewest likeliest that have at least top_p together, scaled to one (Holtzman et al., "The Curious Case of
// Neural Text Degeneration", ICLR 2020, section 3.1). Of classes that are as likely the first are taken, here and where
// greedy. DataError for scores that are not finite.
[[nodiscard]] std::vector<double> sampling_distribution(std::span<const double> scores, const SamplingOptions& options);

// The class where the sum of the shares passes `unit`, a number in [0, 1).
[[nodiscard]] int64_t drawn_class(std::span<const double> shares, double unit);

}  // namespace xformer::inspect
