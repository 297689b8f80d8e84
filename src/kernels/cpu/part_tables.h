// Sums over all rows on the CPU: every part of the rows (row_parts.h) has a table of its own, and these are added in
// order.
#pragma once

#include <ATen/Functions.h>

#include <algorithm>

#include "kernels/cpu/row_parts.h"

namespace xformer::kernels {

class PartTables {
 public:
  PartTables(const RowParts& rows, int64_t width, const at::TensorOptions& options)
      : tables_(at::empty({rows.parts, width}, options)) {}

  [[nodiscard]] int64_t width() const { return tables_.size(1); }
  // A part's table, zero: whoever sums into it zeroes it, and finds it in the cache.
  template <class Value>
  [[nodiscard]] Value* begin(int64_t part) const {
    Value* const own = tables_.mutable_data_ptr<Value>() + part * width();
    std::fill_n(own, width(), Value(0));
    return own;
  }
  // [width], of all parts, each of which was begun.
  [[nodiscard]] at::Tensor sum() const { return tables_.size(0) == 1 ? tables_.select(0, 0) : tables_.sum(0); }

 private:
  at::Tensor tables_;
};

}  // namespace xformer::kernels
