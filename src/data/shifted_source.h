// A dataset whose sequences stand some places later than they did: what a model's answers owe to the places themselves
// (the slides' shift test, tasks-more 12).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/source.h"

namespace xformer::data {

struct Shift {
  std::string name;
  // true: the newest places are dropped and the oldest become padding; false: the newest come in front, cyclically.
  bool drop_newest = false;
  int64_t places = 1;
  std::string origin = "--shift";  // who asks, for messages
};
// "roll" or "drop-newest"; UserError with the nearest name.
[[nodiscard]] Shift parse_shift(const std::string& name, int64_t places = 1, const std::string& origin = "--shift");
// Of names separated by commas, each by one place.
[[nodiscard]] std::vector<Shift> parse_shifts(const std::string& names, const std::string& origin);

// UserError where there is an answer at every place, and for drop-newest where nothing means padding inside a sequence.
void check_shift(const Shift& shift, const DataShape& shape);
// `source` must outlive it; checked.
[[nodiscard]] std::unique_ptr<DataSource> shifted(const DataSource& source, const Shift& shift);

}  // namespace xformer::data
