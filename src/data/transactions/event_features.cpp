#include "data/transactions/event_features.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "data/series/series.h"

namespace xformer::data {
namespace {

constexpr double kDay = 86400;

// Of an event's numbers, the gap last.
double number_of(const EventTable& table, const Event& event, size_t at) {
  if (at == event.numbers.size()) return std::log1p(static_cast<double>(event.gap) / kDay);
  const double value = event.numbers[at];
  return table.logarithmic[at] ? std::copysign(std::log1p(std::abs(value)), value) : value;
}

// How many of the places, sorted by date, are the first `share` of them; fewer where a date would be on both sides.
size_t dates_up_to(std::span<const int64_t> dates, const std::vector<int64_t>& order, double share) {
  auto count = static_cast<size_t>(std::llround(share * static_cast<double>(order.size())));
  const auto date = [&](size_t at) { return dates[static_cast<size_t>(order[at])]; };
  while (count > 0 && count < order.size() && date(count - 1) == date(count)) --count;
  return count;
}

}  // namespace

EventMaps fit_events(const EventTable& table, std::span<const int64_t> users) {
  EventMaps maps;
  for (size_t at = 0; at <= table.number_names.size(); ++at) {
    const auto mean_of = [&](const auto& of) {
      double sum = 0, count = 0;
      for (const int64_t user : users)
        for (const Event& event : table.users[static_cast<size_t>(user)].events)
          if (const double value = number_of(table, event, at); !std::isnan(value)) sum += of(value), ++count;
      return count > 0 ? sum / count : 0;
    };
    const double mean = mean_of([](double value) { return value; });
    const double deviation = std::sqrt(mean_of([&](double value) { return (value - mean) * (value - mean); }));
    maps.mean.push_back(mean);
    maps.scale.push_back(deviation > 1e-9 * std::abs(mean) ? 1 / deviation : 0);  // 0: all are the same
  }
  for (size_t column = 0; column < table.words.size(); ++column) {
    const std::vector<std::string>& words = table.words[column];
    std::vector<int64_t>& codes = maps.codes.emplace_back(words.size(), kUnknownWordCode);
    std::vector<bool> occurs(words.size());
    for (const int64_t user : users)
      for (const int32_t word : table.users[static_cast<size_t>(user)].words[column])
        occurs[static_cast<size_t>(word)] = true;
    std::vector<size_t> order;
    for (size_t i = 0; i < words.size(); ++i)
      if (occurs[i]) order.push_back(i);
    std::sort(order.begin(), order.end(), [&](size_t one, size_t other) { return words[one] < words[other]; });
    std::vector<std::string>& known = maps.known.emplace_back();
    for (const size_t i : order) {
      codes[i] = kUnknownWordCode + 1 + static_cast<int64_t>(known.size());
      known.push_back(words[i]);
    }
    maps.sizes.push_back(kUnknownWordCode + 1 + static_cast<int64_t>(known.size()));
  }
  return maps;
}

void encode_events(const EventTable& table, const EventMaps& maps, const User& user, std::vector<float>& values) {
  values.clear();
  for (const Event& event : user.events) {
    for (size_t at = 0; at < maps.mean.size(); ++at) {
      const double value = (number_of(table, event, at) - maps.mean[at]) * maps.scale[at];
      values.push_back(std::isnan(value) ? 0 : static_cast<float>(value));
    }
    for (size_t column = 0; column < maps.codes.size(); ++column)
      values.push_back(static_cast<float>(maps.codes[column][static_cast<size_t>(event.words[column])]));
  }
}

DataShape events_shape(int64_t longest, int64_t numbers, const std::vector<int64_t>& code_sizes, int64_t classes) {
  DataShape shape;
  shape.max_len = longest;
  shape.width = numbers + static_cast<int64_t>(code_sizes.size());
  shape.categories = code_sizes;
  shape.target = classes == 2 ? binary_target() : class_target(classes);
  if (classes == 2) shape.target.parameters["headline"] = "gini";
  return shape;
}

TimeSplit out_of_time_split(std::span<const int64_t> dates, std::span<const int64_t> classes,
                            const TimeSplitOptions& options) {
  std::vector<int64_t> order(dates.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t one, int64_t other) {
    return dates[static_cast<size_t>(one)] < dates[static_cast<size_t>(other)];
  });
  const auto sorted = [](auto begin, auto end) {
    std::vector<int64_t> places(begin, end);
    std::sort(places.begin(), places.end());
    return places;
  };
  TimeSplit split;
  const size_t before = dates_up_to(dates, order, 1 - options.test_share);
  const auto cut = order.begin() + static_cast<std::ptrdiff_t>(before);
  split.test = sorted(cut, order.end());
  order.erase(cut, order.end());
  if (options.latest_dev) {
    const auto middle = order.begin() + static_cast<std::ptrdiff_t>(dates_up_to(dates, order, 1 - options.dev_share));
    split.train = sorted(order.begin(), middle);
    split.dev = sorted(middle, order.end());
  } else if (!order.empty()) {
    order = sorted(order.begin(), order.end());
    std::vector<int64_t> labels;
    for (const int64_t place : order) labels.push_back(classes[static_cast<size_t>(place)]);
    const DevSplit drawn = stratified_split(labels, options.dev_share, options.seed);
    for (const int64_t at : drawn.training) split.train.push_back(order[static_cast<size_t>(at)]);
    for (const int64_t at : drawn.dev) split.dev.push_back(order[static_cast<size_t>(at)]);
  }
  XF_CHECK(!split.train.empty() && !split.dev.empty() && !split.test.empty(), DataError,
           "{} users, divided by the date on which they are asked for, are {} for training, {} for dev and {} for the "
           "test: expected some of each; are there enough dates?",
           dates.size(), split.train.size(), split.dev.size(), split.test.size());
  return split;
}

}  // namespace xformer::data
