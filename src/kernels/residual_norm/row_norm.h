// The norm of a row that a few neighbouring lanes hold in registers, kRun neighbouring elements in each of kPacks runs.
#pragma once

#include <cmath>

#include "kernels/device/thread.h"

namespace xformer::kernels {

template <class Math>
struct RowStatistics {
  Math mean, rstd;
};

// count_of(pack): elements of the lane's run that there are.
template <int kPacks, class Thread, class Math, class CountOf>
XFORMER_DEVICE RowStatistics<Math> row_statistics(const Thread& thread, const Math (&row)[kPacks][kRun], int lanes,
                                                  Math width, Math epsilon, const CountOf& count_of) {
  Math total = 0, squares = 0;
  XFORMER_UNROLL
  for (int pack = 0; pack < kPacks; ++pack) {
    const int count = count_of(pack);
    XFORMER_UNROLL
    for (int k = 0; k < kRun; ++k) total += k < count ? row[pack][k] : Math(0);
  }
  const Math mean = lane_sum(thread, total, 1, lanes) / width;
  XFORMER_UNROLL
  for (int pack = 0; pack < kPacks; ++pack) {
    const int count = count_of(pack);
    XFORMER_UNROLL
    for (int k = 0; k < kRun; ++k) squares += k < count ? (row[pack][k] - mean) * (row[pack][k] - mean) : Math(0);
  }
  return {mean, 1 / std::sqrt(lane_sum(thread, squares, 1, lanes) / width + epsilon)};
}

// A run becomes its normed values; weight and bias are those of its first column.
template <class Thread, class Math>
XFORMER_DEVICE void norm_run(const Thread& thread, const RowStatistics<Math>& of, const Math* weight, const Math* bias,
                             int count, bool wide, Math (&run)[kRun]) {
  Math more[kRun];
  load_run(thread, weight, count, wide, more);
  XFORMER_UNROLL
  for (int k = 0; k < kRun; ++k) run[k] = (run[k] - of.mean) * of.rstd * more[k];
  load_run(thread, bias, count, wide, more);
  XFORMER_UNROLL
  for (int k = 0; k < kRun; ++k) run[k] += more[k];
}

}  // namespace xformer::kernels
