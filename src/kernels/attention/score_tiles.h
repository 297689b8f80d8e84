// Tiles of attention's scores on the CPU: whose they are, and which of them count.
#pragma once

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "kernels/attention/attention.h"
#include "kernels/cpu/valid_rows.h"

namespace xformer::kernels {

struct HeadSizes {
  int64_t b, h, n, m, d, e;
};

[[nodiscard]] inline HeadSizes head_sizes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  XF_ASSERT(q.dim() == 4 && k.dim() == 4 && v.dim() == 4 && k.size(2) == v.size(2) && q.size(3) == k.size(3),
            "attention takes [b,h,n,d], [b,h,m,d] and [b,h,m,e]");
  return {q.size(0), q.size(1), q.size(2), k.size(2), q.size(3), v.size(3)};
}

// So few queries are one block, of which a sample takes what it has of them, in sixteens.
constexpr int64_t kFewQueries = 64;

// Which keys and queries count. Causal queries have the last of the keys' positions.
class AllowedPairs {
 public:
  AllowedPairs(const AttentionOptions& options, const HeadSizes& sizes)
      : causal_(options.mask.causal),
        ahead_(sizes.m - sizes.n),
        keys_(options.mask.key_valid, sizes.m),
        queries_(options.query_valid, sizes.n),
        n_(sizes.n) {}

  // One behind the last key that any row of the sample may see; the same of queries that count.
  [[nodiscard]] int64_t key_end(int64_t b) const { return keys_.end(b); }
  [[nodiscard]] int64_t query_end(int64_t b) const { return queries_.end(b); }
  // One behind the last query that products take: so few lengths of few queries need code.
  [[nodiscard]] int64_t row_end(int64_t b) const {
    return n_ <= kFewQueries ? std::min(n_, (query_end(b) + 15) / 16 * 16) : query_end(b);
  }
  [[nodiscard]] bool query(int64_t b, int64_t i) const { return queries_.at(b, i); }
  // From query i on; nullptr: all count.
  [[nodiscard]] const bool* query_flags(int64_t b, int64_t i) const {
    return queries_.defined() ? queries_.flags(b) + i : nullptr;
  }
  // One behind the last key that rows below `row_end` may see.
  [[nodiscard]] int64_t key_end(int64_t b, int64_t row_end) const {
    return causal_ ? std::clamp<int64_t>(row_end + ahead_, 0, key_end(b)) : key_end(b);
  }

  // Scores of keys first .. first + count - 1, for rows row .. row + rows - 1 that begin `stride` numbers apart, become
  // -infinity where not allowed.
  template <class Value>
  void exclude(Value* scores, int64_t stride, int64_t b, int64_t row, int64_t rows, int64_t first,
               int64_t count) const {
    constexpr Value kNever = -std::numeric_limits<Value>::infinity();
    if (!keys_.all(b, first, first + count)) {
      const bool* const valid = keys_.flags(b) + first;
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t j = 0; j < count; ++j)
          if (!valid[j]) scores[r * stride + j] = kNever;
    }
    const int64_t seen = row + ahead_ + 1 - first;  // of these keys by the first row
    if (!causal_ || count <= seen) return;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = std::max<int64_t>(0, seen + r); j < count; ++j) scores[r * stride + j] = kNever;
  }

 private:
  bool causal_;
  int64_t ahead_;
  ValidRows keys_, queries_;
  int64_t n_;
};

}  // namespace xformer::kernels
