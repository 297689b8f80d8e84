// The largest row of each set (token_sets.h) as a device program each way: a thread has one channel of a set and goes
// over its tokens, neighbouring threads neighbouring channels.
#pragma once

#include "kernels/device/heads.h"

namespace xformer::kernels {

inline constexpr int kSetThreads = 256;

struct SetMaxArguments {
  const float* x = nullptr;  // [b,h,n,d]
  HeadPlaces places;
  const bool* valid = nullptr;      // [b,n]; null: all are
  float* largest = nullptr;         // [b,h,t,d], written forwards and read backwards
  const float* gradient = nullptr;  // likewise, read backwards
  float* result = nullptr;          // in memory [b,n,h,d], written backwards
  int64_t b = 0, h = 0, n = 0, t = 0, size = 0, d = 0;
};

[[nodiscard]] constexpr LaunchGrid set_max_grid(int64_t channels) {
  return {(channels + kSetThreads - 1) / kSetThreads, 0};
}

// A channel of a set: where its tokens begin and end, and where it lies itself.
struct SetChannel {
  bool lives;
  int64_t sample, head, column, first, end, place;

  template <class Thread>
  XFORMER_DEVICE SetChannel(const Thread& thread, const SetMaxArguments& a) {
    place = thread.block() * kSetThreads + thread.index();
    const int64_t set = place / a.d;
    column = place % a.d;
    sample = set / a.t / a.h, head = set / a.t % a.h;
    lives = sample < a.b;
    first = set % a.t * a.size;
    end = first + a.size < a.n ? first + a.size : a.n;
  }

  [[nodiscard]] XFORMER_DEVICE bool valid(const SetMaxArguments& a, int64_t token) const {
    return a.valid == nullptr || a.valid[sample * a.n + token];
  }
  [[nodiscard]] XFORMER_DEVICE float read(const SetMaxArguments& a, int64_t token) const {
    return a.x[sample * a.places.sample + head * a.places.head + token * a.places.row + column];
  }
};

struct SetMaxProgram {
  static constexpr int kThreads = kSetThreads, kResident = 6;
  SetMaxArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const SetChannel channel(thread, a);
    if (!channel.lives) return;
    float largest = 0;  // 0 of no token
    bool any = false;
    for (int64_t token = channel.first; token < channel.end; ++token) {
      if (!channel.valid(a, token)) continue;
      const float own = channel.read(a, token);
      if (!any || own > largest || own != own) largest = own;
      any = true;
    }
    a.largest[channel.place] = largest;
  }
};

struct SetMaxBackwardProgram {
  static constexpr int kThreads = kSetThreads, kResident = 6;
  SetMaxArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const SetChannel channel(thread, a);
    if (!channel.lives) return;
    const float largest = a.largest[channel.place];
    float left = a.gradient[channel.place];  // goes to the first that has the value, or is none
    for (int64_t token = channel.first; token < channel.end; ++token) {
      float taken = 0;
      if (channel.valid(a, token)) {
        const float own = channel.read(a, token);
        if (own == largest || own != own) taken = left, left = 0;
      }
      a.result[((channel.sample * a.n + token) * a.h + channel.head) * a.d + channel.column] = taken;
    }
  }
};

// launch(grid, program) for either pass.
template <class Launch>
auto run_set_max(const SetMaxArguments& a, bool backward, const Launch& launch) {
  const LaunchGrid grid = set_max_grid(a.b * a.h * a.t * a.d);
  return backward ? launch(grid, SetMaxBackwardProgram{a}) : launch(grid, SetMaxProgram{a});
}

}  // namespace xformer::kernels
