// The largest of a row of scores (top_keys.h). No LibTorch here.
#pragma once

#include <cstdint>
#include <vector>

namespace xformer::kernels {

// A row is of whole multiples of 32 scores, -infinity of closed keys. How many are not closed:
int64_t open_scores(const float* row, int64_t count);
int64_t open_scores(const double* row, int64_t count);

// places = those of the scores that reach the k-th largest, ascending; returns how many. `room` is for as many numbers,
// `places` for as many places, as the row has and 16 more. Fewer than k that are open: all of these.
int64_t top_of_row(const float* row, int64_t count, int64_t k, float* room, int32_t* places);
int64_t top_of_row(const double* row, int64_t count, int64_t k, double* room, int32_t* places);

// What both take of float: the scores that are not below `bound`, nor closed, with their places, by each instruction
// set that there is one for, the widest first.
using ReachingScores = int64_t(const float* row, int64_t count, float bound, float* room, int32_t* places);
[[nodiscard]] std::vector<ReachingScores*> ways_to_reach();
namespace by_512 {
ReachingScores reaching_scores;
}

}  // namespace xformer::kernels
