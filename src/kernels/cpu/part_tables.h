// Sums over all rows on the CPU: every part of the rows (row_parts.h) has a table of its own, and these are added in
// order.
#pragma once

#include <ATen/Functions.h>

#include <algorithm>

#include "kernels/cpu/row_parts.h"

namespace xformer::kernels {

// Tables [parts, ..] of float or double -> [..], added in order, without gaps.
[[nodiscard]] at::Tensor sum_of_tables(const at::Tensor& tables);

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
  [[nodiscard]] at::Tensor sum() const { return sum_of_tables(tables_); }

 private:
  at::Tensor tables_;
};

}  // namespace xformer::kernels
