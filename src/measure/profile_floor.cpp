#include "measure/profile_floor.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "kernels/cpu/gemm.h"
#include "tensor/device.h"
#include "tensor/device_clock.h"
#include "training/step.h"

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

// The same by the device's clock, of as many runs at once as take a millisecond.
double least_device_seconds(const at::Device& device, const std::function<void()>& work) {
  constexpr double kEnough = 1e-3, kMostRuns = 100, kHeld = 2e-3;
  DeviceClock clock(device);
  const auto seconds_of = [&](int64_t runs) {
    clock.restart();
    hold(device, kHeld);
    const size_t from = clock.mark();
    for (int64_t run = 0; run < runs; ++run) work();
    const size_t to = clock.mark();
    clock.wait();
    return clock.seconds(from, to) / static_cast<double>(runs);
  };
  seconds_of(1);  // warms
  const auto runs = static_cast<int64_t>(std::clamp(kEnough / seconds_of(1), 1.0, kMostRuns));
  return std::min({seconds_of(runs), seconds_of(runs), seconds_of(runs)});
}

double least_seconds(const at::Device& device, const std::function<void()>& work) {
  return device.is_cpu() ? least_seconds(work) : least_device_seconds(device, work);
}

}  // namespace

double alone_seconds(const Product& product, const at::Device& device) {
  const at::NoGradGuard no_grad;
  const auto matrices = [&](int64_t rows, int64_t columns, bool transposed) {
    const auto options = at::TensorOptions(product.type).device(device);
    return transposed ? at::ones({product.batch, columns, rows}, options).transpose(1, 2)
                      : at::ones({product.batch, rows, columns}, options);
  };
  const at::Tensor left = matrices(product.rows, product.inner, product.left_transposed);
  const at::Tensor right = matrices(product.inner, product.columns, product.right_transposed);
  at::Tensor result = matrices(product.rows, product.columns, false);
  if (product.batch > 1) return least_seconds(device, [&] { at::bmm_out(result, left, right); });
  const at::Tensor one_left = left.select(0, 0), one_right = right.select(0, 0);
  at::Tensor one_result = result.select(0, 0);
  return least_seconds(device, [&] { at::mm_out(one_result, one_left, one_right); });
}

double copy_rate(int64_t bytes, const at::Device& device) {
  const int64_t half = std::max<int64_t>(1, bytes / 2), threads = at::get_num_threads();
  const at::Tensor from = at::ones({half}, at::TensorOptions(at::kByte).device(device)), to = at::ones_like(from);
  if (!device.is_cpu()) return static_cast<double>(2 * half) / least_device_seconds(device, [&] { to.copy_(from); });
  const auto* const source = from.const_data_ptr<uint8_t>();
  auto* const target = to.mutable_data_ptr<uint8_t>();
  double least = least_seconds([&] { std::memcpy(target, source, static_cast<size_t>(half)); });
  if (threads > 1) {
    const int64_t part = (half + threads - 1) / threads;
    least = std::min(least, least_seconds([&] {
                       at::parallel_for(0, half, part, [&](int64_t begin, int64_t end) {
                         std::memcpy(target + begin, source + begin, static_cast<size_t>(end - begin));
                       });
                     }));
  }
  return static_cast<double>(2 * half) / least;
}

Peak product_peak(at::ScalarType factors) {
  // Scores and values of attention, maps of a layer, features, and a cube.
  constexpr int64_t kShapes[][3] = {{64, 256, 32},  {64, 32, 256},  {256, 192, 64}, {256, 128, 64},
                                    {256, 64, 128}, {128, 256, 32}, {128, 128, 128}};
  constexpr int64_t kMost = 256 * 192;  // elements of a matrix
  const int64_t threads = at::get_num_threads();
  const at::Tensor operands = at::ones({2, threads, kMost}, factors), results = at::empty({threads, kMost});
  Peak best;
  const auto try_all = [&]<class Value>(const Value* left) {
    for (const auto& [rows, columns, inner] : kShapes) {
      std::vector<double> seconds(static_cast<size_t>(threads));
      kernels::reset_products();
      at::parallel_for(0, threads, 1, [&](int64_t from, int64_t to) {
        for (int64_t thread = from; thread < to; ++thread) {
          const Value *const a = left + thread * kMost, *const b = a + threads * kMost;
          float* const c = results.mutable_data_ptr<float>() + thread * kMost;
          seconds[static_cast<size_t>(thread)] = least_seconds([&] {
            kernels::gemm(rows, columns, inner, 1, {a, inner}, {b, columns}, 0, c, columns);
          });
        }
      });
      double rate = 0;
      for (const double one : seconds) rate += static_cast<double>(2 * rows * columns * inner) / one;
      if (rate > best.rate) best = {rate, rows, columns, inner, kernels::products_run()};
    }
  };
  if (factors == at::kBFloat16) try_all(operands.const_data_ptr<at::BFloat16>());
  else try_all(operands.const_data_ptr<float>());
  kernels::reset_products();
  return best;
}

Peak device_product_peak(const at::Device& device, const std::string& precision) {
  constexpr int64_t kSmallest = 512, kLargest = 8192;
  constexpr double kEnough = 2e-3;  // seconds, by which a product has every multiprocessor at work
  const at::NoGradGuard no_grad;
  training::set_float_products(precision, device);
  const auto options = at::TensorOptions(training::product_type(precision).value_or(at::kFloat)).device(device);
  Peak best;
  double taken = 0;
  for (int64_t size = kSmallest; size <= kLargest && taken < kEnough; size *= 2) {
    // Not ones, with which a device takes less power and keeps a faster clock.
    const at::Tensor left = at::linspace(-1, 1, size * size).view({size, size}).to(options);
    at::Tensor result = at::empty_like(left);
    taken = least_device_seconds(device, [&] { at::mm_out(result, left, left); });
    const double rate = static_cast<double>(2 * size * size * size) / taken;
    if (rate > best.rate) best = {rate, size, size, size, "cublas"};
  }
  return best;
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
