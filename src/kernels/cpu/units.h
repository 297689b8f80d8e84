// Work in units of unequal size over the threads: whoever is free takes the next. Which thread takes which is left to
// chance, so a unit writes what no other writes; sums over units go through a place per unit and are added in order.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>

namespace xformer::kernels {

// Threads that for_units will use, for scratch memory: one piece per worker.
[[nodiscard]] inline int64_t workers_for(int64_t units) {
  return std::max<int64_t>(1, std::min<int64_t>(units, at::get_num_threads()));
}

// Multiply-adds, or elements visited, that are worth waking other threads for.
inline constexpr int64_t kWorthThreads = int64_t{1} << 17;

// work(unit, worker) for every unit in 0 .. units - 1, worker in 0 .. workers_for(units) - 1. `unit_size`:
// multiply-adds or elements of a unit, roughly.
template <class Work>
void for_units(int64_t units, int64_t unit_size, const Work& work) {
  if (units * unit_size < kWorthThreads) {
    for (int64_t unit = 0; unit < units; ++unit) work(unit, int64_t{0});
    return;
  }
  std::atomic<int64_t> next{0};
  at::parallel_for(0, workers_for(units), 1, [&](int64_t from, int64_t to) {
    for (int64_t worker = from; worker < to; ++worker)
      for (int64_t unit = next.fetch_add(1); unit < units; unit = next.fetch_add(1)) work(unit, worker);
  });
}

}  // namespace xformer::kernels
