// A [b, n] mask of tokens as CPU kernels read it: most masks are prefixes, whose rest is skipped.
#pragma once

#include <ATen/Functions.h>
#include <torch/types.h>

#include <algorithm>

namespace xformer::kernels {

class ValidRows {
 public:
  // Undefined: all n rows are valid.
  ValidRows(const at::Tensor& valid, int64_t n)
      : n_(n),
        valid_(valid.defined() ? valid.contiguous() : valid),
        flags_(valid_.defined() ? valid_.const_data_ptr<bool>() : nullptr) {}

  // One behind the last valid row of sample b.
  [[nodiscard]] int64_t end(int64_t b) const {
    if (!defined()) return n_;
    const bool* const row = flags(b);
    int64_t end = n_;
    while (end > 0 && !row[end - 1]) --end;
    return end;
  }
  [[nodiscard]] bool at(int64_t b, int64_t i) const { return !defined() || flags(b)[i]; }
  // Whether all rows from .. to - 1 are valid.
  [[nodiscard]] bool all(int64_t b, int64_t from, int64_t to) const {
    return !defined() || std::all_of(flags(b) + from, flags(b) + to, [](bool one) { return one; });
  }
  // Flags of rows 0 .. n - 1; only where a mask is defined.
  [[nodiscard]] const bool* flags(int64_t b) const { return flags_ + b * n_; }
  [[nodiscard]] bool defined() const { return flags_ != nullptr; }

 private:
  int64_t n_;
  at::Tensor valid_;
  const bool* flags_;  // of valid_; asked of the tensor once, not for each row
};

}  // namespace xformer::kernels
