// The walk over device programs: what it computes, and that it sees what a program must not do.
#include "block_walk.h"

#include <catch2/catch.hpp>
#include <cmath>

namespace xformer::kernels::block_walk_test {

namespace {

// A program of two warps by what a thread does.
template <class Action>
struct TwoWarps {
  static constexpr int kThreads = 2 * kWarp;
  Action action;

  void operator()(const WalkedThread& thread) const { action(thread); }
};

template <class Action>
void walk_two_warps(const Action& action, WalkOrder order = WalkOrder::kForward, LaunchGrid grid = {3, 64 * 4}) {
  walk(grid, TwoWarps<Action>{action}, order);
}

template <class Action>
std::string refusal(const Action& action) {
  try {
    walk_two_warps(action);
  } catch (const std::logic_error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a walk: lanes exchange within their warp, threads of a block meet, in any order") {
  for (const WalkOrder order : {WalkOrder::kForward, WalkOrder::kBackward}) {
    std::vector<float> sums(3 * 64, -1);
    walk_two_warps(
        [&](const WalkedThread& thread) {
          auto* const shared = static_cast<float*>(thread.shared());
          CHECK(std::isnan(shared[thread.index()]));
          thread.sync();
          // Twice, so that a slow lane's number is still there when a fast one gives its next.
          const int warp_sum = lane_sum(thread, lane_sum(thread, thread.index(), 1, 8), 8, 32);
          shared[thread.index()] = static_cast<float>(warp_sum);
          thread.sync();
          sums[static_cast<size_t>(thread.block() * 64 + thread.index())] = shared[63 - thread.index()];
        },
        order);
    for (size_t i = 0; i < sums.size(); ++i) CHECK(sums[i] == (i % 64 < 32 ? 1520 : 496));
  }
}

TEST_CASE("a walk refuses what hangs or breaks on a device") {
  CHECK(refusal([](const WalkedThread&) {}).empty());
  CHECK(refusal([](const WalkedThread& thread) {
          if (thread.index() != 5) thread.sync();
        }).find("waits for others at sync") != std::string::npos);
  CHECK(refusal([](const WalkedThread& thread) {
          if (thread.index() % kWarp < 16) static_cast<void>(thread.shuffle_xor(1, 1));
        }).find("waits for others at shuffle_xor") != std::string::npos);
  CHECK(refusal([](const WalkedThread& thread) {
          static_cast<float*>(thread.shared())[64 + 4 + thread.index() % 4] = 1;
        }).find("behind the shared memory") != std::string::npos);
  CHECK(refusal([](const WalkedThread& thread) {
          uint32_t words[4];
          thread.load16(static_cast<float*>(thread.shared()) + 1, words);
        }).find("not aligned") != std::string::npos);
  // Whose memory it is, a device's store has to know.
  CHECK(refusal([](const WalkedThread& thread) {
          const uint32_t words[4] = {};
          thread.store16(thread.shared(), words);
        }).find("goes into the block's own") != std::string::npos);
  alignas(16) static uint32_t outside[4];
  CHECK(refusal([](const WalkedThread& thread) {
          const uint32_t words[4] = {};
          thread.put16(outside, words);
        }).find("goes elsewhere") != std::string::npos);
  // A whole warp may exchange while the other does not.
  CHECK(refusal([](const WalkedThread& thread) {
          if (thread.index() < kWarp) static_cast<void>(thread.shuffle_xor(1, 1));
        }).empty());
}

TEST_CASE("a walk in two orders shows a missing barrier") {
  const auto neighbour = [](WalkOrder order) {
    std::vector<float> got(64);
    walk_two_warps(
        [&](const WalkedThread& thread) {
          auto* const shared = static_cast<float*>(thread.shared());
          shared[thread.index()] = 1;
          got[static_cast<size_t>(thread.index())] = shared[(thread.index() + 1) % 64];
        },
        order);
    return got;
  };
  CHECK(neighbour(WalkOrder::kForward)[5] != neighbour(WalkOrder::kBackward)[5]);
}

TEST_CASE("a walk in two orders shows a warp that overwrites what another has yet to read") {
  const auto opposite = [](WalkOrder order) {
    std::vector<float> got(64);
    walk_two_warps(
        [&](const WalkedThread& thread) {
          auto* const shared = static_cast<float*>(thread.shared());
          shared[thread.index()] = 1;
          thread.sync();
          got[static_cast<size_t>(thread.index())] = shared[(thread.index() + kWarp) % 64];
          static_cast<void>(thread.shuffle_xor(0, 1));
          shared[thread.index()] = 2;
        },
        order);
    return got;
  };
  CHECK(opposite(WalkOrder::kForward) != opposite(WalkOrder::kBackward));
}

TEST_CASE("a walk takes grids that devices take") {
  const auto nothing = [](const WalkedThread&) {};
  CHECK_THROWS_AS(walk_two_warps(nothing, WalkOrder::kForward, {0, 0}), std::logic_error);
  CHECK_THROWS_AS(walk_two_warps(nothing, WalkOrder::kForward, {1, kMostSharedBytes + 1}), std::logic_error);
}

}  // namespace xformer::kernels::block_walk_test
