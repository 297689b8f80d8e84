// Rows of a tile of weights over windows: as those of kernels/attention/cpu.h, but short ones, whose length is a
// multiple of kRowStep, so that no rest is left for loops that do not vectorise.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/vectorised.h"

namespace xformer::kernels {

constexpr int64_t kRowStep = kSumLanes;

// What a row of scores became: its largest number and the sum of exp(score - shift), before dropout. `shift` is the
// largest number, or 0 where all are -infinity.
template <class Value>
struct RowSum {
  Value shift, sum;
};

// scores -> drop(exp(score - shift)). `draws`: 16 bits an element, or nullptr without dropout; an element whose draw is
// below `threshold` is dropped, the others are multiplied by `keep`.
RowSum<float> weigh_row(float* scores, int64_t count, const uint16_t* draws, uint32_t threshold, float keep);
RowSum<double> weigh_row(double* scores, int64_t count, const uint16_t* draws, uint32_t threshold, double keep);
// That of float by each instruction set that there are two of them for, the widest first, which is the one above.
using WeighRow = RowSum<float>(float* scores, int64_t count, const uint16_t* draws, uint32_t threshold, float keep);
[[nodiscard]] std::vector<WeighRow*> ways_to_weigh_rows();
namespace by_512 {
WeighRow weigh_row;
}

// to[i] += of[i]; any count.
void add_row(float* to, const float* of, int64_t count);
void add_row(double* to, const double* of, int64_t count);

}  // namespace xformer::kernels
