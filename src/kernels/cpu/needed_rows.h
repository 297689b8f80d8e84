// Rows of a batch that somebody reads (needed.h), as a CPU's kernels take them: they work on tiles with such a row.
#pragma once

#include <torch/types.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/stream.h"
#include "kernels/needed.h"

namespace xformer::kernels {

// Of the rows that a kernel works on at once.
enum class Needed { kAll, kSome, kNone };

class NeededRows {
 public:
  // `needed`: bool, one for each of the rows; undefined: all are.
  NeededRows(const at::Tensor& needed, int64_t rows)
      : needed_(needed.defined() ? needed.contiguous() : needed),
        flags_(needed_.defined() ? needed_.const_data_ptr<bool>() : nullptr) {
    XF_ASSERT(!needed_.defined() || needed_.numel() == rows, "{} rows, of which {} are said to be needed or not", rows,
              needed_.numel());
  }

  [[nodiscard]] Needed of(int64_t first, int64_t count) const {
    if (flags_ == nullptr) return Needed::kAll;
    const bool* const from = flags_ + first;
    if (std::find(from, from + count, !from[0]) != from + count) return Needed::kSome;
    return from[0] ? Needed::kAll : Needed::kNone;
  }

  // work(first, count, which) for the rows' tiles in order, neighbours of one kind together: products see few numbers
  // of rows.
  template <class Work>
  void for_runs(int64_t first, int64_t count, const Work& work) const {
    if (flags_ == nullptr) return work(first, count, Needed::kAll);
    const int64_t end = first + count;
    for (int64_t begin = first; begin < end;) {
      int64_t to = std::min(begin + kTile, end);
      const Needed kind = of(begin, to - begin);
      for (; to < end; to = std::min(to + kTile, end))
        if (of(to, std::min(kTile, end - to)) != kind) break;
      work(begin, to - begin, kind);
      begin = to;
    }
  }

  // Zeros in rows [count, width] from `first` on that are not needed, neighbours at once; past the caches if none is.
  template <class Stored>
  void clear(int64_t first, int64_t count, int64_t width, Stored* rows) const {
    for (int64_t i = 0, end = 0; i < count; i = end) {
      const bool* const from = flags_ + first;
      end = std::find(from + i, from + count, !from[i]) - from;
      if (from[i]) continue;
      const auto bytes = static_cast<size_t>((end - i) * width) * sizeof(Stored);
      if (end - i == count) stream_zeros(rows, bytes);
      else std::memset(static_cast<void*>(rows + i * width), 0, bytes);
    }
  }

  // The rows where they lie if all are needed, or a copy in `room` with zeros in the others.
  template <class Stored>
  [[nodiscard]] const Stored* only(Needed which, int64_t first, int64_t count, int64_t width, const Stored* rows,
                                   std::vector<Stored>& room) const {
    if (which == Needed::kAll) return rows;
    Stored* const to = grown(room, count * width);
    std::copy_n(rows, count * width, to);
    clear(first, count, width, to);
    return to;
  }

 private:
  static constexpr int64_t kTile = 64;
  at::Tensor needed_;
  const bool* flags_;  // of needed_
};

}  // namespace xformer::kernels
