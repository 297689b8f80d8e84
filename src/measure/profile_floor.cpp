#include "measure/profile_floor.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>
#include <vector>

#include "kernels/cpu/gemm.h"

namespace xformer::measure {

namespace {

double clock_seconds(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The least of at least three runs after one that warms, and of those that fit into 50 ms.
double least_seconds(const std::function<void()>& work) {
  constexpr int kLeastRuns = 3, kMostRuns = 1000;
  constexpr double kEnough = 0.05;
  work();
  double least = std::numeric_limits<double>::infinity(), sum = 0;
  for (int run = 0; run < kLeastRuns || (run < kMostRuns && sum < kEnough); ++run) {
    const double start = clock_seconds(CLOCK_MONOTONIC);
    work();
    const double seconds = clock_seconds(CLOCK_MONOTONIC) - start;
    least = std::min(least, seconds);
    sum += seconds;
  }
  return least;
}

}  // namespace

double alone_seconds(const Product& product) {
  const at::NoGradGuard no_grad;
  const auto matrices = [&](int64_t rows, int64_t columns, bool transposed) {
    const auto options = at::TensorOptions(product.type);
    return transposed ? at::ones({product.batch, columns, rows}, options).transpose(1, 2)
                      : at::ones({product.batch, rows, columns}, options);
  };
  const at::Tensor left = matrices(product.rows, product.inner, product.left_transposed);
  const at::Tensor right = matrices(product.inner, product.columns, product.right_transposed);
  at::Tensor result = matrices(product.rows, product.columns, false);
  if (product.batch > 1) return least_seconds([&] { at::bmm_out(result, left, right); });
  const at::Tensor one_left = left.select(0, 0), one_right = right.select(0, 0);
  at::Tensor one_result = result.select(0, 0);
  return least_seconds([&] { at::mm_out(one_result, one_left, one_right); });
}

double in_cache_rate() {
  constexpr int64_t n = kCacheSize;
  const int64_t threads = at::get_num_threads();
  const at::Tensor operands = at::ones({threads, 3, n, n}, at::kFloat);
  float* const first = operands.mutable_data_ptr<float>();
  std::vector<double> seconds(static_cast<size_t>(threads));
  at::parallel_for(0, threads, 1, [&](int64_t from, int64_t to) {
    for (int64_t thread = from; thread < to; ++thread) {
      float* const a = first + thread * 3 * n * n;
      seconds[static_cast<size_t>(thread)] = least_seconds([&] {
        kernels::gemm(n, n, n, 1, {a, n}, {a + n * n, n}, 0, a + 2 * n * n, n);
      });
    }
  });
  double rate = 0;
  for (const double one : seconds) rate += static_cast<double>(2 * n * n * n) / one;
  return rate;
}

ProcessorSeconds processor_seconds(const std::function<void()>& work) {
  const double own = clock_seconds(CLOCK_THREAD_CPUTIME_ID), all = clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
  work();
  const double own_after = clock_seconds(CLOCK_THREAD_CPUTIME_ID), all_after = clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
  return {own_after - own, std::max(0.0, all_after - all - (own_after - own))};
}

double spin_seconds() {
  const int64_t threads = at::get_num_threads();
  if (threads == 1) return 0;
  constexpr int kTries = 5, kRegions = 4;
  const auto region = [&] { at::parallel_for(0, threads, 1, [](int64_t, int64_t) {}); };
  region();  // the threads are there from now on
  // The least of some tries: spinning is in each of them, what else the machine did to a woken thread is not.
  double least = std::numeric_limits<double>::infinity();
  for (int t = 0; t < kTries; ++t) {
    const double spun = processor_seconds([&] {
                          for (int i = 0; i < kRegions; ++i) {
                            region();
                            std::this_thread::sleep_for(std::chrono::milliseconds(10));
                          }
                        }).others;
    least = std::min(least, spun / static_cast<double>(kRegions * (threads - 1)));
  }
  return least;
}

}  // namespace xformer::measure
