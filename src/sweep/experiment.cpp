#include "sweep/experiment.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "core/error.h"
#include "core/names.h"
#include "core/option_names.h"
#include "core/text.h"
#include "readers/option_file.h"

namespace xformer::sweep {

namespace {

// As plans spell it.
std::string option_key(const std::string& word, const std::string& place) {
  const std::string usual = usual_option(word);
  XF_CHECK(!usual.empty() || word.find('.') != std::string::npos, UserError,
           "{}: option keys are dotted, like training.batch, got '{}'", place, word);
  return usual.empty() ? word : usual;
}

// One place in a file, for messages: "table-9.json: models[3]".
struct Reader {
  std::string place;
  const Json& json;

  [[noreturn]] void fail(const std::string& expected) const {
    throw UserError(fmt::format("{}: expected {}, got {}", place, expected, quoted(json.dump(), 60)));
  }
  void expect_keys(const std::vector<std::string>& known) const {
    if (!json.is_object()) fail("an object");
    for (const auto& [key, value] : json.items())
      if (std::find(known.begin(), known.end(), key) == known.end())
        throw UserError(fmt::format("{}: {}", place, unknown_name_message("key", key, known)));
  }
  [[nodiscard]] bool has(const char* key) const { return json.contains(key); }
  [[nodiscard]] Reader at(const std::string& key) const {
    static const Json kNothing;
    return {place + ": " + key, json.contains(key) ? json.at(key) : kNothing};
  }
  [[nodiscard]] std::vector<Reader> list() const {
    if (!json.is_array()) fail("a list");
    std::vector<Reader> result;
    for (size_t i = 0; i < json.size(); ++i) result.push_back({fmt::format("{}[{}]", place, i), json[i]});
    return result;
  }
  [[nodiscard]] std::string text() const {
    if (!json.is_string() || json.get<std::string>().empty()) fail("a text");
    return json.get<std::string>();
  }
  [[nodiscard]] std::string text(const char* key, const std::string& otherwise) const {
    return has(key) ? at(key).text() : otherwise;
  }
  [[nodiscard]] int64_t count(const char* key, int64_t least, int64_t otherwise) const {
    if (!has(key)) return otherwise;
    const Reader there = at(key);
    if (!there.json.is_number_integer() || there.json.get<int64_t>() < least)
      there.fail(fmt::format("a whole number from {}", least));
    return there.json.get<int64_t>();
  }
  [[nodiscard]] std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> result;
    if (has(key))
      for (const Reader& one : at(key).list()) result.push_back(one.text());
    return result;
  }
  [[nodiscard]] Json options(const char* key) const {
    if (!has(key)) return Json::object();
    const Reader there = at(key);
    if (!there.json.is_object()) there.fail("an object of option keys");
    Json set = Json::object();
    for (const auto& [name, value] : there.json.items()) set[option_key(name, there.place)] = value;
    return set;
  }
};

const std::vector<std::string> kAskKeys{"task", "model", "protocol", "steps", "length", "set"};

std::vector<std::string> with(std::vector<std::string> keys, const std::vector<std::string>& more) {
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

// The keys of an entry; those that the caller has beside them are its own affair.
Ask read_ask(const Reader& from) {
  return {from.text("task", ""),     from.text("model", ""),     from.text("protocol", ""),
          from.count("steps", 1, 0), from.count("length", 1, 0), from.options("set")};
}

// A list of names or of entries with that key.
std::vector<Ask> read_asks(const Reader& file, const char* key, const char* name_key) {
  std::vector<Ask> result;
  if (!file.has(key)) return result;
  for (const Reader& one : file.at(key).list()) {
    Ask ask;
    std::string& name = std::string_view(name_key) == "task" ? ask.task : ask.model;
    if (one.json.is_string()) {
      name = one.text();
    } else {
      one.expect_keys(kAskKeys);
      ask = read_ask(one);
      XF_CHECK(one.has(name_key), UserError, "{}: expected a \"{}\"", one.place, name_key);
    }
    result.push_back(ask);
  }
  XF_CHECK(!result.empty(), UserError, "{}: {}: expected at least one", file.place, key);
  return result;
}

std::vector<int64_t> read_seeds(const Reader& from) {
  if (from.json.is_string()) return parse_seeds(from.text(), from.place);
  std::vector<int64_t> result;
  for (const Reader& one : from.list()) {
    if (!one.json.is_number_integer() || one.json.get<int64_t>() < 0) one.fail("a seed from 0");
    result.push_back(one.json.get<int64_t>());
  }
  if (result.empty()) from.fail("at least one seed");
  return result;
}

Axis read_axis(const std::string& key, const Reader& from, bool ranges) {
  Axis axis;
  axis.key = key;
  if (from.json.is_array()) {
    for (const Reader& one : from.list()) axis.values.push_back(one.json);
    if (axis.values.empty()) from.fail("at least one value");
    return axis;
  }
  if (!ranges) from.fail("a list of values");
  from.expect_keys({"low", "high", "scale", "whole"});
  for (const char* end : {"low", "high"})
    if (!from.at(end).json.is_number()) from.at(end).fail("a number");
  axis.low = from.json["low"];
  axis.high = from.json["high"];
  const std::string scale = from.text("scale", "linear");
  XF_CHECK(scale == "linear" || scale == "log", UserError, "{}: scale: expected linear or log, got '{}'", from.place,
           scale);
  axis.logarithmic = scale == "log";
  if (from.has("whole") && !from.at("whole").json.is_boolean()) from.at("whole").fail("true or false");
  axis.whole = from.json.value("whole", false);
  XF_CHECK(axis.low < axis.high && (!axis.logarithmic || axis.low > 0), UserError,
           "{}: expected {} < high, got {} and {}", from.place, axis.logarithmic ? "0 < low" : "low", axis.low,
           axis.high);
  return axis;
}

std::vector<Axis> read_axes(const Reader& from, bool ranges) {
  if (!from.json.is_object() || from.json.empty()) from.fail("an object of option keys");
  std::vector<Axis> axes;
  for (const auto& [key, value] : from.json.items())
    axes.push_back(read_axis(option_key(key, from.place), from.at(key), ranges));
  return axes;
}

Search read_search(const Reader& from, const std::vector<int64_t>& seeds) {
  from.expect_keys({"method", "budget", "seeds", "over"});
  Search search;
  const std::string method = from.text("method", "grid");
  XF_CHECK(method == "grid" || method == "random", UserError, "{}: method: expected grid or random, got '{}'",
           from.place, method);
  search.random = method == "random";
  search.budget = from.count("budget", 1, 0);
  XF_CHECK(!search.random || search.budget > 0, UserError, "{}: a random search needs a budget of trials", from.place);
  search.seeds = from.has("seeds") ? read_seeds(from.at("seeds")) : std::vector<int64_t>{seeds.front()};
  search.axes = read_axes(from.at("over"), search.random);
  search.as_written = from.json;
  return search;
}

// What `xformer sweep` writes of a grid that it was given in words, among its runs.
bool is_own_file(const Path& path) { return path.filename() == kGridFile; }

// The folder belongs to the name, but not the one that somebody stands in.
std::string experiment_name(const Path& path) {
  const Path full = std::filesystem::absolute(path).lexically_normal(), folder = full.parent_path();
  if (is_own_file(full)) return folder.filename().string();
  return (folder == std::filesystem::current_path() ? "" : folder.filename().string() + "/") + full.stem().string();
}

}  // namespace

Ask Ask::under(const Ask& stronger) const {
  Ask result = *this;
  if (!stronger.task.empty()) result.task = stronger.task;
  if (!stronger.model.empty()) result.model = stronger.model;
  if (!stronger.protocol.empty()) result.protocol = stronger.protocol;
  if (stronger.steps > 0) result.steps = stronger.steps;
  if (stronger.length > 0) result.length = stronger.length;
  result.set.update(stronger.set);
  return result;
}

bool Condition::holds(const std::string& task_name, const std::string& model_name) const {
  return (task.empty() || matches_pattern(task, task_name)) && (model.empty() || matches_pattern(model, model_name));
}

bool Experiment::excluded(const std::string& task, const std::string& model) const {
  return std::any_of(exclude.begin(), exclude.end(), [&](const Condition& one) { return one.holds(task, model); });
}

std::vector<int64_t> parse_seeds(const std::string& text, const std::string& origin) {
  const auto number = [&](std::string_view digits) {
    int64_t value = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    XF_CHECK(error == std::errc() && end == digits.data() + digits.size() && value >= 0, UserError,
             "{}: expected seeds like 0-4 or 0,2,7, got '{}'", origin, text);
    return value;
  };
  std::set<int64_t> seeds;
  for (const std::string_view part : split(text, ',')) {
    const size_t dash = part.find('-');
    const int64_t first = number(part.substr(0, dash));
    const int64_t last = dash == std::string_view::npos ? first : number(part.substr(dash + 1));
    XF_CHECK(first <= last && last - first < 10000, UserError, "{}: expected seeds like 0-4 or 0,2,7, got '{}'", origin,
             text);
    for (int64_t seed = first; seed <= last; ++seed) seeds.insert(seed);
  }
  return {seeds.begin(), seeds.end()};
}

Path usual_folder(const Path& root, const Experiment& experiment) {
  if (is_own_file(experiment.file))
    return experiment.file.has_parent_path() ? experiment.file.parent_path() : Path(".");
  // The name of an experiment always had its folder in it.
  const Path full = std::filesystem::absolute(experiment.file).lexically_normal();
  const Path now = root / experiment.name, before = root / full.parent_path().filename() / full.stem();
  return std::filesystem::exists(before) && !std::filesystem::exists(now) ? before : now;
}

Experiment read_experiment(const Path& path) {
  return parse_experiment(readers::read_extended_file(path, {"set"}), path);
}

Experiment parse_experiment(const Json& json, const Path& path) {
  const Reader file{path.string(), json};
  file.expect_keys({"title",        "notes", "tasks",     "models",  "seeds",  "protocol", "steps",   "length",
                    "set",          "grid",  "cases",     "exclude", "stages", "search",   "retries", "published",
                    "average_over", "bench", "waits_for", "setup",   "metric", "columns"});
  Experiment result;
  result.name = experiment_name(path);
  result.file = path;
  result.title = file.text("title", result.name);
  result.notes = file.texts("notes");
  result.setup = file.texts("setup");
  if (file.has("published")) {
    const std::string text = file.at("published").text();
    const size_t mark = text.find('#');
    result.published = path.parent_path() / text.substr(0, mark);
    result.published_name = mark == std::string::npos ? path.stem().string() : text.substr(mark + 1);
    XF_CHECK(std::filesystem::exists(*result.published), UserError, "{}: published: there is no {}", file.place,
             result.published->string());
  }
  if (file.has("waits_for")) {
    const Reader waits = file.at("waits_for");
    waits.expect_keys({"tasks", "models"});
    result.waits_for_tasks = waits.texts("tasks");
    result.waits_for_models = waits.texts("models");
  }
  if (file.has("bench")) {
    XF_CHECK(!file.has("tasks"), UserError, "{}: an experiment either measures (bench) or trains (tasks), got both",
             file.place);
    for (const char* key : {"metric", "columns"})
      XF_CHECK(!file.has(key), UserError, "{}: {} is of an experiment that trains", file.place, key);
    result.bench = json["bench"];
    if (!result.bench.is_array()) file.at("bench").fail("a list of commands, each a list of words of `xformer bench`");
    for (const Reader& command : file.at("bench").list())
      for (const Reader& word : command.list()) static_cast<void>(word.text());
    return result;
  }
  for (const char* key : {"tasks", "models"})
    XF_CHECK(file.has(key), UserError, "{}: expected a list of {}", file.place, key);
  result.tasks = read_asks(file, "tasks", "task");
  result.models = read_asks(file, "models", "model");
  result.seeds = file.has("seeds") ? read_seeds(file.at("seeds")) : std::vector<int64_t>{0};
  result.common = {
      "", "", file.text("protocol", ""), file.count("steps", 1, 0), file.count("length", 1, 0), file.options("set")};
  if (file.has("grid")) result.grid = read_axes(file.at("grid"), /*ranges=*/false);
  if (file.has("cases"))
    for (const Reader& one : file.at("cases").list()) {
      one.expect_keys(with({"where"}, kAskKeys));
      const Reader where = one.at("where");
      where.expect_keys({"task", "model"});
      result.cases.push_back({{where.text("task", ""), where.text("model", "")}, read_ask(one)});
    }
  if (file.has("exclude"))
    for (const Reader& one : file.at("exclude").list()) {
      one.expect_keys({"task", "model"});
      result.exclude.push_back({one.text("task", ""), one.text("model", "")});
    }
  if (file.has("stages"))
    for (const Reader& one : file.at("stages").list()) {
      one.expect_keys(with({"name"}, kAskKeys));
      result.stages.push_back({one.at("name").text(), read_ask(one)});
    }
  if (file.has("search")) result.search = read_search(file.at("search"), result.seeds);
  XF_CHECK(!result.search || result.stages.empty(), UserError, "{}: a search has no stages yet: give one of them",
           file.place);
  result.retries = file.count("retries", 0, 1);
  result.metric = file.text("metric", "");
  result.columns = file.texts("columns");
  result.average_over = file.texts("average_over");
  for (const std::string& task : result.average_over)
    XF_CHECK(std::any_of(result.tasks.begin(), result.tasks.end(), [&](const Ask& one) { return one.task == task; }),
             UserError, "{}: average_over: the experiment has no task '{}'", file.place, task);
  return result;
}

}  // namespace xformer::sweep
