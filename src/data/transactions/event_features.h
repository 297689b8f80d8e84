// From users' events to what a model reads (attention-more 17), fitted on the training users alone: at each place
// numbers, standardised, the last of them the days since the event before, and then codes of words.
#pragma once

#include <span>

#include "data/source.h"
#include "data/transactions/event_files.h"

namespace xformer::data {

inline constexpr int64_t kNoEventCode = 0, kUnknownWordCode = 1;  // of padding; of a word that no training user has

struct EventMaps {
  std::vector<double> mean, scale;              // by number, the gap last: (x - mean) * scale
  std::vector<std::vector<int64_t>> codes;      // by column of words: of each word of the table
  std::vector<std::vector<std::string>> known;  // the words with codes from 2 on
  std::vector<int64_t> sizes;                   // how many codes there are
};

// `users` are places in the table. An amount x counts as sign(x) log(1 + |x|), a gap of d days as log(1 + d); mean and
// population deviation are over all their events, missing numbers left out. Words are coded in the order of their
// letters, those of events that were cut, too: codes and their number are those of every length, so weights are, too.
[[nodiscard]] EventMaps fit_events(const EventTable& table, std::span<const int64_t> users);

// [events, numbers + 1 + words]; a missing number is the mean.
void encode_events(const EventTable& table, const EventMaps& maps, const User& user, std::vector<float>& values);

// What codes as the last numbers of each place mean (DataShape::categories beside a width above 1).
[[nodiscard]] DataShape events_shape(int64_t longest, int64_t numbers, const std::vector<int64_t>& code_sizes,
                                     int64_t classes);

struct TimeSplit {
  std::vector<int64_t> train, dev, test;  // places, ascending
};
struct TimeSplitOptions {
  double test_share = 0.25, dev_share = 0.2;  // of all; of those before the test users
  bool latest_dev = false;                    // the latest of those; false: drawn by class
  uint64_t seed = 0;
};
// Users asked last are test users, all of one date together: every other user was asked before any of them.
// DataError where that leaves nobody on one of the sides.
[[nodiscard]] TimeSplit out_of_time_split(std::span<const int64_t> dates, std::span<const int64_t> classes,
                                          const TimeSplitOptions& options);

}  // namespace xformer::data
