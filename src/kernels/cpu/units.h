// Work in units of unequal size over the threads: whoever is free takes some of the rest, neighbours, for what lies
// side by side in memory is best read by one; at first many, at last one by one, so that all end together. Which thread
// takes which is left to chance, so a unit writes what no other writes; sums over units go through a place per unit and
// are added in order.
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
  const int64_t workers = workers_for(units);
  std::atomic<int64_t> next{0};
  at::parallel_for(0, workers, 1, [&](int64_t from, int64_t to) {
    for (int64_t worker = from; worker < to; ++worker)
      for (int64_t first = next.load(); first < units;) {
        const int64_t count = std::max<int64_t>(1, (units - first) / (4 * workers));
        if (!next.compare_exchange_weak(first, first + count)) continue;  // `first` is what it is now
        for (int64_t unit = first; unit < first + count; ++unit) work(unit, worker);
        first = next.load();
      }
  });
}

}  // namespace xformer::kernels
