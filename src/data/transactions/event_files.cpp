#include "data/transactions/event_files.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/names.h"
#include "core/text.h"
#include "core/utf8.h"
#include "data/what_is_there.h"

namespace xformer::data {
namespace {

using readers::NamedRowReader;
using Names = std::vector<std::string>;

constexpr double kLargest = 1e30;  // so that sums of squares are finite

// The places of columns by name, of which each may be asked for once.
class NamedColumns {
 public:
  NamedColumns(const Path& path, const Names& names) : path_(path), names_(names) {
    for (size_t i = 0; i < names.size(); ++i)
      XF_CHECK(std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) ==
                   names.begin() + static_cast<std::ptrdiff_t>(i),
               DataError, "{}: two columns are called {}", path.string(), xformer::quoted(names[i]));
  }
  [[nodiscard]] bool has(const std::string& name) const {
    return std::find(names_.begin(), names_.end(), name) != names_.end();
  }
  size_t take(const std::string& key, const std::string& name) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    const std::string near = nearest_name(name, names_);
    XF_CHECK(found != names_.end(), DataError, "{}: no column '{}', which the event schema means by {}; {}",
             path_.string(), name, key,
             near.empty() ? "there are " + first_names(names_, 12) : "did you mean '" + near + "'?");
    XF_CHECK(taken_.insert(name).second, UserError, "event schema: column '{}' is named more than once", name);
    return static_cast<size_t>(found - names_.begin());
  }
  // Of names not taken.
  [[nodiscard]] std::vector<size_t> rest() const {
    std::vector<size_t> result;
    for (size_t i = 0; i < names_.size(); ++i)
      if (!taken_.contains(names_[i])) result.push_back(i);
    return result;
  }

 private:
  const Path& path_;
  const Names& names_;
  std::set<std::string> taken_;
};

int64_t date_of(const NamedRowReader& rows, const std::string& column, std::string_view text,
                readers::DateFormat format) {
  static constexpr const char* kMeant[]{"a date like 1993-07-05 or 1993-07-05 13:45", "a date like 930705",
                                        "a number of days", "a number of seconds"};
  const auto date = readers::parse_date(text, format);
  XF_CHECK(date.has_value(), DataError,
           "{}: expected {} in {}, found {} (the schema's dates= says how they are written)", rows.where(),
           kMeant[static_cast<size_t>(format)], xformer::quoted(column), xformer::quoted(text));
  return *date;
}

// Also the places of users by name.
using Places = std::unordered_map<std::string, size_t>;

bool read_users(const Path& path, const EventSchema& schema, EventTable& table, Places& places) {
  NamedRowReader rows(path, schema.delimiter);
  NamedColumns columns(path, rows.columns());
  const size_t name = columns.take("user", schema.user), label = columns.take("label", schema.label);
  const bool dated = !schema.asked.empty() || columns.has(schema.date);
  const std::string asked = schema.asked.empty() ? schema.date : schema.asked;
  const size_t date = dated ? columns.take("asked", asked) : 0;
  for (std::vector<std::string_view> fields; rows.next(fields);) {
    User user{std::string(fields[name]), std::string(fields[label]), 0, {}, {}, rows.where()};
    XF_CHECK(!user.name.empty(), DataError, "{}: expected a user in {}, found an empty field", user.where,
             xformer::quoted(schema.user));
    XF_CHECK(!user.label.empty(), DataError, "{}: the user {} has no class in {}", user.where,
             xformer::quoted(user.name), xformer::quoted(schema.label));
    XF_CHECK(is_utf8(user.label), DataError, "{}: expected a class in UTF-8 in {}, found {}", user.where,
             xformer::quoted(schema.label), xformer::quoted(user.label));
    if (dated) user.date = date_of(rows, asked, fields[date], schema.dates);
    const auto [before, fresh] = places.emplace(user.name, table.users.size());
    XF_CHECK(fresh, DataError, "{}: the user {} again, who stands in {}", user.where, xformer::quoted(user.name),
             table.users[before->second].where);
    table.users.push_back(std::move(user));
  }
  XF_CHECK(!table.users.empty(), DataError, "{}: expected users, found none", path.string());
  return dated;
}

// The newest in their order, oldest first.
int64_t keep_newest(std::vector<Event>& events, int64_t longest) {
  std::sort(events.begin(), events.end(), [](const Event& one, const Event& other) {
    return std::pair(one.time, one.order) < std::pair(other.time, other.order);
  });
  const auto dropped = std::max<int64_t>(static_cast<int64_t>(events.size()) - longest, 0);
  events.erase(events.begin(), events.begin() + dropped);
  return dropped;
}

}  // namespace

EventFiles find_event_files(const Path& folder, const EventSchema& schema) {
  XF_CHECK(std::filesystem::is_directory(folder), DataError,
           "--data: expected a folder, found the file {}; an archive is to be unpacked first", folder.string());
  const auto find = [&](const std::string& given, const char* stem) {
    const Names names = given.empty() ? Names{std::string(stem) + ".csv", std::string(stem) + ".jsonl"} : Names{given};
    for (const std::string& name : names)
      for (const char* const ending : {"", ".gz"})
        if (const Path path = folder / (name + ending); std::filesystem::is_regular_file(path)) return path;
    throw DataError(fmt::format("no file of {} in {}: expected {} (or .gz); {}", stem, folder.string(),
                                fmt::join(names, " or "), what_is_there(folder)));
  };
  return {find(schema.events, "events"), find(schema.users, "users")};
}

EventTable read_events(const EventFiles& files, const EventSchema& schema, int64_t longest,
                       const ProgressCallback& progress) {
  EventTable table;
  table.files = {files.events, files.users};
  Places places;
  const bool dated = read_users(files.users, schema, table, places);

  NamedRowReader rows(files.events, schema.delimiter);
  NamedColumns columns(files.events, rows.columns());
  const size_t name = columns.take("user", schema.user), date = columns.take("date", schema.date);
  std::vector<size_t> words, numbers;
  for (const std::string& column : schema.ignore) static_cast<void>(columns.take("ignore", column));
  for (const std::string& column : schema.categorical) words.push_back(columns.take("categorical", column));
  for (const std::string& column : schema.amounts) numbers.push_back(columns.take("amounts", column));
  const size_t amounts = numbers.size();
  for (const size_t column : columns.rest()) numbers.push_back(column);
  for (const size_t column : words) table.word_names.push_back(rows.columns()[column]);
  for (const size_t column : numbers) {
    table.logarithmic.push_back(table.number_names.size() < amounts);
    table.number_names.push_back(rows.columns()[column]);
  }

  std::vector<std::unordered_map<std::string, int32_t>> known(words.size());
  table.words.resize(words.size());
  const uint64_t size = std::filesystem::file_size(files.events);
  int64_t count = 0;
  for (std::vector<std::string_view> fields; rows.next(fields); ++count) {
    if (progress && count % 65536 == 0) progress("reading events", rows.bytes_read(), size);
    Event event{date_of(rows, schema.date, fields[date], schema.dates), 0, count, {}, {}};
    const auto place = places.find(std::string(fields[name]));
    if (place == places.end()) {
      ++table.events_of_nobody;
      continue;
    }
    User& user = table.users[place->second];
    user.words.resize(words.size());
    if (dated && event.time >= user.date) {
      ++table.events_too_late;
      continue;
    }
    for (const size_t column : numbers) {
      const auto value = readers::parse_number(fields[column]);
      XF_CHECK(value ? std::abs(*value) < kLargest : fields[column].empty(), DataError,
               "{}: expected a number below {:g} in {}, found {} (columns of words go into categorical=)", rows.where(),
               kLargest, xformer::quoted(rows.columns()[column]), xformer::quoted(fields[column]));
      event.numbers.push_back(value.value_or(NAN));
    }
    for (size_t i = 0; i < words.size(); ++i) {
      const std::string word(trim(fields[words[i]]));
      const auto [found, fresh] = known[i].emplace(word, static_cast<int32_t>(known[i].size()));
      XF_CHECK(!fresh || is_utf8(word), DataError, "{}: expected text in UTF-8 in {}, found {}", rows.where(),
               xformer::quoted(table.word_names[i]), xformer::quoted(word));
      if (fresh) table.words[i].push_back(word);
      event.words.push_back(found->second);
      user.words[i].insert(found->second);
    }
    user.events.push_back(std::move(event));
    // One more than are kept, whose time the oldest's gap is measured from.
    if (static_cast<int64_t>(user.events.size()) > 2 * longest + 1)
      table.events_cut += keep_newest(user.events, longest + 1);
  }
  XF_CHECK(count > 0, DataError, "{}: expected events, found none", files.events.string());

  for (User& user : table.users) {
    table.events_cut += keep_newest(user.events, longest + 1);
    for (size_t i = 1; i < user.events.size(); ++i) user.events[i].gap = user.events[i].time - user.events[i - 1].time;
    table.events_cut += keep_newest(user.events, longest);
    if (!dated && !user.events.empty()) user.date = user.events.back().time;
  }
  table.users_without_events =
      static_cast<int64_t>(std::erase_if(table.users, [](const User& user) { return user.events.empty(); }));
  XF_CHECK(!table.users.empty(), DataError, "{}: no user of {} has an event{} in it: are the users' names the same?",
           files.events.string(), files.users.string(), dated ? " before his date" : "");
  return table;
}

}  // namespace xformer::data
