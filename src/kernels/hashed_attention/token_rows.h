// Rows of tokens in another order, and what hashed attention does to them beside products; all for the CPU. A row has
// `width` numbers and no gap behind it; tokens below zero stand for none.
#pragma once

#include <cstdint>

namespace xformer::kernels {

// rows[i] = the token's row of `from`, whose rows begin `stride` bytes apart; zero where there is none. Of bytes.
void gather_rows(const void* from, int64_t stride, int64_t width, const int32_t* tokens, int64_t count, void* rows);

// into[tokens[i]] += rows[i]
void add_rows_at(const float* rows, int64_t width, const int32_t* tokens, int64_t count, float* into);
void add_rows_at(const double* rows, int64_t width, const int32_t* tokens, int64_t count, double* into);

// to[i] = factors[tokens[i]] rows[i]; zero where there is none.
void scale_rows(const float* rows, int64_t width, const int32_t* tokens, int64_t count, const float* factors,
                float* to);
void scale_rows(const double* rows, int64_t width, const int32_t* tokens, int64_t count, const double* factors,
                double* to);

// into = old into + now row
void mix_row(float* into, const float* row, int64_t width, float old, float now);
void mix_row(double* into, const double* row, int64_t width, double old, double now);

// The place among x[0] .. x[count - 1] of the first number whose size is the largest; 0 where there is no number.
int64_t largest_size(const float* x, int64_t count);
int64_t largest_size(const double* x, int64_t count);

}  // namespace xformer::kernels
