// Device programs (kernels/device/thread.h) run on the CPU: block by block, every thread of a block a fibre that runs
// until it has to wait for others. What a program must not do is an error: a barrier or an exchange between lanes that
// not all come to, two different ones at once, access of sixteen bytes from elsewhere than a sixteenth byte, writing
// behind the shared memory. Shared memory holds NaN at first, and what is sent there comes when it is awaited, no
// sooner. A warp runs as far as barriers let it before the next one begins. A walk backwards starts with the last
// block, and in it with the last thread: a result that depends on who comes first differs between the two.
#pragma once

#include <ATen/core/Tensor.h>
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/device/thread.h"

namespace xformer::kernels {

// The types that programs are instantiated with here.
struct WalkedTypes {
  using Half = at::Half;
  using BFloat16 = at::BFloat16;
};
template <>
inline constexpr ElementType kElementOf<at::Half> = ElementType::kHalf;
template <>
inline constexpr ElementType kElementOf<at::BFloat16> = ElementType::kBFloat16;

enum class WalkOrder { kForward, kBackward };

class BlockWalk {
 public:
  BlockWalk(const LaunchGrid& grid, int threads, WalkOrder order)
      : grid_(grid), order_(order), fibres_(static_cast<size_t>(threads)) {
    if (threads % kWarp != 0 || grid.blocks < 1 || grid.blocks > kMostBlocks || grid.shared_bytes > kMostSharedBytes)
      throw std::logic_error("a grid that no device takes");
    for (Fibre& fibre : fibres_) fibre.stack.reset(new char[kStackBytes]);
  }

  // `thread`: what one thread does, by its place in the block.
  void run(const std::function<void(int index)>& thread) {
    thread_ = &thread;
    for (int64_t i = 0; i < grid_.blocks; ++i) {
      block_ = order_ == WalkOrder::kForward ? i : grid_.blocks - 1 - i;
      shared_.assign(static_cast<size_t>(grid_.shared_bytes / 16 + 2), {kNaN, kNaN});
      run_block();
      if (shared_[shared_.size() - 1].first != kNaN) throw std::logic_error("a write behind the shared memory");
    }
  }

  [[nodiscard]] int64_t block() const { return block_; }
  [[nodiscard]] int64_t blocks() const { return grid_.blocks; }
  [[nodiscard]] void* shared() { return shared_.data(); }
  // Whether it lies in the memory that the threads of a block share.
  [[nodiscard]] bool owns(const void* place) const {
    const std::less<const void*> before;
    return !before(place, shared_.data()) && before(place, shared_.data() + shared_.size());
  }

  void sync(int index) { wait(index, Wait::kBlock, "sync"); }

  // Copies on their way, group by group, of which those of a thread may be called for in their order.
  struct Copy {
    float* to;
    const float* from;
    int count;  // of the four floats; the rest become zeros
  };
  void send(int index, const Copy& copy) { fibres_[static_cast<size_t>(index)].sent.push_back(copy); }
  void end_copies(int index) {
    Fibre& fibre = fibres_[static_cast<size_t>(index)];
    fibre.groups.push_back(std::exchange(fibre.sent, {}));
  }
  void await_copies(int index, size_t later) {
    std::deque<std::vector<Copy>>& groups = fibres_[static_cast<size_t>(index)].groups;
    for (; groups.size() > later; groups.pop_front())
      for (const Copy& copy : groups.front()) {
        memset(copy.to, 0, 16);
        memcpy(copy.to, copy.from, static_cast<size_t>(copy.count) * sizeof(float));
      }
  }

  // Gives `mine` to the warp and waits until every lane has given something; what lane i gave then lies at
  // given(index, i), until the warp's exchange after the next. `what` must be the same for all.
  void exchange(int index, const void* mine, size_t bytes, const char* what) {
    Fibre& fibre = fibres_[static_cast<size_t>(index)];
    fibre.turn = 1 - fibre.turn;
    if (bytes > sizeof(fibre.given[0])) throw std::logic_error("too much for an exchange");
    memcpy(fibre.given[fibre.turn], mine, bytes);
    wait(index, Wait::kWarp, what);
  }
  [[nodiscard]] const void* given(int index, int lane) const {
    const Fibre& other = fibres_[static_cast<size_t>(index / kWarp * kWarp + lane)];
    return other.given[fibres_[static_cast<size_t>(index)].turn];
  }

 private:
  enum class Wait { kNothing, kWarp, kBlock, kEnded };
  struct Fibre {
    jmp_buf place;
    bool begun = false;
    std::unique_ptr<char[]> stack;
    Wait waits = Wait::kNothing;
    const char* what = "";
    alignas(16) char given[2][64];
    int turn = 0;
    std::vector<Copy> sent;
    std::deque<std::vector<Copy>> groups;
    std::string error;
  };
  static constexpr size_t kStackBytes = 128 * 1024;
  static constexpr uint64_t kNaN = ~uint64_t{0};

  static inline thread_local BlockWalk* walking = nullptr;

  static void enter() {
    BlockWalk& walk = *walking;
    const int index = walk.current_;
    Fibre& fibre = walk.fibres_[static_cast<size_t>(index)];
    try {
      (*walk.thread_)(index);
    } catch (const std::exception& error) {
      fibre.error = error.what();
    }
    fibre.waits = Wait::kEnded;
    _longjmp(walk.scheduler_, 1);
  }

  void wait(int index, Wait what, const char* name) {
    Fibre& fibre = fibres_[static_cast<size_t>(index)];
    fibre.waits = what, fibre.what = name;
    if (_setjmp(fibre.place) == 0) _longjmp(scheduler_, 1);
  }

  // Until the fibre waits or ends. Contexts begin fibres, jumps go on, which make no system call.
  void go_on(Fibre& fibre) {
    if (_setjmp(scheduler_) != 0) return;
    if (fibre.begun) _longjmp(fibre.place, 1);
    fibre.begun = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = fibre.stack.get();
    context.uc_stack.ss_size = kStackBytes;
    context.uc_link = nullptr;
    makecontext(&context, &BlockWalk::enter, 0);
    setcontext(&context);
  }

  void run_block() {
    for (Fibre& fibre : fibres_) fibre.waits = Wait::kNothing, fibre.begun = false, fibre.groups.clear();
    const auto count = static_cast<int>(fibres_.size());
    while (true) {
      bool moved = false;
      for (int first = 0; first < count; first += kWarp)
        while (run_warp(order_ == WalkOrder::kForward ? first : count - kWarp - first)) moved = true;
      if (!release(0, count, Wait::kBlock) && !moved) break;
    }
    for (const Fibre& fibre : fibres_)
      if (fibre.waits != Wait::kEnded)
        throw std::logic_error(std::string("a thread waits for others at ") + fibre.what + " that do not come");
    for (const Fibre& fibre : fibres_)
      if (!fibre.sent.empty() ||
          std::any_of(fibre.groups.begin(), fibre.groups.end(), [](const auto& group) { return !group.empty(); }))
        throw std::logic_error("copies that nobody awaits");
  }

  // Until every lane waits or has ended; whether anyone moved.
  bool run_warp(int first) {
    bool moved = false;
    for (int i = 0; i < kWarp; ++i) {
      current_ = first + (order_ == WalkOrder::kForward ? i : kWarp - 1 - i);
      Fibre& fibre = fibres_[static_cast<size_t>(current_)];
      if (fibre.waits != Wait::kNothing) continue;
      walking = this;
      go_on(fibre);
      if (!fibre.error.empty()) throw std::logic_error(fibre.error);
      moved = true;
    }
    return release(first, kWarp, Wait::kWarp) || moved;
  }

  // Lets those go on that all wait for each other.
  bool release(int first, int count, Wait reason) {
    for (int i = first; i < first + count; ++i) {
      const Fibre& fibre = fibres_[static_cast<size_t>(i)];
      if (fibre.waits != reason || strcmp(fibre.what, fibres_[static_cast<size_t>(first)].what) != 0) return false;
    }
    for (int i = first; i < first + count; ++i) fibres_[static_cast<size_t>(i)].waits = Wait::kNothing;
    return true;
  }

  LaunchGrid grid_;
  WalkOrder order_;
  std::vector<Fibre> fibres_;
  const std::function<void(int)>* thread_ = nullptr;
  std::vector<std::pair<uint64_t, uint64_t>> shared_;
  jmp_buf scheduler_;
  int64_t block_ = 0;
  int current_ = 0;
};

// A thread of a walked block, as programs want it.
class WalkedThread {
 public:
  WalkedThread(BlockWalk& walk, int index) : walk_(walk), index_(index) {}

  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] int64_t block() const { return walk_.block(); }
  [[nodiscard]] int64_t blocks() const { return walk_.blocks(); }
  [[nodiscard]] void* shared() const { return walk_.shared(); }
  void sync() const { walk_.sync(index_); }
  static int anew(int value) { return value; }

  template <class Value>
  Value shuffle_xor(Value value, int mask) const {
    walk_.exchange(index_, &value, sizeof(value), "shuffle_xor");
    memcpy(&value, walk_.given(index_, (index_ % kWarp) ^ mask), sizeof(value));
    return value;
  }

  uint32_t ballot(bool mine) const {
    walk_.exchange(index_, &mine, sizeof(mine), "ballot");
    uint32_t all = 0;
    for (int lane = 0; lane < kWarp; ++lane)
      all |= (*static_cast<const bool*>(walk_.given(index_, lane)) ? 1u : 0u) << lane;
    return all;
  }

  // To the nearest of 10 bits of mantissa, ties away from zero (PTX: cvt.rna.tf32.f32); the other bits are zero.
  static uint32_t tf32(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return (bits & 0x7F800000u) == 0x7F800000u ? bits : (bits + 0x1000u) & 0xFFFFE000u;
  }

  static float exp(float value) { return std::exp(value); }
  static float exp2(float value) { return std::exp2(value); }
  static float reciprocal(float value) { return 1 / value; }

  // PTX manual, mma.m16n8k8 of .tf32, lane = 4 g + t:
  //   a0: (g, t)  a1: (g + 8, t)  a2: (g, t + 4)  a3: (g + 8, t + 4)      of 16 x 8
  //   b0: (t, g)  b1: (t + 4, g)                                          of 8 x 8
  //   c0, c1: (g, 2t), (g, 2t + 1)   c2, c3: (g + 8, 2t), (g + 8, 2t + 1)   of 16 x 8
  void mma(float* c, const uint32_t* a, const uint32_t* b) const {
    uint32_t mine[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    for (uint32_t& bits : mine) bits &= 0xFFFFE000u;  // what the units read of an operand
    walk_.exchange(index_, mine, sizeof(mine), "mma");
    const auto given = [&](int lane, int place) {
      return float_of(static_cast<const uint32_t*>(walk_.given(index_, lane))[place]);
    };
    const int g = index_ % kWarp / 4, t = index_ % 4;
    for (int i = 0; i < 4; ++i) {
      const int row = g + (i >= 2 ? 8 : 0), column = 2 * t + i % 2;
      double sum = c[i];
      for (int k = 0; k < 8; ++k)
        sum += static_cast<double>(given(row % 8 * 4 + k % 4, (row >= 8 ? 1 : 0) + (k >= 4 ? 2 : 0))) *
               static_cast<double>(given(column * 4 + k % 4, 4 + (k >= 4 ? 1 : 0)));
      c[i] = static_cast<float>(sum);
    }
  }

  static uint32_t halves(float first, float second) {
    const at::Half both[2] = {first, second};
    uint32_t bits;
    memcpy(&bits, both, sizeof(bits));
    return bits;
  }
  static void floats(uint32_t halves, float* two) {
    at::Half both[2];
    memcpy(both, &halves, sizeof(halves));
    two[0] = both[0], two[1] = both[1];
  }

  // PTX manual, mma.m16n8k16 of .f16 or .bf16, lane = 4 g + t, two numbers a register:
  //   a0: (g, 2t)  a1: (g + 8, 2t)  a2: (g, 2t + 8)  a3: (g + 8, 2t + 8)   of 16 x 16
  //   b0: (2t, g)  b1: (2t + 8, g)                                         of 16 x 8
  template <ElementType kType>
  void mma_half(float* c, const uint32_t* a, const uint32_t* b) const {
    const uint32_t mine[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    walk_.exchange(index_, mine, sizeof(mine), kType == ElementType::kHalf ? "mma_half" : "mma_half of bf16");
    const auto given = [&](int lane, int place, int which) {
      const uint32_t both = static_cast<const uint32_t*>(walk_.given(index_, lane))[place];
      if (kType == ElementType::kBFloat16)  // the upper half of a float
        return static_cast<double>(float_of(which == 0 ? both << 16 : both & 0xFFFF0000u));
      float two[2];
      floats(both, two);
      return static_cast<double>(two[which]);
    };
    const int g = index_ % kWarp / 4, t = index_ % 4;
    for (int i = 0; i < 4; ++i) {
      const int row = g + (i >= 2 ? 8 : 0), column = 2 * t + i % 2;
      double sum = c[i];
      for (int k = 0; k < 16; ++k)
        sum += given(row % 8 * 4 + k % 8 / 2, (row >= 8 ? 1 : 0) + (k >= 8 ? 2 : 0), k % 2) *
               given(column * 4 + k % 8 / 2, 4 + (k >= 8 ? 1 : 0), k % 2);
      c[i] = static_cast<float>(sum);
    }
  }

  // PTX manual, ldmatrix .m8n8 .x4 .b16.
  static const char* place_in(const char* shared) { return shared; }
  template <bool kTurned>
  void load_matrices(const char* row, uint32_t* into) const {
    check_aligned(row);
    uint16_t mine[8];
    memcpy(mine, row, sizeof(mine));
    walk_.exchange(index_, mine, sizeof(mine), kTurned ? "load_matrices, turned" : "load_matrices");
    const int g = index_ % kWarp / 4, t = index_ % 4;
    for (int i = 0; i < 4; ++i) {
      const auto number = [&](int of_row, int column) {
        return static_cast<uint32_t>(static_cast<const uint16_t*>(walk_.given(index_, 8 * i + of_row))[column]);
      };
      into[i] = kTurned ? number(2 * t, g) | number(2 * t + 1, g) << 16 : number(g, 2 * t) | number(g, 2 * t + 1) << 16;
    }
  }

  static void load16(const void* from, uint32_t* words) {
    check_aligned(from);
    memcpy(words, from, 16);
  }
  void store16(void* to, const uint32_t* words) const {
    if (walk_.owns(to)) throw std::logic_error("a store to the device's memory goes into the block's own");
    check_aligned(to);
    memcpy(to, words, 16);
  }
  void put16(void* to, const uint32_t* words) const {
    if (!walk_.owns(to)) throw std::logic_error("what belongs into the block's own memory goes elsewhere");
    check_aligned(to);
    memcpy(to, words, 16);
  }
  static int64_t arrive(int32_t* counter) { return (*counter)++; }
  static double arrived(const double* from) { return *from; }
  void copy16(float* to, const float* from, int count) const {
    check_aligned(to), check_aligned(from);
    if (count < 0 || count > 4) throw std::logic_error("no part of four floats");
    walk_.send(index_, {to, from, count});
  }
  void end_copies() const { walk_.end_copies(index_); }
  template <int kLater>
  void await_copies() const {
    walk_.await_copies(index_, kLater);
  }

 private:
  static void check_aligned(const void* place) {
    if (reinterpret_cast<uintptr_t>(place) % 16 != 0) throw std::logic_error("sixteen bytes that are not aligned");
  }
  BlockWalk& walk_;
  int index_;
};

template <class Program>
void walk(const LaunchGrid& grid, const Program& program, WalkOrder order) {
  BlockWalk blocks(grid, Program::kThreads, order);
  blocks.run([&](int index) { program(WalkedThread(blocks, index)); });
}

}  // namespace xformer::kernels
