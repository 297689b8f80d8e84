#include "data/recall/recall_sequences.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "core/error.h"

namespace xformer::data {
namespace {

int64_t below(Stream& numbers, int64_t bound) {
  return static_cast<int64_t>(numbers.next_below(static_cast<uint64_t>(bound)));
}

void blank(ExampleBuffers& into, int64_t length) {
  into.wide_ids.assign(static_cast<size_t>(length), 0);
  into.labels.assign(static_cast<size_t>(length), kNoLabel);
}

uint16_t& id(ExampleBuffers& into, int64_t place) { return into.wide_ids[static_cast<size_t>(place)]; }

void ask(ExampleBuffers& into, int64_t place, int64_t label) {
  into.labels[static_cast<size_t>(place)] = static_cast<int32_t>(label);
}

void ask_in_the_end(ExampleBuffers& into, Asked asked, int64_t label) {
  if (asked == Asked::kEveryNext)
    for (size_t i = 0; i + 1 < into.wide_ids.size(); ++i) into.labels[i] = into.wide_ids[i + 1];
  into.labels.back() = static_cast<int32_t>(label);
}

}  // namespace

std::vector<int64_t> draw_distinct(Stream& numbers, int64_t bound, int64_t count) {
  XF_ASSERT(count <= bound, "{} different numbers below {}", count, bound);
  std::unordered_map<int64_t, int64_t> moved;  // of a shuffled row, of which only the first places are made
  const auto at = [&](int64_t place) {
    const auto found = moved.find(place);
    return found == moved.end() ? place : found->second;
  };
  std::vector<int64_t> result;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t other = i + below(numbers, bound - i), first = at(i);
    result.push_back(at(other));
    moved[other] = first;
  }
  return result;
}

Mqar::Mqar(const MqarOptions& options) : options_(options) {
  for (int64_t slot = 0; slot < (options.length - 2 * options.pairs) / 2; ++slot)
    weights_.push_back(std::pow(static_cast<double>(slot + 1), options.power - 1));
}

void Mqar::draw(Stream& numbers, ExampleBuffers& into) const {
  const auto& [length, pairs, vocabulary, power, random_fill] = options_;
  const int64_t half = vocabulary / 2;
  const std::vector<int64_t> keys = draw_distinct(numbers, half - 1, pairs),
                             values = draw_distinct(numbers, vocabulary - half, pairs);
  blank(into, length);
  for (int64_t i = 0; i < pairs; ++i) {
    id(into, 2 * i) = static_cast<uint16_t>(1 + keys[static_cast<size_t>(i)]);
    id(into, 2 * i + 1) = static_cast<uint16_t>(half + values[static_cast<size_t>(i)]);
  }
  if (random_fill)
    for (int64_t place = 2 * pairs; place < length; ++place)
      id(into, place) = static_cast<uint16_t>(below(numbers, vocabulary));
  // The slots in the order of exponential times with these rates are draws without replacement, one after the other
  // (Efraimidis and Spirakis 2006).
  std::vector<std::pair<double, int64_t>> times;
  for (size_t slot = 0; slot < weights_.size(); ++slot)
    times.emplace_back(-std::log1p(-numbers.next_unit()) / weights_[slot], static_cast<int64_t>(slot));
  std::partial_sort(times.begin(), times.begin() + pairs, times.end());
  for (int64_t i = 0; i < pairs; ++i) {
    const int64_t place = 2 * pairs + 2 * times[static_cast<size_t>(i)].second;
    id(into, place) = id(into, 2 * i);
    ask(into, place, id(into, 2 * i + 1));
  }
}

void draw_associative(const AssociativeOptions& options, Asked asked, Stream& numbers, ExampleBuffers& into) {
  const int64_t kinds = options.vocabulary / 2 - 1;
  blank(into, options.length + 2);
  std::vector<int64_t> value_of;
  for (int64_t key = 0; key < kinds; ++key) value_of.push_back(kinds + below(numbers, kinds));
  std::vector<int64_t> seen;
  for (int64_t place = 0; place < options.length; place += 2) {
    const int64_t key = below(numbers, kinds);
    if (std::find(seen.begin(), seen.end(), key) == seen.end()) seen.push_back(key);
    id(into, place) = static_cast<uint16_t>(key);
    id(into, place + 1) = static_cast<uint16_t>(value_of[static_cast<size_t>(key)]);
  }
  const int64_t key = seen[static_cast<size_t>(below(numbers, static_cast<int64_t>(seen.size())))];
  id(into, options.length) = static_cast<uint16_t>(options.vocabulary - 1);
  id(into, options.length + 1) = static_cast<uint16_t>(key);
  ask_in_the_end(into, asked, value_of[static_cast<size_t>(key)]);
}

void draw_induction(const InductionOptions& options, Asked asked, Stream& numbers, ExampleBuffers& into) {
  const int64_t trigger = options.vocabulary - 1;
  blank(into, options.length);
  for (int64_t place = 0; place < options.length; ++place)
    id(into, place) = static_cast<uint16_t>(below(numbers, trigger));
  const int64_t first = below(numbers, options.length - 3);
  id(into, first) = id(into, options.length - 1) = static_cast<uint16_t>(trigger);
  ask_in_the_end(into, asked, id(into, first + 1));
}

void draw_copy(const CopyOptions& options, Stream& numbers, ExampleBuffers& into) {
  blank(into, options.length + options.tokens);
  std::vector<int64_t> places;
  if (options.variable) places = draw_distinct(numbers, options.length, options.tokens);
  std::sort(places.begin(), places.end());
  for (int64_t i = 0; i < options.tokens; ++i) {
    const int64_t token = 1 + below(numbers, options.vocabulary - 2);
    id(into, options.variable ? places[static_cast<size_t>(i)] : i) = static_cast<uint16_t>(token);
    id(into, options.length + i) = static_cast<uint16_t>(options.vocabulary - 1);
    ask(into, options.length + i, token);
  }
}

}  // namespace xformer::data
