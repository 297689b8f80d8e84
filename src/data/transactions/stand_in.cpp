#include "data/transactions/stand_in.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "data/transactions/event_features.h"

namespace xformer::data {
namespace {

constexpr size_t kKind = kStandInNumbers;  // its place among an event's values

// Events that come one after the other at a rate of 1 until `mean` is over.
int64_t poisson(double mean, Stream& numbers) {
  int64_t count = 0;
  for (double time = -std::log1p(-numbers.next_unit()); time < mean; ++count) time -= std::log1p(-numbers.next_unit());
  return count;
}

}  // namespace

DataShape stand_in_shape(const StandInOptions& options) {
  return events_shape(options.length, kStandInNumbers,
                      {kUnknownWordCode + 1 + options.kinds, kUnknownWordCode + 1 + kStandInChannels}, 2);
}

void check_stand_in(const StandInOptions& options) {
  XF_CHECK(options.pairs * (options.distance + 1) <= options.length, UserError,
           "data.pairs: {} pairs, each among {} events of its own, need a data.length of {}, got {}", options.pairs,
           options.distance + 1, options.pairs * (options.distance + 1), options.length);
}

void draw_stand_in(const StandInOptions& options, int64_t label, Stream& numbers, std::vector<float>& values) {
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(numbers.next_below(static_cast<uint64_t>(bound)));
  };
  const int64_t slot = options.distance + 1;
  const int64_t events = std::clamp(poisson(options.mean_events, numbers), options.pairs * slot, options.length);
  values.clear();
  for (int64_t i = 0; i < events; ++i) {
    // Both of mean 0 and deviation 1, as standardised columns have.
    values.push_back(static_cast<float>((2 * numbers.next_unit() - 1) * std::sqrt(3.0)));
    values.push_back(static_cast<float>(-std::log1p(-numbers.next_unit()) - 1));
    values.push_back(static_cast<float>(kKindB + 1 + below(options.kinds - 2)));
    values.push_back(static_cast<float>(kUnknownWordCode + 1 + below(kStandInChannels)));
  }
  // Slots begin elsewhere in every user: places that are multiples of a number from the first event tell nothing.
  const int64_t begin = below(std::min(slot, events - options.pairs * slot + 1));
  std::vector<int64_t> slots(static_cast<size_t>((events - begin) / slot));
  std::iota(slots.begin(), slots.end(), int64_t{0});
  for (int64_t pair = 0; pair < options.pairs; ++pair) {
    std::swap(slots[static_cast<size_t>(pair)],
              slots[static_cast<size_t>(pair + below(static_cast<int64_t>(slots.size()) - pair))]);
    const int64_t one = below(slot), step = 1 + below(slot - 1), other = (one + step) % slot;
    const auto event = [&](int64_t at) {
      return values.begin() + (begin + slots[static_cast<size_t>(pair)] * slot + at) * kStandInWidth;
    };
    const auto first = event(std::min(one, other)), second = event(std::max(one, other));
    first[kKind] = kKindA;
    second[kKind] = kKindB;
    if (label == 0) std::swap_ranges(first, first + kStandInWidth, second);  // with all that they hold
  }
}

std::string stand_in_fault(const StandInOptions& options, std::span<const float> values, int64_t label) {
  int64_t pairs = 0, last = -1;
  float before = 0;  // the kind of a pair's first event
  for (size_t i = 0; i * kStandInWidth < values.size(); ++i) {
    const float kind = values[i * kStandInWidth + kKind];
    if (kind != kKindA && kind != kKindB) continue;
    const auto at = static_cast<int64_t>(i);
    if (before == 0) {
      before = kind;
    } else {
      if (kind == before || at - last > options.distance) return fmt::format("no pair at place {}", i);
      if ((before == kKindA) != (label == 1)) return fmt::format("the pair at place {} is of the other class", i);
      before = 0;
      ++pairs;
    }
    last = at;
  }
  return pairs == options.pairs && before == 0 ? "" : fmt::format("{} pairs, expected {}", pairs, options.pairs);
}

}  // namespace xformer::data
