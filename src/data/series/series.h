// Time series on their way from a file to a model: one clock for all variables of a case, gaps filled, every variable
// standardised by the training cases, one length for all, a dev split. Pure functions of sets in memory; statistics
// are taken in double.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "readers/time_series.h"

namespace xformer::data {

struct Series {
  std::vector<float> values;  // [length,variables]; NaN: missing
  int64_t length = 0, variables = 0;
  int64_t label = 0;
};

// The case on one clock. Dimensions longer than the shortest are subsampled: every k-th value, from the first, where
// the whole number k makes the lengths equal. No such k is a DataError that begins with `where`. Returns how many
// dimensions were subsampled.
int64_t align(const readers::SeriesCase& from, std::string_view where, Series& to);

struct Gaps {
  int64_t filled = 0;  // values
  int64_t empty = 0;   // variables without any value: they stay missing
};

// Missing values by linear interpolation within each variable, at either end by the nearest value.
Gaps fill_gaps(Series& series);

// Mean and sample deviation (n - 1) of every variable over all time steps of the cases.
struct SeriesStatistics {
  std::vector<double> mean, deviation;     // [variables]; both 0 for a variable that has one value throughout, or none
  [[nodiscard]] int64_t constant() const;  // such variables
};
[[nodiscard]] SeriesStatistics series_statistics(std::span<const Series> training);

// (x - mean) / (deviation + eps), eps being the spacing of doubles at 1. What is missing becomes 0, and so does a
// variable that is constant in training: a test value beside its one value has no scale. A value too far off for a
// float is a DataError.
void standardise(Series& series, const SeriesStatistics& statistics, std::string_view where);

enum class SeriesLength {
  kBoth,   // the longest series of training and test
  kTrain,  // the longest of training: longer ones are to be clipped
};
[[nodiscard]] int64_t model_length(std::span<const Series> training, std::span<const Series> test, SeriesLength rule);
// Keeps the first `length` steps; whether there were more.
bool clip(Series& series, int64_t length);

// For every label of the first header its place in the second, which may have another order but no other labels.
[[nodiscard]] std::vector<int64_t> match_labels(const std::vector<std::string>& labels,
                                                const std::vector<std::string>& training, std::string_view where);

inline constexpr uint64_t kSplitSeed = 1337;
inline constexpr double kDevShare = 0.2;

// Places of the cases on either side, ascending.
struct DevSplit {
  std::vector<int64_t> training, dev;
};
// The rounded share of every class goes to dev, drawn by the seed; a class of two or more cases keeps one on each side,
// a class of one stays in training. No class of two cases is a DataError.
[[nodiscard]] DevSplit stratified_split(std::span<const int64_t> labels, double dev_share = kDevShare,
                                        uint64_t seed = kSplitSeed);

}  // namespace xformer::data
