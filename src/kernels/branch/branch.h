// A residual connection to a branch that ends in a linear map, and the norm behind it:
//   sum = x + drop(branch),   normed = norm(sum)                                                (residual_norm.h)
// Whoever makes the branch, a linear map or a whole feed-forward part, adds and normalises too, and the branch does not
// go to memory.
#pragma once

#include "kernels/linear/linear.h"
#include "kernels/residual_norm/residual_norm.h"

namespace xformer::kernels {

// What a branch is to be made of.
struct Branch {
  at::Tensor rows = {};    // [.., k]; without maps the branch itself; undefined: there is none
  LinearMap out = {};      // of the rows, or of what `in` makes of them
  LinearMap in = {};       // of the rows: the branch is a feed-forward part's (feed_forward.h)
  bool tanh = false;       // of that part, likewise
  DropoutPlace drop = {};  // inside it
  // Of the rows, [..] bool: those of which somebody reads the branch, the sum or the norm (linear.h, residual_norm.h);
  // undefined: all.
  at::Tensor needed = {};
  // Of the rows, before a part takes them (`in`); where these are the x of add_branch(), that is one operator. What it
  // makes of rows that are not needed is zero.
  NormWeights norm = {};

  [[nodiscard]] bool defined() const { return rows.defined(); }
  [[nodiscard]] at::Tensor made() const;  // [.., m]
  [[nodiscard]] bool normalises() const { return norm.weight.defined(); }
};

// As residual_norm() and residual() of branch.made().
[[nodiscard]] ResidualNorm branch_norm(const at::Tensor& x, const Branch& branch, const DropoutPlace& drop,
                                       const NormWeights& norm);
[[nodiscard]] at::Tensor add_branch(const at::Tensor& x, const Branch& branch, const DropoutPlace& drop);
// Whether add_branch() makes such a branch and adds it in one operator.
[[nodiscard]] bool added_as_made(const at::Tensor& x, const Branch& branch);

}  // namespace xformer::kernels
