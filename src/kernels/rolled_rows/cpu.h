// Loops of rolled rows that the compiler vectorises.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace xformer::kernels {

// One sample: n rows of `columns` numbers, `links` steps from 0 to n - 1, and which rows count (nullptr: all).
struct RolledLinks {
  int64_t n, columns, links;
  const int64_t* steps;
  const bool* valid;
  bool residual;
  int64_t* there;  // room for the rows that a row's links lead to
};

// Of the rows first .. last - 1, side by side from `out` on:
// out row i = sum over p of w[i,p] v row i + step p (+ v row i).
void mix_rolled(const RolledLinks& of, const float* v, const float* w, int64_t first, int64_t last, float* out);
void mix_rolled(const RolledLinks& of, const double* v, const double* w, int64_t first, int64_t last, double* out);
void mix_rolled(const RolledLinks& of, const c10::BFloat16* v, const c10::BFloat16* w, int64_t first, int64_t last,
                float* out);
// Its transpose: out row j = sum over p of w[i,p] slope row i for the i whose step p leads to j (+ slope row j).
// `steps` are the ways back, n - step.
void spread_rolled(const RolledLinks& of, const float* slope, const float* w, int64_t first, int64_t last, float* out);
void spread_rolled(const RolledLinks& of, const double* slope, const double* w, int64_t first, int64_t last,
                   double* out);
void spread_rolled(const RolledLinks& of, const c10::BFloat16* slope, const c10::BFloat16* w, int64_t first,
                   int64_t last, float* out);
// out[i,p] = slope row i . v row i + step p.
void weight_slopes(const RolledLinks& of, const float* slope, const float* v, int64_t first, int64_t last, float* out);
void weight_slopes(const RolledLinks& of, const double* slope, const double* v, int64_t first, int64_t last,
                   double* out);
void weight_slopes(const RolledLinks& of, const c10::BFloat16* slope, const c10::BFloat16* v, int64_t first,
                   int64_t last, float* out);

}  // namespace xformer::kernels
