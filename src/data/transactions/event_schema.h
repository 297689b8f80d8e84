// Which columns of which files are a user's events and what is to be predicted of users, in words:
// "user=client date=day dates=days label=defaulted categorical=mcc,type amounts=sum".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "readers/named_rows.h"

namespace xformer::data {

struct EventSchema {
  std::string events, users;  // the files' names, .gz apart; "": events.csv or events.jsonl, likewise users
  std::string user = "user";  // column of the user's name, in both files
  std::string date = "date";  // of an event
  readers::DateFormat dates = readers::DateFormat::kIso;
  std::string label = "label";  // column of users: the class
  std::string asked;            // of users: the day from which on nothing is known; "": `date` where users have it
  std::vector<std::string> positive, negative;  // classes that are meant by 1 and 0; none: as they are
  // Columns of events: words, numbers of which the logarithm is taken, no matter. All others hold numbers.
  std::vector<std::string> categorical, amounts, ignore;
  char delimiter = ',';
};

// UserErrors say what was expected and the nearest name. "" is a schema, too.
[[nodiscard]] EventSchema parse_event_schema(std::string_view text);

}  // namespace xformer::data
