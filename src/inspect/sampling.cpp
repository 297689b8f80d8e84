#include "inspect/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"

namespace xformer::inspect {

namespace {

// Zero for all but the first `count` in order; those are scaled to one.
void keep_first(std::vector<double>& shares, std::span<const size_t> order, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < order.size(); ++i) sum += i < count ? shares[order[i]] : 0;
  for (size_t i = 0; i < order.size(); ++i) shares[order[i]] = i < count ? shares[order[i]] / sum : 0;
}

}  // namespace

std::vector<double> sampling_distribution(std::span<const double> scores, const SamplingOptions& options) {
  for (const double score : scores)
    XF_CHECK(std::isfinite(score), DataError,
             "the model's scores are not finite: its weights are damaged, or its training diverged");
  std::vector<size_t> order(scores.size());  // likeliest first
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  std::vector<double> shares(scores.size());
  for (size_t i = 0; i < scores.size(); ++i)
    shares[i] = std::exp((scores[i] - scores[order.front()]) / options.temperature);
  size_t count = options.greedy      ? 1
                 : options.top_k > 0 ? std::min(scores.size(), static_cast<size_t>(options.top_k))
                                     : scores.size();
  keep_first(shares, order, count);
  if (options.top_p < 1) {
    double sum = 0;
    size_t needed = 0;
    while (needed < count && sum < options.top_p) sum += shares[order[needed++]];
    keep_first(shares, order, needed);
  }
  return shares;
}

int64_t drawn_class(std::span<const double> shares, double unit) {
  double sum = 0;
  size_t last = 0;  // of those that can be drawn: rounding may leave the sum of all below the unit
  for (size_t i = 0; i < shares.size(); ++i) {
    if (shares[i] == 0) continue;
    last = i;
    sum += shares[i];
    if (unit < sum) break;
  }
  return static_cast<int64_t>(last);
}

}  // namespace xformer::inspect
