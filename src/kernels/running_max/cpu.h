// Loops of running maxima on the CPU. Those that the compiler vectorises are of a cell of `count` channels.
#pragma once

#include <cstdint>
#include <vector>

namespace xformer::kernels {

// out = the larger of each pair, `own` where they are equal. A NaN is larger than all, and stays.
void larger_of(const float* own, const float* before, int64_t count, float* out);
void larger_of(const double* own, const double* before, int64_t count, double* out);
// out = sums where `own` is the larger, 0 elsewhere; sums = what that leaves, and slope.
void take_slopes(const float* own, const float* before, const float* slope, int64_t count, float* sums, float* out);
void take_slopes(const double* own, const double* before, const double* slope, int64_t count, double* sums,
                 double* out);

// Neighbouring cells of d channels each, `width` numbers in all, and those that maxima run to from there.
struct RunningCells {
  int64_t count, step;  // how many places, and how many numbers they lie apart
  int64_t width, d;     // multiples of 16
  const bool* valid;    // of the first place's cells
  int64_t valid_step;   // from place to place
};

// By AVX-512, where kernels/cpu/lanes_512.h says that the processor has it.
namespace by_512 {
// x and out: of the first place.
void running_max_of(const RunningCells& cells, const float* x, float* out);
void running_max_slopes(const RunningCells& cells, const float* x, const float* slope, std::vector<float>& room,
                        float* out);
}  // namespace by_512

}  // namespace xformer::kernels
