// Default prediction from a user's events, as a bank has them (tasks-more 12): `transactions/<name>` from files with a
// schema, and `transactions` from files or, without any, from a generator of users whom only the order of their events
// tells apart. Test users are asked later than all others.
#include <map>

#include "core/error.h"
#include "core/names.h"
#include "core/text.h"
#include "data/cache/cache.h"
#include "data/cache/packed_files.h"
#include "data/check.h"
#include "data/transactions/event_features.h"
#include "data/transactions/event_files.h"
#include "data/transactions/stand_in.h"
#include "data/two_positions.h"
#include "data/what_is_there.h"

namespace xformer::data::adapters::transactions {
namespace {

constexpr int64_t kAdapterVersion = 1;  // part of the cache's key: raise it when the content made here changes

// The bank of the PKDD'99 discovery challenge: loans that were paid or run well (A, C) against those in default or debt
// (B, D).
constexpr const char* kBerka =
    "events=trans.asc users=loan.asc user=account_id date=date dates=yymmdd asked=date label=status positive=B,D "
    "negative=A,C categorical=type,operation,k_symbol,bank amounts=amount,balance ignore=trans_id,account "
    "delimiter=semicolon";

constexpr const char* kGapName = "days since the event before";

struct Options : StandInOptions {
  std::string schema, dev = "random";
  double test_share = 0.25, dev_share = 0.2;
  int64_t split_seed = 0;
};

const Schema<Options>& file_schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add<int64_t>(&Options::length, "length", "events of a user that a model reads, the newest ones",
                        between(1, 1e6))
          .add(&Options::schema, "schema",
               "columns of the files of users and of events: user=NAME date=NAME dates=iso|yymmdd|days|seconds "
               "label=NAME [asked=NAME] [positive=A,B negative=C,D] [categorical=E,F] [amounts=G] [ignore=H] "
               "[events=FILE] [users=FILE] [delimiter=comma|tab|semicolon]; all other columns of events hold numbers")
          .add(&Options::test_share, "test_share", "share of the users, those asked last, who are for the test",
               between(0.01, 0.99))
          .add(&Options::dev_share, "dev_share", "share of the other users who are for dev", between(0.01, 0.99))
          .add(&Options::dev, "dev", "dev users: drawn by class, or the latest of those before the test",
               one_of({"random", "latest"}))
          .add(&Options::split_seed, "split_seed", "seed of the drawn dev users, apart from the run's seed",
               at_least(0));
  return kSchema;
}

const Schema<StandInOptions>& generator_schema() {
  static const Schema<StandInOptions> kSchema =
      sizes_schema<StandInOptions>()
          .add(&StandInOptions::mean_events, "mean_events", "generated events of a user, on average", between(1, 1e6))
          .add(&StandInOptions::kinds, "kinds", "kinds of generated events, two of which come in pairs",
               between(3, 10000))
          .add(&StandInOptions::pairs, "pairs", "generated pairs, whose order is the class", at_least(1))
          .add(&StandInOptions::distance, "distance", "events from the first of a pair to the second, at most",
               at_least(1));
  return kSchema;
}

const Schema<Options>& whole_schema() {
  static const Schema<Options> kSchema = Schema<Options>().include(file_schema()).include(generator_schema());
  return kSchema;
}

// Names by class id, and the id of a user's.
struct Classes {
  Classes(const EventTable& table, const EventSchema& schema) {
    if (schema.positive.empty()) {
      for (const User& user : table.users) ids.emplace(user.label, 0);
      for (auto& [name, id] : ids) id = static_cast<int64_t>(names.size()), names.push_back(name);
      XF_CHECK(names.size() > 1, DataError, "{}: all users with events are of the class {}, expected two at least",
               table.files[1].string(), xformer::quoted(names[0]));
      return;
    }
    for (const std::string& name : schema.negative) ids[name] = 0;
    for (const std::string& name : schema.positive) ids[name] = 1;
    names = {fmt::format("{}", fmt::join(schema.negative, "/")), fmt::format("{}", fmt::join(schema.positive, "/"))};
  }
  [[nodiscard]] int64_t of(const User& user) const {
    const auto found = ids.find(user.label);
    XF_CHECK(found != ids.end(), DataError, "{}: the class {} is none of {} and {}, which the schema names", user.where,
             xformer::quoted(user.label), names[0], names[1]);
    return found->second;
  }
  std::map<std::string, int64_t> ids;
  std::vector<std::string> names;
};

void pack(const EventFiles& files, const EventSchema& columns, const Options& options, const AddExample& add,
          DataInfo& info, const ProgressCallback& progress) {
  const EventTable table = read_events(files, columns, options.length, progress);
  const Classes classes(table, columns);
  std::vector<int64_t> dates, labels;
  for (const User& user : table.users) {
    dates.push_back(user.date);
    labels.push_back(classes.of(user));
  }
  const TimeSplit split = out_of_time_split(
      dates, labels,
      {options.test_share, options.dev_share, options.dev == "latest", static_cast<uint64_t>(options.split_seed)});
  const EventMaps maps = fit_events(table, split.train);
  std::vector<std::string> numbers = table.number_names;
  numbers.emplace_back(kGapName);
  info.origin = "files";
  info.shape = events_shape(options.length, static_cast<int64_t>(numbers.size()), maps.sizes,
                            static_cast<int64_t>(classes.names.size()));
  // Their split is not known: it follows from those who have events.
  if (table.users_without_events > 0)
    info.dropped.push_back({Split::kTrain, "users without an event before they are asked", table.users_without_events});
  info.details = {{"files", file_facts(table.files)},
                  {"classes", classes.names},
                  {"numeric_columns", numbers},
                  {"categorical_columns", table.word_names},
                  {"words", maps.known},
                  {"dev", options.dev},
                  {"events_of_nobody", table.events_of_nobody},
                  {"events_too_late", table.events_too_late},
                  {"events_cut", table.events_cut}};
  std::vector<float> values;
  const auto put = [&](Split which, const std::vector<int64_t>& places) {
    Json& range = info.details["asked"][split_name(which)];
    for (const int64_t place : places) {
      const User& user = table.users[static_cast<size_t>(place)];
      encode_events(table, maps, user, values);
      add(which, {{}, values, labels[static_cast<size_t>(place)]});
      if (range.is_null()) range = {user.date, user.date};
      range = {std::min(range[0].get<int64_t>(), user.date), std::max(range[1].get<int64_t>(), user.date)};
    }
  };
  put(Split::kTrain, split.train);
  put(Split::kDev, split.dev);
  put(Split::kTest, split.test);
}

std::unique_ptr<DataSource> open_files(const std::string& name, const Options& options, const DataLocation& location,
                                       const ProgressCallback& progress) {
  require_folder(name, "events.csv and users.csv (or .jsonl, or .gz), or the files that data.schema names", location);
  const EventSchema columns = parse_event_schema(options.schema);
  const EventFiles files =
      find_or_offer(location.folder, [&](const Path& folder) { return find_event_files(folder, columns); });
  Json key = file_schema().write(options);
  key.update({{"adapter", kAdapterVersion}, {"files", file_identity({files.events, files.users})}});
  const auto build = [&](const AddExample& add, DataInfo& info) { pack(files, columns, options, add, info, progress); };
  return open_cached({location.cache, canonical_name(name), key}, build, progress);
}

std::unique_ptr<DataSource> open_generated(const StandInOptions& options) {
  check_stand_in(options);
  GeneratedExamples examples{"transactions",
                             2,
                             generator_schema().write(options),
                             static_cast<uint64_t>(options.generator_seed),
                             stand_in_shape(options),
                             {options.train_examples, options.dev_examples, options.test_examples},
                             {}};
  examples.settings["length"] = options.length;
  examples.make = [options](Stream& numbers, ExampleBuffers& into) {
    const auto label = static_cast<int64_t>(numbers.next_below(2));
    draw_stand_in(options, label, numbers, into.values);
    return Example{{}, into.values, label};
  };
  return generated_source(std::move(examples));
}

CheckReport check_files(const DataSource& source, readers::DateFormat dates) {
  const Json& details = source.info().details;
  CheckReport report;
  const auto range = [&](Split split, int at) {
    return details["asked"][split_name(split)][static_cast<size_t>(at)].get<int64_t>();
  };
  const int64_t last = std::max(range(Split::kTrain, 1), range(Split::kDev, 1)), first = range(Split::kTest, 0);
  report.add("test users are asked later than all others", last < first ? CheckOutcome::kPassed : CheckOutcome::kFailed,
             fmt::format("the last of train and dev on {}, the first of test on {}", readers::date_text(last, dates),
                         readers::date_text(first, dates)));
  for (const Dropped& dropped : source.info().dropped)
    report.add("every user has events", CheckOutcome::kNote, fmt::format("{}: {}", dropped.reason, dropped.count));
  const auto note = [&](const char* claim, const char* fact, const char* what) {
    if (const int64_t count = details[fact]; count > 0)
      report.add(claim, CheckOutcome::kNote, fmt::format("{}: {}", what, count));
  };
  note("every event is a user's", "events_of_nobody", "events of users who have no class, left out");
  note("no event is of later than what is asked", "events_too_late",
       "events on or after the date on which their user is asked for, left out");
  note("no user has more events than a model reads", "events_cut", "older events beyond data.length, cut");
  check_duplicates(source, report);
  describe_splits(source, report);
  return report;
}

std::string show(const Example& example, const DataInfo& info) {
  const DataShape& shape = info.shape;
  const int64_t length = example_length(example, shape), shown = std::min<int64_t>(length, 8);
  const Json standard{{"numeric_columns", {"amount", kGapName}}, {"categorical_columns", {"kind", "channel"}}};
  const Json& names = info.details.contains("numeric_columns") ? info.details : standard;
  const size_t numbers = names["numeric_columns"].size();
  std::string text;
  for (int64_t place = length - shown; place < length; ++place) {
    const auto value = [&](size_t at) { return example.values[static_cast<size_t>(place * shape.width) + at]; };
    text += fmt::format("{:6}", place);
    for (size_t i = 0; i < numbers; ++i)
      text += fmt::format("  {} {:.3f}", names["numeric_columns"][i].get<std::string>(), value(i));
    for (size_t i = 0; i < names["categorical_columns"].size(); ++i) {
      const auto code = static_cast<int64_t>(value(numbers + i));
      const bool known = info.details.contains("words") && code > kUnknownWordCode;
      text += fmt::format("  {} {}", names["categorical_columns"][i].get<std::string>(),
                          known ? info.details["words"][i][static_cast<size_t>(code - kUnknownWordCode - 1)].dump()
                                : std::to_string(code));
    }
    text += '\n';
  }
  const Json classes = info.details.value("classes", Json{"B first", "A first"});
  return fmt::format("{}the last {} of {} events (numbers standardised), label {} ({})", text, shown, length,
                     example.label, classes[static_cast<size_t>(example.label)].get<std::string>());
}

// Of files. `known`: the schema where data.schema is not set.
DatasetDescriptor descriptor(const std::string& name, const std::string& known) {
  DatasetDescriptor result;
  result.name = "transactions/" + name;
  result.title = "users by their events: files as data.schema says";
  result.paper = "slides Efficient transformers";
  result.source = "CSV or JSON lines of users and of their events, with data.schema";
  result.options = file_schema().options();
  result.accepts_length = true;
  result.shape_is_likely = true;
  const auto read = [known](const Json& given) {
    Options options = file_schema().read(given);
    if (options.schema.empty()) options.schema = known;
    return options;
  };
  result.shape = [read](const Json& given) { return stand_in_shape(read(given)); };
  result.check_options = [read](const Json& given) { static_cast<void>(parse_event_schema(read(given).schema)); };
  const std::string task = result.name;
  result.open = [task, read](const Json& given, const DataLocation& location, const ProgressCallback& progress) {
    return open_files(task, read(given), location, progress);
  };
  result.check = [task, read](const Json& given, const DataLocation& location, const ProgressCallback& progress) {
    const Options options = read(given);
    return check_files(*open_files(task, options, location, progress), parse_event_schema(options.schema).dates);
  };
  result.show = show;
  return result;
}

// Of files, or without any of the generator.
DatasetDescriptor files_or_generator() {
  DatasetDescriptor result = descriptor("", "");
  result.name = "transactions";
  result.title = "users by their events: files, or generated ones";
  result.source = "generated; or " + result.source;
  result.options = whole_schema().options();
  for (const OptionInfo& option : generator_schema().options()) result.generator_options.push_back(option.name);
  result.generated = true;
  result.shape = [](const Json& given) { return stand_in_shape(whole_schema().read(given)); };
  result.check_options = [](const Json& given) {
    static_cast<void>(parse_event_schema(whole_schema().read(given).schema));
  };
  result.check_generator = [](const Json& given) { check_stand_in(whole_schema().read(given)); };
  result.open = [](const Json& given, const DataLocation& location,
                   const ProgressCallback& progress) -> std::unique_ptr<DataSource> {
    const Options options = whole_schema().read(given);
    return location.folder.empty() ? open_generated(options) : open_files("transactions", options, location, progress);
  };
  result.check = [](const Json& given, const DataLocation& location, const ProgressCallback& progress) {
    const Options options = whole_schema().read(given);
    if (!location.folder.empty())
      return check_files(*open_files("transactions", options, location, progress),
                         parse_event_schema(options.schema).dates);
    CheckReport report;
    check_generated(*open_generated(options), report, progress,
                    [&](const Example& example) { return stand_in_fault(options, example.values, example.label); });
    return report;
  };
  return result;
}

}  // namespace

std::vector<DatasetDescriptor> describe() {
  DatasetDescriptor any = descriptor("<name>", "");
  any.member = [](const std::string& name) { return descriptor(name, ""); };
  DatasetDescriptor berka = descriptor("berka", kBerka);
  berka.title = "loans of a bank by transactions: default or not";
  berka.paper = "Berka, Sochorova: Discovery Challenge, guide to the financial data set, PKDD 1999";
  berka.source = "data_berka.zip of the challenge, unpacked: trans.asc and loan.asc";
  return {files_or_generator(), berka, any};
}

}  // namespace xformer::data::adapters::transactions
