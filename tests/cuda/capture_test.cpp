// The life of a capture over LibTorch's own allocator of pinned memory with a stream that is none: the second capture
// after the last graph is gone, the capture after one that failed, and that the way before failed at both.
#include "cuda/capture.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/util/Exception.h>

#include <catch2/catch.hpp>
#include <cstdlib>

namespace xformer::cuda {

namespace {

const c10::Stream kStream(c10::Stream::UNSAFE, c10::Device(c10::DeviceType::CUDA, 0), 7);

// Which of LibTorch's streams captures.
bool stream_captures = false;

struct Allocator : at::CachingHostAllocatorImpl<c10::Stream, int> {
 private:
  void allocate_host_memory(size_t size, void** pointer) override { *pointer = std::malloc(size); }
  void free_block(at::HostBlock<c10::Stream>* block) override { std::free(block->ptr_); }
  void record_stream(std::optional<std::vector<int>>& events, c10::Stream) override { events->push_back(0); }
  bool query_event(int&) override { return true; }
  c10::Stream get_current_stream() const override { return kStream; }
  bool stream_is_capturing(c10::Stream) const override { return stream_captures; }
};

// What a process has, and where its next capture fails.
enum class Place {
  kNowhere,
  kGenerator,
  kDevicePool,
  kHostPool,
  kBeginStream,
  kWork,
  kEndStream,
  kNoGraph,
  kInstantiate
};

struct Machine {
  Allocator memory[2];  // of the host, and once more for the device's, whose pools follow the same rules
  bool generator_captures = false;
  Place fails = Place::kNowhere;
  uint64_t pools = 0;

  Machine() { stream_captures = false; }
  Allocator& device() { return memory[0]; }
  Allocator& host() { return memory[1]; }
  void release_unused() {
    for (Allocator& one : memory) one.empty_cache();
  }
  void reach(Place place) const { TORCH_CHECK(fails != place, "failed on purpose"); }
  SharedPool shared() {
    return SharedPool([this] { return PoolId{0, ++pools}; });
  }
  // The work of every capture here.
  void work() {
    for (Allocator& one : memory) one.free(one.allocate(4096).second);
    reach(Place::kWork);
  }
  // Bytes that the pools hold while nothing is allocated and nothing cached.
  int64_t held() {
    release_unused();
    return device().getStats().allocated_bytes.current + host().getStats().allocated_bytes.current;
  }
};

// The order of LibTorch's CUDAGraph.
class FakeCapture : public Capture {
 public:
  explicit FakeCapture(Machine& machine) : machine_(machine) {}
  ~FakeCapture() override {
    if (!ended_) return;
    machine_.device().release_pool(pool_);
    machine_.host().release_pool(pool_);
  }

  void begin(PoolId pool) override {
    pool_ = pool;
    machine_.reach(Place::kGenerator);
    machine_.generator_captures = true;
    machine_.reach(Place::kDevicePool);
    machine_.device().begin_allocate_to_pool(pool, filter());
    machine_.reach(Place::kHostPool);
    machine_.host().begin_allocate_to_pool(pool, filter());
    machine_.reach(Place::kBeginStream);
    stream_captures = true;
  }

  void end() override {
    stream_captures = false;
    machine_.reach(Place::kEndStream);
    machine_.device().end_allocate_to_pool(pool_);
    machine_.host().end_allocate_to_pool(pool_);
    machine_.reach(Place::kNoGraph);
    machine_.generator_captures = false;
    ended_ = true;
    machine_.reach(Place::kInstantiate);
  }

  [[nodiscard]] bool releases_pools() const override { return ended_; }
  void end_pool(Memory memory, PoolId pool) override { of(memory).end_allocate_to_pool(pool); }
  void release_pool(Memory memory, PoolId pool) override { of(memory).release_pool(pool); }
  void stop_stream() override { stream_captures = false; }
  void stop_generator() override { machine_.generator_captures = false; }

 private:
  static std::function<bool(c10::Stream)> filter() {
    return [](c10::Stream) { return stream_captures; };
  }
  Allocator& of(Memory memory) { return memory == Memory::kDevice ? machine_.device() : machine_.host(); }

  Machine& machine_;
  PoolId pool_;
  bool ended_ = false;
};

struct Graph {
  Graph(Machine& machine, SharedPool& shared) : capture(machine) {
    machine.release_unused();
    pool = shared.capture(capture, [&] { machine.work(); });
  }
  std::shared_ptr<const PoolId> pool;
  FakeCapture capture;
};

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

}  // namespace

TEST_CASE("captures share a pool while one of them lives, and the next after the last of them takes another") {
  Machine machine;
  SharedPool shared = machine.shared();
  {
    auto first = std::make_unique<Graph>(machine, shared);
    const Graph second(machine, shared);
    first.reset();
    const Graph third(machine, shared);
    CHECK(*second.pool == *third.pool);
    CHECK(machine.pools == 1);
    CHECK(machine.held() == 2 * 4096);  // one pool for all, on either side
  }
  // With and without what release_unused() clears: a pool may keep blocks that are still in use.
  for (int i = 0; i < 3; ++i) {
    FakeCapture capture(machine);
    CHECK(shared.capture(capture, [&] { machine.work(); })->second == static_cast<uint64_t>(2 + i));
  }
  CHECK(machine.held() == 0);
}

TEST_CASE("a capture that failed anywhere leaves nothing begun, and the next succeeds") {
  const Place place = GENERATE(Place::kGenerator, Place::kDevicePool, Place::kHostPool, Place::kBeginStream,
                               Place::kWork, Place::kEndStream, Place::kNoGraph, Place::kInstantiate);
  const bool another_lives = GENERATE(false, true);
  CAPTURE(static_cast<int>(place), another_lives);
  Machine machine;
  SharedPool shared = machine.shared();
  std::unique_ptr<Graph> living;
  if (another_lives) living = std::make_unique<Graph>(machine, shared);

  machine.fails = place;
  CHECK(message_of([&] { const Graph failing(machine, shared); }) == "failed on purpose");  // the first error
  CHECK_FALSE(machine.generator_captures);
  CHECK_FALSE(stream_captures);
  // The failed capture holds no memory, the living one all of its own.
  CHECK(machine.held() == (another_lives ? 2 * 4096 : 0));
  for (Allocator& one : machine.memory)
    CHECK(message_of([&] {
            one.end_allocate_to_pool({0, machine.pools});
          }).find("not currently recording") != std::string::npos);

  machine.fails = Place::kNowhere;
  {
    const Graph next(machine, shared), after(machine, shared);
    CHECK(*next.pool == *after.pool);
    if (living) CHECK(*next.pool != *living->pool);
    CHECK_FALSE(machine.generator_captures);
  }
  living.reset();
  CHECK(machine.held() == 0);
}

// What recording.cpp did before: one pool id for the process, the device's side ended alone, `begin` not guarded.
TEST_CASE("one pool for the whole process and half an end break every later capture") {
  const PoolId pool{0, 1};
  Machine machine;
  const auto capture = [&](FakeCapture& one) {
    machine.device().empty_cache();
    one.begin(pool);
    try {
      machine.work();
      one.end();
    } catch (...) {
      one.stop_stream();
      machine.device().end_allocate_to_pool(pool);
      throw;
    }
  };
  const auto next = [&] {
    return message_of([&] {
      FakeCapture one(machine);
      capture(one);
    });
  };
  SECTION("after the last graph is gone") {
    CHECK(next().empty());
    CHECK(next().find("use_count > 0 INTERNAL ASSERT FAILED") != std::string::npos);
    CHECK(machine.generator_captures);                                           // for ever
    CHECK(next().find("already recording to mempool_id") != std::string::npos);  // now on the device's side too
  }
  SECTION("after a capture that failed") {
    machine.fails = Place::kWork;
    CHECK(next() == "failed on purpose");
    CHECK(machine.generator_captures);
    machine.fails = Place::kNowhere;
    CHECK(next().find("already recording to mempool_id") != std::string::npos);
  }
}

}  // namespace xformer::cuda
