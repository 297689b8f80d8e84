#include "data/series/series.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/names.h"
#include "core/random.h"
#include "core/text.h"

namespace xformer::data {
namespace {

size_t at(const Series& series, int64_t step, int64_t variable) {
  return static_cast<size_t>(step * series.variables + variable);
}

int64_t longest(std::span<const Series> cases) {
  int64_t length = 0;
  for (const Series& series : cases) length = std::max(length, series.length);
  return length;
}

}  // namespace

int64_t align(const readers::SeriesCase& from, std::string_view where, Series& to) {
  XF_ASSERT(!from.dimensions.empty(), "a case has dimensions");
  size_t shortest = from.dimensions.front().size();
  for (const auto& dimension : from.dimensions) shortest = std::min(shortest, dimension.size());
  XF_ASSERT(shortest > 0, "a dimension has values");
  to.length = static_cast<int64_t>(shortest);
  to.variables = static_cast<int64_t>(from.dimensions.size());
  to.label = from.label;
  to.values.resize(shortest * from.dimensions.size());
  int64_t subsampled = 0;
  for (size_t d = 0; d < from.dimensions.size(); ++d) {
    const std::vector<float>& values = from.dimensions[d];
    const size_t factor = (values.size() + shortest - 1) / shortest;  // the only one that may fit
    XF_CHECK((values.size() + factor - 1) / factor == shortest, DataError,
             "{}: expected dimensions whose lengths are whole multiples of the shortest's {} values, so that every "
             "k-th value can be taken; found {} values in dimension {}",
             where, shortest, values.size(), d + 1);
    subsampled += factor > 1 ? 1 : 0;
    for (size_t step = 0; step < shortest; ++step) to.values[step * from.dimensions.size() + d] = values[step * factor];
  }
  return subsampled;
}

Gaps fill_gaps(Series& series) {
  Gaps gaps;
  for (int64_t variable = 0; variable < series.variables; ++variable) {
    const auto value = [&](int64_t step) -> float& { return series.values[at(series, step, variable)]; };
    int64_t before = -1;  // the last step that had a value
    for (int64_t step = 0; step < series.length; ++step) {
      if (std::isnan(value(step))) continue;
      const double right = value(step);
      const double left = before < 0 ? right : double{value(before)};
      for (int64_t gap = before + 1; gap < step; ++gap, ++gaps.filled) {
        const double share = static_cast<double>(gap - before) / static_cast<double>(step - before);
        value(gap) = static_cast<float>(left + (right - left) * share);
      }
      before = step;
    }
    if (before < 0) ++gaps.empty;
    else
      for (int64_t gap = before + 1; gap < series.length; ++gap, ++gaps.filled) value(gap) = value(before);
  }
  return gaps;
}

int64_t SeriesStatistics::constant() const { return std::count(deviation.begin(), deviation.end(), 0.0); }

SeriesStatistics series_statistics(std::span<const Series> training) {
  XF_ASSERT(!training.empty(), "statistics are taken of training cases");
  const auto variables = static_cast<size_t>(training.front().variables);
  SeriesStatistics result{std::vector<double>(variables), std::vector<double>(variables)};
  std::vector<int64_t> count(variables);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> least(variables, kInfinity), most(variables, -kInfinity);
  const auto for_each_value = [&](const auto& action) {
    for (const Series& series : training) {
      XF_ASSERT(static_cast<size_t>(series.variables) == variables, "all cases have the same variables");
      for (size_t i = 0; i < series.values.size(); ++i)
        if (!std::isnan(series.values[i])) action(i % variables, series.values[i]);
    }
  };
  for_each_value([&](size_t variable, float value) {
    ++count[variable];
    result.mean[variable] += value;
    least[variable] = std::min(least[variable], value);
    most[variable] = std::max(most[variable], value);
  });
  for (size_t v = 0; v < variables; ++v) result.mean[v] /= static_cast<double>(std::max<int64_t>(count[v], 1));
  for_each_value([&](size_t variable, float value) {
    const double distance = value - result.mean[variable];
    result.deviation[variable] += distance * distance;
  });
  for (size_t v = 0; v < variables; ++v) {
    // By its values, not by a sum of rounded squares.
    if (least[v] < most[v]) result.deviation[v] = std::sqrt(result.deviation[v] / static_cast<double>(count[v] - 1));
    else result.mean[v] = result.deviation[v] = 0;
  }
  return result;
}

void standardise(Series& series, const SeriesStatistics& statistics, std::string_view where) {
  const size_t variables = statistics.mean.size();
  XF_ASSERT(static_cast<size_t>(series.variables) == variables, "{} variables, statistics of {}", series.variables,
            variables);
  constexpr double kMost = std::numeric_limits<float>::max(), kEps = std::numeric_limits<double>::epsilon();
  for (size_t i = 0; i < series.values.size(); ++i) {
    const size_t variable = i % variables;
    const double deviation = statistics.deviation[variable];
    float& value = series.values[i];
    if (std::isnan(value) || deviation == 0) {
      value = 0;
      continue;
    }
    const double result = (value - statistics.mean[variable]) / (deviation + kEps);
    XF_CHECK(std::abs(result) <= kMost, DataError,
             "{}: expected values of dimension {} on the scale of the training cases (mean {}, deviation {}), found {}",
             where, variable + 1, statistics.mean[variable], deviation, value);
    value = static_cast<float>(result);
  }
}

int64_t model_length(std::span<const Series> training, std::span<const Series> test, SeriesLength rule) {
  const int64_t length = longest(training);
  return rule == SeriesLength::kTrain ? length : std::max(length, longest(test));
}

bool clip(Series& series, int64_t length) {
  if (series.length <= length) return false;
  series.length = length;
  series.values.resize(at(series, length, 0));
  return true;
}

std::vector<int64_t> match_labels(const std::vector<std::string>& labels, const std::vector<std::string>& training,
                                  std::string_view where) {
  std::vector<int64_t> places;
  for (const std::string& label : labels) {
    const auto found = std::find(training.begin(), training.end(), label);
    XF_CHECK(found != training.end(), DataError,
             "{}: expected the class labels of the training file ({}), found {} in the header", where,
             first_names(training), xformer::quoted(label));
    places.push_back(found - training.begin());
  }
  return places;
}

DevSplit stratified_split(std::span<const int64_t> labels, double dev_share, uint64_t seed) {
  XF_ASSERT(dev_share > 0 && dev_share < 1, "share {}", dev_share);
  std::map<int64_t, std::vector<int64_t>> classes;
  for (size_t i = 0; i < labels.size(); ++i) classes[labels[i]].push_back(static_cast<int64_t>(i));
  DevSplit split;
  for (auto& [label, places] : classes) {
    // Every class draws from a stream of its own, so that what one holds does not move the others.
    Stream stream(derive_seed(seed, "data/dev-split"), static_cast<uint64_t>(label));
    for (size_t i = places.size(); i > 1; --i) std::swap(places[i - 1], places[stream.next_below(i)]);
    const auto count = static_cast<int64_t>(places.size());
    const int64_t share = std::llround(dev_share * static_cast<double>(count));
    const int64_t in_dev = count < 2 ? 0 : std::clamp<int64_t>(share, 1, count - 1);
    split.dev.insert(split.dev.end(), places.begin(), places.begin() + in_dev);
    split.training.insert(split.training.end(), places.begin() + in_dev, places.end());
  }
  XF_CHECK(!split.dev.empty(), DataError,
           "expected a class of at least two training cases to take a dev split from, found {} cases of {} classes",
           labels.size(), classes.size());
  std::sort(split.dev.begin(), split.dev.end());
  std::sort(split.training.begin(), split.training.end());
  return split;
}

}  // namespace xformer::data
