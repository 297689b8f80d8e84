// One row of largest_places (largest_places.h) on the CPU.
#pragma once

#include <cstdint>

namespace xformer::kernels {

// places [k] of the k largest of n numbers, ascending; the first among equals. `room`: twice n numbers and eight.
void largest_of_row(const float* row, int64_t n, int64_t k, uint32_t* room, int64_t* places);
void largest_of_row(const double* row, int64_t n, int64_t k, uint64_t* room, int64_t* places);

}  // namespace xformer::kernels
