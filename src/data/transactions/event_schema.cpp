#include "data/transactions/event_schema.h"

#include "core/error.h"
#include "data/tables/schema_words.h"

namespace xformer::data {

EventSchema parse_event_schema(std::string_view text) {
  static const SchemaLanguage kLanguage{"event schema",
                                        "user=client date=day dates=days label=bad categorical=mcc amounts=sum",
                                        {"events", "users", "user", "date", "dates", "label", "asked", "positive",
                                         "negative", "categorical", "amounts", "ignore", "delimiter"}};
  const SchemaWords words(text, kLanguage);
  EventSchema schema;
  schema.events = words.item("events", schema.events);
  schema.users = words.item("users", schema.users);
  schema.user = words.item("user", schema.user);
  schema.date = words.item("date", schema.date);
  schema.label = words.item("label", schema.label);
  schema.asked = words.item("asked", schema.asked);
  using readers::DateFormat;
  if (words.has("dates")) {
    constexpr DateFormat kFormats[]{DateFormat::kIso, DateFormat::kShort, DateFormat::kDays, DateFormat::kSeconds};
    schema.dates = kFormats[words.choice("dates", {"iso", "yymmdd", "days", "seconds"})];
  }
  schema.positive = words.items("positive");
  schema.negative = words.items("negative");
  XF_CHECK(schema.positive.empty() == schema.negative.empty(), UserError,
           "event schema: expected both positive= and negative=, which together name every class, or neither");
  schema.categorical = words.items("categorical");
  schema.amounts = words.items("amounts");
  schema.ignore = words.items("ignore");
  schema.delimiter = words.delimiter();
  return schema;
}

}  // namespace xformer::data
