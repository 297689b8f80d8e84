// Generated users for whom the order of events is all there is to learn (tasks-more 12): pairs of the kinds A and B
// stand among events of other kinds, and the class says which of the two comes first. With the two events of every pair
// exchanged a user is one of the other class, as likely, with the same events: no function of the bag of events tells
// the classes apart.
#pragma once

#include "data/generated_source.h"

namespace xformer::data {

struct StandInOptions : GeneratedSizes {
  StandInOptions() { train_examples = 20000, dev_examples = test_examples = 2000; }
  int64_t length = 350;      // events of a user at most
  double mean_events = 250;  // their number is of Poisson's distribution, cut to what pairs need and to the length
  int64_t kinds = 20;        // of events: A, B and others
  int64_t pairs = 12;        // of A and B; none overlap
  int64_t distance = 4;      // from the first of a pair to the second, at most
};

// At each place: amount, days since the event before, then the codes of kind and channel.
inline constexpr int64_t kStandInNumbers = 2, kStandInWidth = 4, kStandInChannels = 4;
inline constexpr int64_t kKindA = 2, kKindB = 3;  // codes; those below are padding and unknown words (event_features.h)

[[nodiscard]] DataShape stand_in_shape(const StandInOptions& options);
// UserError for more pairs than there is room for.
void check_stand_in(const StandInOptions& options);
// Events of a user; class 1: A first. Nothing else is drawn otherwise for the other class.
void draw_stand_in(const StandInOptions& options, int64_t label, Stream& numbers, std::vector<float>& values);
// What is wrong with a user's events and class; "" for nothing.
[[nodiscard]] std::string stand_in_fault(const StandInOptions& options, std::span<const float> values, int64_t label);

}  // namespace xformer::data
