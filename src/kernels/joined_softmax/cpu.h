// The loops of joined_softmax (joined_softmax.h) that the compiler vectorises: a block of rows of one head.
#pragma once

#include <cstdint>

#include "kernels/cpu/stored.h"

namespace xformer::kernels {

// shares [parts, count]: logs of sums -> their softmax over parts. `room`: 2 count numbers.
void shares_of(int64_t parts, int64_t count, float* shares, float* room);
void shares_of(int64_t parts, int64_t count, double* shares, double* room);

// to = the sum over parts of shares times rows.
void join_rows(const TileRows<const float>* from, int64_t parts, int64_t count, int64_t width, const float* shares,
               const TileRows<float>& to);
void join_rows(const TileRows<const double>* from, int64_t parts, int64_t count, int64_t width, const double* shares,
               const TileRows<double>& to);

// From the gradients `slope` of what join_rows made: those of the parts' rows, and in the place of the shares those of
// the logs of sums. shares: [2 parts, count], of which the first half is given; room: count numbers.
void part_rows(const TileRows<const float>& slope, const TileRows<const float>* from, int64_t parts, int64_t count,
               int64_t width, float* shares, const TileRows<float>* to, float* room);
void part_rows(const TileRows<const double>& slope, const TileRows<const double>* from, int64_t parts, int64_t count,
               int64_t width, double* shares, const TileRows<double>* to, double* room);

}  // namespace xformer::kernels
