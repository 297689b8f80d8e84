// The CPU's two passes of attention over listed keys (listed_attention.h), for float and double.
#pragma once

#include "kernels/listed_attention/listed_attention.h"

namespace xformer::kernels {

struct ListedAttentionForward {
  at::Tensor out;      // [b,h,n,e], memory [b,n,h,e]
  at::Tensor log_sum;  // [b,h,n]; infinity for rows without a key and for rows that are not valid
};

[[nodiscard]] ListedAttentionForward listed_attention_forward_cpu(const at::Tensor& q, const at::Tensor& k,
                                                                  const at::Tensor& v, const at::Tensor& bias,
                                                                  const ListedAttentionOptions& options);

struct ListedAttentionGradients {
  at::Tensor q, k, v, bias;  // the last one undefined without a bias
};

[[nodiscard]] ListedAttentionGradients listed_attention_backward_cpu(const at::Tensor& gradient, const at::Tensor& q,
                                                                     const at::Tensor& k, const at::Tensor& v,
                                                                     const at::Tensor& bias,
                                                                     const ListedAttentionForward& forward,
                                                                     const ListedAttentionOptions& options);

// A row x [width] against the rows of a table that `places` [count] name, which are `stride` apart.

// What `products` and the weights of rows have room for behind the last of `count`: to a multiple of kListedLanes.
inline constexpr int64_t kListedLanes = 16;

// products[l] = factor x . table[places[l]] for places of at least 0, and `none` for the others and for those from
// count up to the next multiple of kListedLanes. The table has a row, at least.
void listed_products(const float* x, const float* table, int64_t stride, const int64_t* places, int64_t count,
                     int64_t width, float factor, float none, float* products);
void listed_products(const double* x, const double* table, int64_t stride, const int64_t* places, int64_t count,
                     int64_t width, double factor, double none, double* products);
// x += factor sum over l of weights[l] table[places[l]]
void add_listed(float* x, const float* table, int64_t stride, const int64_t* places, int64_t count, int64_t width,
                float factor, const float* weights);
void add_listed(double* x, const double* table, int64_t stride, const int64_t* places, int64_t count, int64_t width,
                double factor, const double* weights);
// table[places[l]] += factor weights[l] x
void add_to_listed(const float* x, float* table, int64_t stride, const int64_t* places, int64_t count, int64_t width,
                   float factor, const float* weights);
void add_to_listed(const double* x, double* table, int64_t stride, const int64_t* places, int64_t count, int64_t width,
                   double factor, const double* weights);

}  // namespace xformer::kernels
