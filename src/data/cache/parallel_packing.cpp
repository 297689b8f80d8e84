#include "data/cache/parallel_packing.h"

#include <algorithm>

#include "core/parallel.h"

namespace xformer::data {

void add_in_order(int64_t total, const std::function<std::optional<MadeExample>(int64_t index)>& make,
                  const AddExample& add, std::string_view what, const ProgressCallback& progress) {
  constexpr int64_t kAtOnce = 512;
  std::vector<std::optional<MadeExample>> chunk;
  for (int64_t first = 0; first < total; first += static_cast<int64_t>(chunk.size())) {
    chunk.resize(static_cast<size_t>(std::min(kAtOnce, total - first)));
    for_each_piece(chunk.size(), 0, [&](size_t i) { chunk[i] = make(first + static_cast<int64_t>(i)); });
    for (const auto& made : chunk)
      if (made) add(made->split, {{made->ids}, {}, made->label});
    if (progress) progress(what, static_cast<uint64_t>(first) + chunk.size(), static_cast<uint64_t>(total));
  }
}

}  // namespace xformer::data
