#include "core/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace xformer {
namespace {

constexpr int64_t kMostThreads = 256;

}  // namespace

void for_each_piece(size_t count, int64_t threads, const std::function<void(size_t piece)>& piece) {
  const auto machine = static_cast<int64_t>(std::thread::hardware_concurrency());
  threads = std::clamp<int64_t>(threads > 0 ? threads : machine, 1, kMostThreads);
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      for (size_t i = next++; i < count; i = next++) piece(i);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::thread> helpers;
  try {
    for (int64_t i = 1; i < threads; ++i) helpers.emplace_back(work);
  } catch (const std::system_error&) {
    // The machine allows no more threads: those there are do the work.
  }
  work();
  for (std::thread& helper : helpers) helper.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace xformer
