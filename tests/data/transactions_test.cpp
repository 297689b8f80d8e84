// Users and their events: what small files become, which message a damaged one gets, who is for the test, and that
// generated users of both classes have the same bags of events.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "core/error.h"
#include "core/text.h"
#include "data/adapter_place.h"
#include "data/check.h"
#include "data/transactions/event_features.h"
#include "data/transactions/stand_in.h"

namespace xformer::transactions_test {

using namespace data;
using adapter_place::options_of;
using adapter_place::Place;
using Catch::Matchers::Contains;

const std::string kSchema = "dates=days label=bad categorical=kind amounts=sum ignore=note";

// Twelve users, asked one on each of twelve days; all but the last have three events before their day and one on it.
std::map<std::string, std::string> twelve() {
  std::string users = "user,date,bad\n", events = "user,note,sum,date,points,kind\n";
  for (int i = 0; i < 12; ++i) {
    users += fmt::format("u{},{},{}\n", i, 100 + i, i % 2);
    if (i == 11) continue;
    for (const int day : {3, 1, 2, 0})  // before: not in their order
      events += fmt::format("u{},n,{},{},{},{}\n", i, day == 0 ? -1e6 : 10 * day, 100 + i - day, day, "abc"[day % 3]);
  }
  return {{"users.csv", users}, {"events.csv", events + "nobody,n,1,1,1,a\n"}};
}

struct Files : Place {
  explicit Files(const std::map<std::string, std::string>& contents) {
    for (const auto& [name, content] : contents) scratch::put(folder / name, content);
  }
  [[nodiscard]] std::unique_ptr<DataSource> read(Json more = Json::object()) const {
    if (!more.contains("schema")) more["schema"] = kSchema;
    return open("transactions/mine", more);
  }
};

template <class E>
std::string refusal(std::map<std::string, std::string> files, const std::string& schema = kSchema) {
  const Files made(files);
  const std::string message = scratch::message_of<E>([&] { (void)made.read({{"schema", schema}}); });
  CHECK(made.cache_is_empty());
  return message;
}

std::vector<float> values_of(const DataSource& source, Split split, int64_t index) {
  const Example example = source.read(split, index);
  return {example.values.begin(), example.values.end()};
}

TEST_CASE("events become numbers, standardised by the training users, gaps, and codes of words", "[transactions]") {
  const Files files(twelve());
  const auto source = files.read({{"length", 2}, {"dev", "latest"}, {"dev_share", 0.25}, {"test_share", 0.25}});
  const DataInfo& info = source->info();
  CHECK(info.sizes == std::array<int64_t, 3>{6, 2, 3});
  CHECK((info.shape.max_len == 2 && info.shape.width == 4));
  CHECK(info.shape.target.kind == "binary");
  CHECK(info.details["numeric_columns"] == Json{"sum", "points", "days since the event before"});
  CHECK(info.details["classes"] == Json{"0", "1"});
  CHECK(info.details["events_of_nobody"] == 1);
  CHECK(info.details["events_too_late"] == 11);  // on the very day
  CHECK(info.details["events_cut"] == 11);       // of three the two newest are kept
  REQUIRE(info.dropped.size() == 1);
  CHECK(info.dropped[0].count == 1);
  // Kept of everybody: day 2 (sum 20, points 2, kind c), then day 1 (sum 10, points 1, kind b). A deviation of two
  // values is half their difference, so each lies one deviation from the mean; the gap is always a day.
  CHECK(info.shape.categories == std::vector<int64_t>{5});
  CHECK(info.details["words"] == Json::parse(R"([["a", "b", "c"]])"));  // a of what was cut: codes of every length
  for (const Split split : kAllSplits)
    for (int64_t i = 0; i < source->size(split); ++i) {
      const std::vector<float> values = values_of(*source, split, i);
      const std::vector<double> meant{1, 1, 0, 4, -1, -1, 0, 3};
      REQUIRE(values.size() == meant.size());
      for (size_t at = 0; at < meant.size(); ++at) CHECK(values[at] == Approx(meant[at]).margin(1e-5));
      CHECK(source->read(split, i).label == (i + (split == Split::kTest ? 8 : split == Split::kDev ? 6 : 0)) % 2);
    }
}

TEST_CASE("amounts by their logarithm, missing numbers as the mean, unseen words by one code", "[transactions]") {
  auto files = twelve();
  files["events.csv"] += "u0,n,,99,,zebra\nu10,n,5,109,,zebra\nu10,n,5,109.5,1,tapir\n";
  const auto source = Files(files).read({{"length", 9}, {"dev", "latest"}});
  const EventTable table = [&] {
    const Files made(files);
    return read_events(find_event_files(made.folder.path(), parse_event_schema(kSchema)), parse_event_schema(kSchema),
                       9, {});
  }();
  // Those of the training users, by the definition.
  std::vector<double> sums;
  for (size_t i = 0; i < static_cast<size_t>(source->size(Split::kTrain)); ++i)
    for (const Event& event : table.users[i].events)
      if (!std::isnan(event.numbers[0])) sums.push_back(std::log1p(event.numbers[0]));
  double mean = 0, variance = 0;
  for (const double sum : sums) mean += sum / static_cast<double>(sums.size());
  for (const double sum : sums) variance += (sum - mean) * (sum - mean) / static_cast<double>(sums.size());
  const std::vector<float> first = values_of(*source, Split::kTrain, 0);  // days 97, 98, 99 and 99 again
  REQUIRE(first.size() == 16);
  CHECK(first[0] == Approx((std::log1p(30.0) - mean) / std::sqrt(variance)).margin(1e-5));
  CHECK((first[12] == 0 && first[13] == 0));  // the line without numbers, which stands behind the other of its day
  const std::vector<std::string> known = source->info().details["words"][0].get<std::vector<std::string>>();
  CHECK(known == std::vector<std::string>{"a", "b", "c", "zebra"});
  CHECK(first[15] == 5);
  const std::vector<float> last = values_of(*source, Split::kTest, source->size(Split::kTest) - 1);
  CHECK(last[last.size() - 1] == kUnknownWordCode);  // tapir
  CHECK(last[last.size() - 5] == 5);
}

TEST_CASE("a user's newest events are kept, however many come and in whichever order", "[transactions]") {
  const scratch::Folder folder;
  std::string events = "user,date,sum\n";
  std::vector<int> days(101);
  for (int i = 0; i < 101; ++i) days[static_cast<size_t>(i)] = i * 37 % 101;
  for (const int day : days) events += fmt::format("u,{},{}\n", day * day, day);
  scratch::put(folder / "events.csv", events);
  scratch::put(folder / "users.csv", "user,label\nu,1\n");
  const EventSchema schema = parse_event_schema("dates=days");
  for (const int64_t longest : {1, 5, 100, 101, 200}) {
    const EventTable table = read_events(find_event_files(folder.path(), schema), schema, longest, {});
    const std::vector<Event>& kept = table.users.at(0).events;
    const int64_t count = std::min<int64_t>(longest, 101);
    REQUIRE(static_cast<int64_t>(kept.size()) == count);
    CHECK(table.events_cut == 101 - count);
    CHECK(table.users[0].date == 100 * 100 * 86400);  // asked on the day of the newest, where users have no date
    for (int64_t i = 0; i < count; ++i) {
      const int64_t day = 101 - count + i;
      CHECK(kept[static_cast<size_t>(i)].numbers[0] == static_cast<double>(day));
      CHECK(kept[static_cast<size_t>(i)].gap == (day == 0 ? 0 : (2 * day - 1) * 86400));  // to one that was cut, too
    }
  }
}

TEST_CASE("test users are asked later than all others, of one date all of them", "[transactions]") {
  const std::vector<int64_t> dates{5, 1, 9, 9, 3, 9, 2, 4, 8, 7}, classes{0, 1, 0, 1, 0, 1, 0, 1, 0, 1};
  for (const bool latest : {false, true}) {
    const TimeSplit split = out_of_time_split(dates, classes, {0.25, 0.25, latest, 7});
    CHECK(split.test == std::vector<int64_t>{2, 3, 5});  // a quarter of ten is two or three, and 9 comes three times
    std::vector<int64_t> rest = split.train;
    rest.insert(rest.end(), split.dev.begin(), split.dev.end());
    std::sort(rest.begin(), rest.end());
    CHECK(rest == std::vector<int64_t>{0, 1, 4, 6, 7, 8, 9});
    if (latest) CHECK(split.dev == std::vector<int64_t>{8, 9});
  }
  // The date that the cut would divide is a test date, whole.
  CHECK(out_of_time_split(dates, classes, {0.1, 0.25, false, 7}).test == std::vector<int64_t>{2, 3, 5});
  CHECK_THROWS_AS(out_of_time_split(std::vector<int64_t>(10, 3), classes, {}), DataError);
}

TEST_CASE("bad files of events are refused with file and line", "[transactions]") {
  const auto changed = [](const std::string& file, const std::string& from, const std::string& to) {
    auto files = twelve();
    const size_t at = files[file].find(from);
    REQUIRE(at != std::string::npos);
    files[file].replace(at, from.size(), to);
    return files;
  };
  const auto data = [&](const auto& files) { return refusal<DataError>(files); };
  CHECK_THAT(data(changed("events.csv", "u0,n,30,97", "u0,n,30,soon")),
             Contains("events.csv:2: expected a number of days in 'date', found 'soon'"));
  CHECK_THAT(data(changed("events.csv", "u0,n,30", "u0,n,much")),
             Contains("events.csv:2") && Contains("in 'sum', found 'much'"));
  CHECK_THAT(data(changed("events.csv", "u0,n,30", "u0,n,1e31")), Contains("a number below 1e+30 in 'sum'"));
  CHECK_THAT(data(changed("events.csv", "u0,n,30,97,3,a", "u0,n,30")), Contains("events.csv:2: expected 6 fields"));
  CHECK_THAT(data(changed("users.csv", "u3,103,1", "u3,103,")), Contains("users.csv:5: the user 'u3' has no class"));
  CHECK_THAT(data(changed("users.csv", "u3,", "u2,")), Contains("users.csv:5: the user 'u2' again") && Contains(":4"));
  CHECK_THAT(data(changed("users.csv", "u3,", ",")), Contains("users.csv:5: expected a user in 'user'"));
  CHECK_THAT(data(changed("users.csv", "u3,103", "u3,")), Contains("users.csv:5: expected a number of days in 'date'"));
  CHECK_THAT(data(changed("users.csv", "date", "bad")), Contains("two columns are called 'bad'"));
  CHECK_THAT(
      data(std::map<std::string, std::string>{{"users.csv", twelve()["users.csv"]}}),
      Contains("no file of events") && Contains("expected events.csv or events.jsonl (or .gz); found users.csv"));
  auto files = twelve();
  files["events.csv"] = "user,note,sum,date,points,kind\n";
  CHECK_THAT(data(files), Contains("events.csv: expected events, found none"));
  files["events.csv"] = "";
  CHECK_THAT(data(files), Contains("events.csv is empty"));
  files["events.csv"] = "user,note,sum,date,points,kind\nsomebody,n,1,1,1,a\n";
  CHECK_THAT(data(files), Contains("no user of") && Contains("has an event before his date"));
  files = twelve();
  files["users.csv"] = "user,date,bad\n";
  CHECK_THAT(data(files), Contains("users.csv: expected users, found none"));
  files["users.csv"] = "user,date,bad\nu1,101,0\nu2,102,0\n";
  CHECK_THAT(data(files), Contains("all users with events are of the class '0'"));
  CHECK_THAT(data(changed("users.csv", "u3,103,1", "u3,103,\xff")), Contains("users.csv:5: expected a class in UTF-8"));
  CHECK_THAT(data(changed("events.csv", "u0,n,30,97,3,a", "u0,n,30,97,3,\xff")),
             Contains("events.csv:2: expected text in UTF-8 in 'kind'"));
  files = twelve();
  files["events.csv"] += "u1,n," + std::string(10'000'000, '1');
  CHECK_THAT(data(files), Contains("events.csv:47"));
  files.erase("events.csv");
  files["events.csv.gz"] = std::string(
      "\x1f\x8b\x08\x00"
      "cut",
      7);
  CHECK_THAT(data(files), Contains("events.csv.gz"));
  // Classes that the schema names, and one that it does not.
  CHECK_THAT(refusal<DataError>(changed("users.csv", "u3,103,1", "u3,103,maybe"), kSchema + " positive=1 negative=0"),
             Contains("users.csv:5: the class 'maybe' is none of 0 and 1"));
}

TEST_CASE("a schema that does not fit is refused with the nearest word", "[transactions]") {
  const auto user = [](const std::string& schema) { return refusal<UserError>(twelve(), schema); };
  CHECK_THAT(refusal<DataError>(twelve(), "label=bda dates=days"),
             Contains("users.csv: no column 'bda', which the event schema means by label; did you mean 'bad'?"));
  CHECK_THAT(refusal<DataError>(twelve(), kSchema + " date=day"),
             Contains("events.csv: no column 'day', which the event schema means by date"));
  CHECK_THAT(user("label=bad dates=days categorical=kind ignore=kind"), Contains("'kind' is named more than once"));
  CHECK_THAT(user(kSchema + " amount=sum"), Contains("did you mean 'amounts'?"));
  CHECK_THAT(user("dates=weeks"), Contains("known: iso, yymmdd, days, seconds"));
  CHECK_THAT(user(kSchema + " positive=1"), Contains("both positive= and negative="));
  CHECK_THAT(scratch::message_of<DataError>([] {
               (void)find_dataset("transactions/mine").open(options_of("transactions/mine"), DataLocation(), {});
             }),
             Contains("transactions/mine needs its files") && Contains("users.csv"));
}

TEST_CASE("JSON lines are the same users, and a second opening reads the cache", "[transactions]") {
  auto files = twelve();
  std::string lines;
  std::vector<std::string> rows;
  for (size_t at = 0; at < files["events.csv"].size();) {
    const size_t end = files["events.csv"].find('\n', at);
    rows.push_back(files["events.csv"].substr(at, end - at));
    at = end + 1;
  }
  for (size_t i = 1; i < rows.size(); ++i) {
    std::vector<std::string> fields;
    for (const std::string_view field : split(rows[i], ',')) fields.emplace_back(field);
    lines += Json{{"user", fields[0]}, {"note", fields[1]},   {"sum", std::stod(fields[2])},
                  {"date", fields[3]}, {"points", fields[4]}, {"kind", fields[5]}}
                 .dump() +
             "\n";
  }
  const Files csv(files);
  const std::string hash = csv.read()->info().sha256;
  CHECK(csv.read()->info().sha256 == hash);
  files.erase("events.csv");
  files["events.jsonl"] = lines;
  CHECK(Files(files).read()->info().sha256 == hash);
}

TEST_CASE("more than two classes are a classification, without a date users are asked with their newest event",
          "[transactions]") {
  auto files = twelve();
  std::string users = "user,bad\n";
  for (int i = 0; i < 11; ++i) users += fmt::format("u{},{}\n", i, "xyz"[i % 3]);
  files["users.csv"] = users;
  const auto source = Files(files).read({{"dev", "latest"}});
  CHECK(source->info().shape.target.kind == "classification");
  CHECK(source->info().shape.target.classes() == 3);
  CHECK(source->info().details["events_too_late"] == 0);
  CHECK(example_length(source->read(Split::kTrain, 0), source->info().shape) == 4);
}

TEST_CASE("data check counts what was left out, and shows events by their words", "[transactions]") {
  const Files files(twelve());
  const DatasetDescriptor& dataset = find_dataset("transactions/mine");
  const Json options = options_of("transactions/mine", {{"schema", kSchema}, {"length", 2}, {"dev", "latest"}});
  const CheckReport report = dataset.check(options, files.location(), {});
  CHECK(report.passed);
  for (const char* const line : {"ok    test users are asked later than all others", "before they are asked: 1",
                                 "who have no class, left out: 1", "left out: 11", "cut: 11"})
    CHECK_THAT(report.text(), Contains(line));
  const auto source = dataset.open(options, files.location(), {});
  const std::string shown = dataset.show(source->read(Split::kTest, 0), source->info());
  CHECK_THAT(shown, Contains("kind \"c\"") && Contains("the last 2 of 2 events") && Contains("label 0 (0)"));
}

TEST_CASE("the repository's sample is read by the schema that its page gives", "[transactions]") {
  const Path folder = Path(__FILE__).parent_path() / "../../datasets/transactions";
  const Json options =
      options_of("transactions/mine", {{"schema", "dates=iso label=late categorical=kind,channel amounts=sum"}});
  CHECK_THAT(scratch::get(folder / "README.md"), Contains(options["schema"].get<std::string>()));
  const Place place;
  DataLocation location = place.location();
  location.folder = folder / "sample";
  const auto source = find_dataset("transactions/mine").open(options, location, {});
  CHECK(source->info().sizes == std::array<int64_t, 3>{14, 4, 6});
  CHECK(source->info().shape.categories == std::vector<int64_t>{8, 4});
  // The folder around it has none, and is told of this one.
  location.folder = folder;
  CHECK_THAT(
      scratch::message_of<DataError>([&] { (void)find_dataset("transactions/mine").open(options, location, {}); }),
      Contains("did you mean --data") && Contains("sample?"));
}

// The events of a user, sorted: what a bag knows.
std::vector<std::vector<float>> bag_of(const std::vector<float>& values) {
  std::vector<std::vector<float>> events;
  for (size_t at = 0; at < values.size(); at += kStandInWidth)
    events.emplace_back(values.begin() + static_cast<std::ptrdiff_t>(at),
                        values.begin() + static_cast<std::ptrdiff_t>(at + kStandInWidth));
  std::sort(events.begin(), events.end());
  return events;
}

TEST_CASE("generated users of both classes have the same bags, and only their order tells the class",
          "[transactions]") {
  StandInOptions options;
  options.length = 60;
  options.mean_events = 40;
  options.pairs = 5;
  std::array<int64_t, 5> firsts{};  // of a pair, by place modulo five
  for (uint64_t user = 0; user < 300; ++user) {
    std::vector<float> good, bad;
    Stream one(17, user), same(17, user);
    draw_stand_in(options, 0, one, good);
    draw_stand_in(options, 1, same, bad);
    // One user of each class from the same numbers, so as likely: to a bag both are one, and its best guess is half.
    CHECK(bag_of(good) == bag_of(bad));
    CHECK(good != bad);
    CHECK(stand_in_fault(options, good, 0).empty());
    CHECK(stand_in_fault(options, bad, 1).empty());
    CHECK_FALSE(stand_in_fault(options, good, 1).empty());
    for (size_t i = 0; i * kStandInWidth < bad.size(); ++i)
      firsts[i % firsts.size()] += bad[i * kStandInWidth + kStandInNumbers] == kKindA ? 1 : 0;
  }
  // 300 each; five deviations, were the five of a user all at one. On a grid of slots the last place has none.
  for (const int64_t count : firsts) CHECK(std::abs(count - 300) < 173);
}

TEST_CASE("without files users are generated, half of each class, at lengths about the mean", "[transactions]") {
  const DatasetDescriptor& dataset = find_dataset("transactions");
  const Json options = options_of("transactions", {{"train_examples", 2000},
                                                   {"dev_examples", 100},
                                                   {"test_examples", 100},
                                                   {"length", 100},
                                                   {"mean_events", 64},
                                                   {"pairs", 8}});
  const auto source = dataset.open(options, DataLocation(), {});
  CHECK(source->info().origin == "generated");
  CHECK(source->info().shape == dataset.shape(options));
  double ones = 0, events = 0, squares = 0, amounts = 0, wide = 0;
  for (int64_t i = 0; i < 2000; ++i) {
    const Example example = source->read(Split::kTrain, i);
    const auto length = static_cast<double>(example_length(example, source->info().shape));
    ones += static_cast<double>(example.label);
    events += length / 2000;
    squares += length * length / 2000;
    for (size_t at = 0; at < example.values.size(); at += kStandInWidth) {
      amounts += example.values[at];
      wide += example.values[at] * example.values[at];
    }
  }
  CHECK(std::abs(ones - 1000) < 5 * std::sqrt(500));       // five deviations of a fair coin
  CHECK(std::abs(events - 64) < 5 * 8 / std::sqrt(2000));  // Poisson's deviation is 8
  CHECK(squares - events * events == Approx(64).epsilon(0.2));
  CHECK(std::abs(amounts / (events * 2000)) < 5 / std::sqrt(events * 2000));
  CHECK(wide / (events * 2000) == Approx(1).epsilon(0.02));
  CHECK(dataset.check(options, DataLocation(), {}).passed);
  CHECK_THAT(scratch::message_of<UserError>([&] {
               dataset.check_generator(options_of("transactions", {{"length", 59}, {"pairs", 12}}));
             }),
             Contains("12 pairs, each among 5 events of its own, need a data.length of 60, got 59"));
}

TEST_CASE("the bank's real files are a table of loans with few defaults, the last ones for the test",
          "[transactions]") {
  const auto folder = scratch::real_data("transactions");
  if (!folder) {
    WARN("skipped: XFORMER_TEST_DATA names no folder with transactions/");
    SUCCEED();
    return;
  }
  const Place place;
  DataLocation location = place.location();
  location.folder = *folder / "berka";
  const auto source =
      find_dataset("transactions/berka").open(options_of("transactions/berka", {{"length", 64}}), location, {});
  const DataInfo& info = source->info();
  CHECK(info.sizes[0] + info.sizes[1] + info.sizes[2] + info.dropped.at(0).count == 682);
  CHECK(info.details["classes"] == Json{"A/C", "B/D"});
  CHECK(info.details["categorical_columns"].size() == 4);
  location.folder = *folder / "ptls_age_sample";
  const auto ages =
      find_dataset("transactions/ages")
          .open(options_of("transactions/ages", {{"schema",
                                                  "events=age-transactions.csv users=age-bin.csv user=client_id "
                                                  "date=trans_date dates=days label=bins categorical=small_group "
                                                  "amounts=amount_rur"}}),
                location, {});
  CHECK(ages->info().shape.target.classes() == 4);
  CHECK(ages->info().sizes[0] + ages->info().sizes[1] + ages->info().sizes[2] == 100);
}

}  // namespace xformer::transactions_test
