// The loops of joined_softmax (joined_softmax.h) that the compiler vectorises: a block of rows of one head.
#pragma once

#include <cstdint>

namespace xformer::kernels {

// Rows [count, width] of one part, `stride` elements apart.
template <class Value>
struct PartRows {
  Value* data;
  int64_t stride;
};

// shares [parts, count]: logs of sums -> their softmax over parts. `room`: 2 count numbers.
void shares_of(int64_t parts, int64_t count, float* shares, float* room);
void shares_of(int64_t parts, int64_t count, double* shares, double* room);

// to = the sum over parts of shares times rows.
void join_rows(const PartRows<const float>* from, int64_t parts, int64_t count, int64_t width, const float* shares,
               const PartRows<float>& to);
void join_rows(const PartRows<const double>* from, int64_t parts, int64_t count, int64_t width, const double* shares,
               const PartRows<double>& to);

// From the gradients `slope` of what join_rows made: those of the parts' rows, and in the place of the shares those of
// the logs of sums. shares: [2 parts, count], of which the first half is given; room: count numbers.
void part_rows(const PartRows<const float>& slope, const PartRows<const float>* from, int64_t parts, int64_t count,
               int64_t width, float* shares, const PartRows<float>* to, float* room);
void part_rows(const PartRows<const double>& slope, const PartRows<const double>* from, int64_t parts, int64_t count,
               int64_t width, double* shares, const PartRows<double>* to, double* room);

}  // namespace xformer::kernels
