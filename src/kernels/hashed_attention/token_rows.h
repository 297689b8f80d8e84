// Rows of tokens in another order, and what hashed attention does to them beside products; all for the CPU. A row has
// `width` numbers and no gap behind it; tokens below zero stand for none.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace xformer::kernels {

// rows[i] = the token's row of `from`, whose rows begin `stride` bytes apart; zero where there is none. Of bytes.
void gather_rows(const void* from, int64_t stride, int64_t width, const int32_t* tokens, int64_t count, void* rows);
void gather_rows(const void* from, int64_t stride, int64_t width, const int64_t* tokens, int64_t count, void* rows);

// into[tokens[i]] = rows[i]
void put_rows_at(const float* rows, int64_t width, const int32_t* tokens, int64_t count, float* into);
void put_rows_at(const double* rows, int64_t width, const int32_t* tokens, int64_t count, double* into);
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

// The place of the largest of x[0] .. x[count - 1], -x[0] .. -x[count - 1], the first of x or -x; 0 where there is no
// number.
int64_t digit_of(const float* x, int64_t count);
int64_t digit_of(const double* x, int64_t count);

namespace by_512 {

// The same, where has_512() (kernels/cpu/lanes_512.h).
int64_t digit_of(const float* x, int64_t count);

// Rows in bf16 where has_bf16_512(), with strides of elements.

// gather_rows(), and those rows times factors[tokens[i]].
void gather_scaled(const c10::BFloat16* from, int64_t stride, int64_t width, const int32_t* tokens, int64_t count,
                   const float* factors, c10::BFloat16* rows, c10::BFloat16* scaled);

// The gradient of queries q whose keys are k = factor q: own + factor (that of k without its part along k); 0 where not
// valid (nullptr: all are). `own` and `keys` lie without gaps.
struct QueryGradients {
  int64_t count, width;
  const c10::BFloat16* q;
  int64_t stride;
  const float *factors, *own, *keys;
  const bool* valid;
};
void store_gradients(const QueryGradients& from, c10::BFloat16* to, int64_t stride);

}  // namespace by_512

}  // namespace xformer::kernels
