// Users and their events as two files have them: users with a class each and the day on which it is asked for, events
// with a user, a date and the columns of a schema. Kept are the newest events before that day, so memory is that of the
// events that a model sees.
#pragma once

#include <array>
#include <set>
#include <unordered_map>

#include "core/progress_callback.h"
#include "data/transactions/event_schema.h"

namespace xformer::data {

struct Event {
  int64_t time = 0;             // seconds (readers::parse_date)
  int64_t gap = 0;              // seconds since the event before, kept or not; 0 of the first
  int64_t order = 0;            // in the file: of two events of one time the earlier line's comes first
  std::vector<double> numbers;  // NaN: missing
  std::vector<int32_t> words;   // places in EventTable::words
};

struct User {
  std::string name, label;
  int64_t date = 0;                      // asked for its class; without such a column the time of the newest event
  std::vector<Event> events;             // oldest first
  std::vector<std::set<int32_t>> words;  // by column of words: those of all events, kept or not
  std::string where;                     // file and line
};

struct EventTable {
  std::vector<std::string> number_names, word_names;
  std::vector<bool> logarithmic;                // by number: an amount
  std::vector<std::vector<std::string>> words;  // by column of words: those that occur
  std::vector<User> users;                      // in the file's order; all have events
  std::vector<Path> files;
  int64_t users_without_events = 0, events_of_nobody = 0, events_too_late = 0, events_cut = 0;
};

struct EventFiles {
  Path events, users;
};
// In the folder, plain or .gz. DataError that says what is there.
[[nodiscard]] EventFiles find_event_files(const Path& folder, const EventSchema& schema);

// The newest `longest` events of every user. DataErrors name file and line; a column that the schema names twice is a
// UserError.
[[nodiscard]] EventTable read_events(const EventFiles& files, const EventSchema& schema, int64_t longest,
                                     const ProgressCallback& progress);

}  // namespace xformer::data
