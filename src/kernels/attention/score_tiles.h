// Tiles of attention's scores on the CPU: whose they are, which of them count, and what dropout draws for them.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "core/error.h"
#include "kernels/attention/attention.h"
#include "kernels/cpu/valid_rows.h"
#include "kernels/dropout/cpu.h"
#include "kernels/dropout/numbers.h"

namespace xformer::kernels {

struct HeadSizes {
  int64_t b, h, n, m, d, e;
};

[[nodiscard]] inline HeadSizes head_sizes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  XF_ASSERT(q.dim() == 4 && k.dim() == 4 && v.dim() == 4 && k.size(2) == v.size(2) && q.size(3) == k.size(3),
            "attention takes [b,h,n,d], [b,h,m,d] and [b,h,m,e]");
  return {q.size(0), q.size(1), q.size(2), k.size(2), q.size(3), v.size(3)};
}

// Which keys and queries count. Causal queries have the last of the keys' positions.
class AllowedPairs {
 public:
  AllowedPairs(const AttentionOptions& options, const HeadSizes& sizes)
      : causal_(options.mask.causal),
        ahead_(sizes.m - sizes.n),
        keys_(options.mask.key_valid, sizes.m),
        queries_(options.query_valid, sizes.n) {}

  // One behind the last key that any row of the sample may see; the same of queries that count.
  [[nodiscard]] int64_t key_end(int64_t b) const { return keys_.end(b); }
  [[nodiscard]] int64_t query_end(int64_t b) const { return queries_.end(b); }
  [[nodiscard]] bool query(int64_t b, int64_t i) const { return queries_.at(b, i); }
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
};

// The draws of a tile of weights, which lie in memory as if all [b,h,n,m] of them did.
class WeightDraws {
 public:
  WeightDraws(const DropoutPlace& place, const HeadSizes& sizes)
      : threshold_(dropout_threshold(place.p)), h_(sizes.h), n_(sizes.n), m_(sizes.m) {
    if (threshold_ == 0) return;
    XF_ASSERT(place.state.device().is_cpu() && place.state.is_contiguous(), "dropout's state is in host memory");
    const int64_t* numbers = place.state.const_data_ptr<int64_t>();
    key_ = static_cast<uint64_t>(numbers[0]);
    high_ = dropout_counter_high(numbers[1], place.site);
    first_row_ = numbers[2];
  }

  [[nodiscard]] bool any() const { return threshold_ > 0; }
  [[nodiscard]] uint32_t threshold() const { return threshold_; }
  [[nodiscard]] double keep() const { return dropout_scale(threshold_); }
  // Room for the draws of so many rows and keys.
  [[nodiscard]] size_t room(int64_t rows, int64_t count) const {
    return any() ? static_cast<size_t>(rows * (count + 2 * kElementsPerBlock)) : 0;
  }

  // Draws of rows `row` .. and keys `first` ..; afterwards row r's stand at starts[r].
  void draw(int64_t b, int64_t h, int64_t row, int64_t rows, int64_t first, int64_t count,
            std::vector<uint16_t>& memory, std::vector<const uint16_t*>& starts) const {
    if (!any()) {
      std::fill(starts.begin(), starts.end(), nullptr);
      return;
    }
    const int64_t line = (count + 2 * kElementsPerBlock) / kElementsPerBlock * kElementsPerBlock;
    const bool whole = count == m_;  // rows follow each other without a gap
    for (int64_t r = 0; r < rows; r += whole ? rows : 1) {
      const int64_t element = (((first_row_ + b) * h_ + h) * n_ + row + r) * m_ + first;
      const int64_t skip = element % kElementsPerBlock, wanted = whole ? rows * count : count;
      uint16_t* const into = memory.data() + r * line;
      draw_blocks(key_, high_, static_cast<uint64_t>(element / kElementsPerBlock),
                  (skip + wanted + kElementsPerBlock - 1) / kElementsPerBlock, into);
      if (whole)
        for (int64_t i = 0; i < rows; ++i) starts[static_cast<size_t>(i)] = into + skip + i * count;
      else starts[static_cast<size_t>(r)] = into + skip;
    }
  }

 private:
  uint32_t threshold_;
  int64_t h_, n_, m_, first_row_ = 0;
  uint64_t key_ = 0, high_ = 0;
};

}  // namespace xformer::kernels
