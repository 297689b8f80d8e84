// The caching allocator: exact counts, size classes, blocks kept for the life of the process.
#include "tensor/memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/text.h"

namespace xformer {

namespace {

constexpr size_t kAlignment = 64;                // bytes: a cache line, the widest vector
constexpr size_t kMappedSize = size_t{1} << 20;  // from here on blocks are mapped from the kernel
constexpr size_t kHugePage = size_t{1} << 21;    // of x86-64 and most others
constexpr size_t kHugeSize = 4 * kHugePage;      // from here on blocks ask for huge pages
constexpr size_t kLargest = size_t{1} << 56;     // more bytes than any address space has
constexpr uint8_t kPriority = 100;               // above LibTorch's own (0)

// The capacity for a request: multiples of 64 bytes up to 1 KiB, then eight sizes for each doubling, so that
// at most an eighth of a block is padding.
size_t class_size(size_t bytes) {
  const size_t unit = std::max(kAlignment, std::bit_ceil(bytes) / 16);
  return (bytes + unit - 1) / unit * unit;
}

void* map_block(size_t capacity) {
  // Huge pages need their alignment: map more and give the margins back.
  const size_t margin = capacity >= kHugeSize ? kHugePage : 0;
  void* mapped = mmap(nullptr, capacity + margin, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  if (margin == 0) return mapped;
  char* begin = static_cast<char*>(mapped);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t used = (capacity + page - 1) / page * page;
  if (before > 0) munmap(begin, before);
  if (capacity + margin > before + used) munmap(begin + before + used, capacity + margin - before - used);
  // A wish: without it the block works with small pages.
  (void)madvise(begin + before, used, MADV_HUGEPAGE);
  return begin + before;
}

void* take_from_system(size_t capacity) {
  return capacity >= kMappedSize ? map_block(capacity) : std::aligned_alloc(kAlignment, capacity);
}

void give_to_system(void* data, size_t capacity) {
  if (capacity >= kMappedSize) {
    munmap(data, capacity);
  } else {
    std::free(data);
  }
}

class CachingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* data = bytes == 0 ? nullptr : take(bytes);
    return {data, data, &give_back, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }

  void copy_data(void* target, const void* source, size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }

  MemoryUse use() {
    const std::lock_guard lock(mutex_);
    return use_;
  }

  void reset_peak() {
    const std::lock_guard lock(mutex_);
    use_.peak_bytes = use_.live_bytes;
  }

  void release() {
    const std::lock_guard lock(mutex_);
    release_locked();
  }

 private:
  struct Block {
    size_t capacity = 0;
    size_t requested = 0;  // 0 while the block is free
  };

  static void give_back(void* data);

  [[noreturn]] void refuse(size_t bytes) const {
    C10_THROW_ERROR(OutOfMemoryError,
                    fmt::format("{} of host memory asked for, {} in use by tensors", format_bytes(bytes),
                                format_bytes(static_cast<uint64_t>(use_.live_bytes))));
  }

  void* take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (bytes > kLargest) refuse(bytes);
    const size_t capacity = class_size(bytes);
    std::vector<void*>& free_blocks = free_[capacity];
    void* data = nullptr;
    if (free_blocks.empty()) {
      data = take_from_system(capacity);
      if (data == nullptr) {
        release_locked();
        data = take_from_system(capacity);
      }
      if (data == nullptr) refuse(bytes);
      blocks_[data].capacity = capacity;
      use_.reserved_bytes += static_cast<int64_t>(capacity);
      ++use_.system_requests;
    } else {
      // The one freed last is the likeliest to be in a cache.
      data = free_blocks.back();
      free_blocks.pop_back();
    }
    blocks_[data].requested = bytes;
    use_.live_bytes += static_cast<int64_t>(bytes);
    use_.peak_bytes = std::max(use_.peak_bytes, use_.live_bytes);
    return data;
  }

  void put(void* data) {
    const std::lock_guard lock(mutex_);
    Block& block = blocks_.at(data);
    use_.live_bytes -= static_cast<int64_t>(block.requested);
    block.requested = 0;
    free_[block.capacity].push_back(data);
  }

  void release_locked() {
    for (auto& [capacity, free_blocks] : free_) {
      for (void* data : free_blocks) {
        give_to_system(data, capacity);
        blocks_.erase(data);
        use_.reserved_bytes -= static_cast<int64_t>(capacity);
      }
      free_blocks.clear();
    }
  }

  std::mutex mutex_;
  std::unordered_map<void*, Block> blocks_;              // all, used or free
  std::unordered_map<size_t, std::vector<void*>> free_;  // by capacity
  MemoryUse use_;
};

// Never destroyed: tensors in static objects may outlive everything else.
CachingAllocator& allocator() {
  static auto* const kAllocator = new CachingAllocator();
  return *kAllocator;
}

void CachingAllocator::give_back(void* data) {
  if (data != nullptr) allocator().put(data);
}

rusage process_usage() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage;
}

}  // namespace

void install_caching_allocator() {
  static const bool kInstalled = [] {
    c10::SetCPUAllocator(&allocator(), kPriority);
    // What kernels compute in comes from malloc(), which is to keep it from one call to the next as well.
    constexpr int kLargestKept = 32 << 20, kMostKept = 256 << 20;  // bytes; the first is all that glibc takes
    mallopt(M_MMAP_THRESHOLD, kLargestKept);
    mallopt(M_TRIM_THRESHOLD, kMostKept);
    return true;
  }();
  (void)kInstalled;
}

MemoryUse host_memory() { return allocator().use(); }

void reset_host_peak() { allocator().reset_peak(); }

void release_cached_memory() {
  allocator().release();
  malloc_trim(0);
}

int64_t peak_process_bytes() { return int64_t{process_usage().ru_maxrss} * 1024; }

int64_t page_faults() { return process_usage().ru_minflt; }

}  // namespace xformer
