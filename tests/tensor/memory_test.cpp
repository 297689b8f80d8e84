// The caching allocator: exact counts, reuse, threads, giving back.
#include "tensor/memory.h"

#include <ATen/Functions.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <torch/types.h>

#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "core/error.h"
#include "tensor/torch_errors.h"

namespace xformer::memory_test {

at::Tensor bytes(int64_t count) { return at::empty({count}, at::kByte); }

// Writes to every page, so that it exists.
void touch(const at::Tensor& x) { x.fill_(1); }

TEST_CASE("live and peak bytes are exact") {
  install_caching_allocator();
  install_caching_allocator();
  const int64_t before = host_memory().live_bytes;
  reset_host_peak();
  CHECK(host_memory().peak_bytes == before);
  {
    const at::Tensor floats = at::empty({7, 3});
    CHECK(host_memory().live_bytes == before + 84);
    const at::Tensor doubles = at::empty({1000, 1000}, at::kDouble);
    CHECK(host_memory().live_bytes == before + 84 + 8000000);
    const at::Tensor view = doubles.narrow(0, 1, 5), none = at::empty({0, 9});
    CHECK(host_memory().live_bytes == before + 84 + 8000000);
  }
  CHECK(host_memory().live_bytes == before);
  CHECK(host_memory().peak_bytes == before + 8000084);
  reset_host_peak();
  CHECK(host_memory().peak_bytes == before);
}

TEST_CASE("padding stays within an eighth, and blocks are aligned and apart") {
  install_caching_allocator();
  release_cached_memory();
  std::vector<at::Tensor> blocks;
  for (int64_t size = 1; size < (int64_t{40} << 20); size = size * 5 / 4 + 1) {
    const int64_t reserved = host_memory().reserved_bytes;
    blocks.push_back(bytes(size));
    const int64_t taken = host_memory().reserved_bytes - reserved;
    INFO("size " << size << " took " << taken);
    // Its class may have had a block of the former size's class; nothing is free otherwise.
    CHECK(taken >= size);
    CHECK(taken <= std::max(size + 63, size + size / 8));
    CHECK(reinterpret_cast<uintptr_t>(blocks.back().data_ptr()) % 64 == 0);
    touch(blocks.back());
    blocks.back()[size - 1] = static_cast<int64_t>(blocks.size() % 251);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    CHECK(blocks[i][-1].item<int64_t>() == static_cast<int64_t>((i + 1) % 251));
    CHECK((blocks[i].narrow(0, 0, blocks[i].size(0) - 1) == 1).all().item<bool>());
  }
}

TEST_CASE("a repeated step asks the system for nothing and faults in no pages") {
  install_caching_allocator();
  const at::Tensor x = at::ones({512, 1024}), w = at::ones({1024, 768});
  const auto step = [&] {
    const at::Tensor product = at::mm(x, w), soft = at::softmax(product, -1);
    at::Tensor sum = at::zeros({});
    for (int64_t i = 0; i < 20; ++i) sum = sum + (soft * i).exp().sum();
    return sum.item<float>();
  };
  const float first = step();
  step();
  const MemoryUse use = host_memory();
  const int64_t faults = page_faults();
  CHECK(step() == first);
  const int64_t new_faults = page_faults() - faults;
  CHECK(host_memory().system_requests == use.system_requests);
  CHECK(host_memory().reserved_bytes == use.reserved_bytes);
  CHECK(host_memory().live_bytes == use.live_bytes);
  // The step writes 66 MB in large blocks: 16,000 pages if they were fresh.
  CHECK(new_faults < 500);
}

TEST_CASE("the block freed last comes back first") {
  install_caching_allocator();
  for (const int64_t size : {100, 100000, 5000000}) {
    at::Tensor x = bytes(size);
    const void* const place = x.data_ptr();
    x = at::Tensor();
    x = bytes(size - 1);
    CHECK(x.data_ptr() == place);
  }
}

TEST_CASE("threads share the allocator") {
  install_caching_allocator();
  const int64_t before = host_memory().live_bytes;
  std::vector<int> wrong(4, 0);
  std::vector<at::Tensor> handed_over(wrong.size());
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      std::vector<at::Tensor> held;
      for (int64_t i = 0; i < 400; ++i) {
        held.push_back(at::full({1 + (i * 37 + static_cast<int64_t>(t)) % 5000}, static_cast<float>(t)));
        if (held.size() > 10) {
          for (const at::Tensor& x : held) wrong[t] += (x != static_cast<float>(t)).any().item<bool>();
          held.erase(held.begin(), held.begin() + 7);
        }
      }
      handed_over[t] = held.back();
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4, 0));
  CHECK(host_memory().live_bytes > before);
  handed_over.clear();  // freed by another thread than took them
  CHECK(host_memory().live_bytes == before);
}

TEST_CASE("release gives back what no tensor uses") {
  install_caching_allocator();
  at::Tensor kept = bytes(3000000);
  touch(kept);
  bytes(200);
  bytes(int64_t{32} << 20);
  CHECK(host_memory().reserved_bytes >= int64_t{35} << 20);
  release_cached_memory();
  const MemoryUse use = host_memory();
  CHECK(use.reserved_bytes >= use.live_bytes);
  CHECK(use.reserved_bytes < int64_t{32} << 20);
  CHECK(kept.sum(at::kLong).item<int64_t>() == 3000000);
  const at::Tensor again = bytes(int64_t{32} << 20);
  touch(again);
  CHECK(host_memory().system_requests > use.system_requests);
}

TEST_CASE("raw allocation, copies and impossible requests behave as LibTorch expects") {
  install_caching_allocator();
  c10::Allocator* const allocator = c10::GetCPUAllocator();
  const int64_t before = host_memory().live_bytes;
  void* const raw = allocator->raw_allocate(1000);
  CHECK(host_memory().live_bytes == before + 1000);
  allocator->raw_deallocate(raw);
  CHECK(host_memory().live_bytes == before);
  const c10::DataPtr source = allocator->allocate(8);
  *static_cast<int64_t*>(source.get()) = 42;
  const c10::DataPtr copy = allocator->clone(source.get(), 8);
  CHECK(*static_cast<int64_t*>(copy.get()) == 42);
  CHECK(allocator->allocate(0).get() == nullptr);
  CHECK_THROWS_AS(allocator->allocate(size_t{1} << 60), c10::OutOfMemoryError);
  CHECK_THROWS_AS(allocator->allocate(SIZE_MAX - 5), c10::OutOfMemoryError);
  CHECK(host_memory().live_bytes == before + 16);
}

TEST_CASE("want of memory is told once, in units that people read") {
  install_caching_allocator();
  const auto told = [](const auto& work) -> std::string {
    try {
      try {
        work();
      } catch (...) {
        rethrow_translated();
      }
    } catch (const OutOfMemory& error) {
      return error.what();
    }
    return "";
  };
  const std::string host = told([] { static_cast<void>(c10::GetCPUAllocator()->allocate(SIZE_MAX - 5)); });
  CHECK_THAT(host, Catch::StartsWith("out of memory: 18.4 EB of host memory asked for, ") &&
                       Catch::Contains("a smaller batch needs less") && !Catch::Contains("out of host"));
  CHECK(told([] {
          TORCH_CHECK_WITH(
              OutOfMemoryError, false,
              "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of "
              "which 1.20 GiB is free. Process 4711 has 70.00 GiB memory in use. Process 5 has 512.00 MiB "
              "memory in use. Of the allocated memory 6.00 GiB is allocated by PyTorch, and 1.00 GiB is "
              "reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting");
        }) ==
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.20 GiB is "
        "free. Process 4711 has 70.00 GiB memory in use. Process 5 has 512.00 MiB memory in use; a smaller "
        "batch needs less; other processes hold memory there (4711 has 70.00 GiB, 5 has 512.00 MiB): wait, or "
        "take another --device");
  CHECK_THAT(told([] { static_cast<void>(at::zeros({int64_t{1} << 62, 2})); }), Catch::StartsWith("out of memory: "));
  CHECK(told([] { std::vector<int64_t>().reserve(SIZE_MAX / 2); }) ==
        "out of memory on the host; a smaller batch needs less");
  CHECK_THAT(told([] { TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried 2 GiB"); }),
             Catch::StartsWith("CUDA out of memory. Tried 2 GiB; a smaller"));
}

TEST_CASE("a device that fails is told from a program that does, in one line that says what to do") {
  const auto thrown = [](int32_t code) {
    try {
      throw c10::AcceleratorError({__func__, __FILE__, 1}, code, "CUDA error: something\nFor debugging consider ...");
    } catch (...) {
      rethrow_translated("its work is kept", "--micro-batch");
    }
  };
  const auto said = [&]<class Kind>(int32_t code, Kind) -> std::string {
    try {
      thrown(code);
    } catch (const Kind& error) {
      return error.what();
    }
    return "";
  };
  for (const int32_t code : {35, 46, 214, 702})
    CHECK_THAT(said(code, ResourceError("")),
               Catch::Equals("the device failed: CUDA error: something; its work is kept"));
  for (const int32_t code : {1, 700, 719})  // a wrong argument, a wrong address, a failed launch
    CHECK_THAT(said(code, InternalError("")),
               Catch::EndsWith("CUDA error: something; its work is kept") && !Catch::Contains("debugging"));
  CHECK_THAT(said(2, OutOfMemory("")), Catch::Contains("--micro-batch") && Catch::EndsWith("; its work is kept"));
}

TEST_CASE("the process has used memory and met faults") {
  CHECK(peak_process_bytes() > 10 << 20);
  CHECK(page_faults() > 100);
}

}  // namespace xformer::memory_test
