#include "reporting/record_selection.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "core/error.h"
#include "core/names.h"
#include "core/option_names.h"
#include "reporting/model_names.h"
#include "reporting/quantities.h"

namespace xformer::reporting {
namespace {

using Group = std::vector<const Json*>;  // settings of runs

constexpr size_t kHashShown = 8;  // digits of a data set's

// Whether a plan's key is an option that says what a run is. How much of a batch is computed at once, and which weights
// it began with, make no other model of it.
bool names_a_run(const std::string& key) {
  return key.find('.') != std::string::npos && key != "training.micro_batch" && key != "training.init_sha256";
}

bool is_of_data(const std::string& key) { return key.starts_with("data."); }

// What a run is, by key. The value that a search found and the weights that a run began with are results of runs; that
// there was a search, and that there were weights, are settings.
Json settings_of(const RunRecord& record) {
  Json settings = Json::object();
  for (const auto& [key, value] : record.plan.items())
    if (names_a_run(key)) settings[key] = value;
  if (record.search.is_object() && record.search.contains("chosen"))
    for (const auto& [key, value] : record.search["chosen"].items()) settings[key] = "searched";
  settings["training.init"] = record.from_scratch() ? "scratch" : "weights";
  return settings;
}

// Keys that those of these runs which have them do not agree on: older programs knew fewer options.
std::vector<std::string> differing_keys(const Group& runs, bool of_data) {
  std::vector<std::string> keys;  // in the order of plans
  std::map<std::string, Json> first;
  std::set<std::string> differing;
  for (const Json* settings : runs)
    for (const auto& [key, value] : settings->items()) {
      if (is_of_data(key) != of_data) continue;
      const auto [known, is_new] = first.emplace(key, value);
      if (is_new) keys.push_back(key);
      else if (known->second != value) differing.insert(key);
    }
  std::erase_if(keys, [&](const std::string& key) { return !differing.contains(key); });
  return keys;
}

// Keys that some of these runs have and some do not.
std::set<std::string> partly_known_keys(const Group& runs) {
  std::map<std::string, size_t> count;
  for (const Json* settings : runs)
    for (const auto& [key, value] : settings->items()) ++count[key];
  std::set<std::string> result;
  for (const auto& [key, times] : count)
    if (times < runs.size()) result.insert(key);
  return result;
}

// Of the keys that a run has, but for those at their usual value.
std::string with_values(const std::string& name, const Json& settings, const std::vector<std::string>& keys,
                        const std::map<std::string, Json>& usual = {}) {
  Json values = Json::object();
  for (const std::string& key : keys) {
    const auto found = settings.find(key);
    if (found == settings.end()) continue;
    if (const auto same = usual.find(key); same == usual.end() || same->second != *found) values[key] = *found;
  }
  return with_options(name, values);
}

// Of each key the value that most plans of one model have, where there are enough to say "most": an ablation changes
// one option at a time, and rows that name all the others as well cannot be read.
std::map<std::string, Json> usual_values(const Group& runs, const std::vector<std::string>& keys) {
  std::map<std::string, Json> result;
  std::set<std::vector<Json>> plans;
  for (const Json* settings : runs) {
    std::vector<Json> values;
    for (const std::string& key : keys) values.push_back(settings->value(key, Json()));
    plans.insert(values);
  }
  constexpr size_t kFewest = 4;
  if (plans.size() < kFewest) return result;
  for (size_t i = 0; i < keys.size(); ++i) {
    std::map<Json, size_t> count;
    for (const std::vector<Json>& values : plans) ++count[values[i]];
    for (const auto& [value, times] : count)
      if (2 * times > plans.size() && !value.is_null()) result[keys[i]] = value;
  }
  return result;
}

// Programs that know different options write different plans of what may be one run. Their hashes, which leave out an
// option at the value that it always had, tell whether it is: where they differ, so do the names.
void tell_plans_apart(const std::vector<RunRecord>& records, const std::vector<Json>& settings,
                      std::vector<RecordLabel>& labels) {
  std::map<std::pair<std::string, std::string>, std::vector<size_t>> same;
  for (size_t i = 0; i < records.size(); ++i)
    if (!records[i].plan_hash.empty()) same[{labels[i].column, labels[i].row}].push_back(i);
  for (const auto& [label, places] : same) {
    Group group;
    std::set<std::string> hashes;
    for (const size_t place : places) {
      group.push_back(&settings[place]);
      hashes.insert(records[place].plan_hash);
    }
    if (hashes.size() < 2) continue;
    std::vector<std::string> of_data, others;
    for (const std::string& key : partly_known_keys(group)) (is_of_data(key) ? of_data : others).push_back(key);
    for (const size_t place : places)
      labels[place] = {with_values(label.first, settings[place], of_data),
                       with_values(label.second, settings[place], others), labels[place].unsaid};
  }
}

// A plan does not say which files were read. A run that is wanted and not there has the data that most have.
void tell_data_apart(const std::vector<RunRecord>& records, std::vector<RecordLabel>& labels) {
  std::map<std::string, std::map<std::string, size_t>> counts;  // by column: runs of each data hash
  const auto hash_of = [](const RunRecord& record) { return record.data ? record.data->sha256 : ""; };
  for (size_t i = 0; i < records.size(); ++i)
    if (const std::string hash = hash_of(records[i]); !hash.empty()) ++counts[labels[i].column][hash];
  for (size_t i = 0; i < records.size(); ++i) {
    const auto found = counts.find(labels[i].column);
    if (found == counts.end() || found->second.size() < 2) continue;
    const auto& hashes = found->second;
    std::string hash = hash_of(records[i]);
    if (hash.empty())
      hash = std::max_element(hashes.begin(), hashes.end(), [](const auto& one, const auto& other) {
               return one.second < other.second;
             })->first;
    labels[i].column += ", data=" + hash.substr(0, kHashShown);
  }
}

std::vector<std::string> tasks_of(const std::vector<RunRecord>& records) {
  std::vector<std::string> tasks;
  for (const RunRecord& record : records)
    if (std::find(tasks.begin(), tasks.end(), record.task) == tasks.end()) tasks.push_back(record.task);
  return tasks;
}

void settle_duplicates(std::vector<RunRecord>& records, const std::string& rule, std::vector<std::string>& notes) {
  const std::vector<RecordLabel> labels = labels_of(records);
  std::map<std::tuple<std::string, std::string, int64_t>, std::vector<size_t>> same;
  for (size_t i = 0; i < records.size(); ++i)
    if (!records[i].path.empty()) same[{labels[i].column, labels[i].row, records[i].seed}].push_back(i);
  std::set<size_t> dropped;
  std::string example;
  for (auto& [key, places] : same) {
    if (places.size() < 2) continue;
    std::sort(places.begin(), places.end(), [&](size_t a, size_t b) { return counts_before(records[a], records[b]); });
    const auto& [column, row, seed] = key;
    const std::string what = fmt::format("seed {} of {} on {} is there twice: {} and {}", seed, row, column,
                                         records[places[0]].path.string(), records[places[1]].path.string());
    XF_CHECK(rule != "refuse", UserError, "{}; --duplicates newest takes the later one, all keeps both", what);
    if (example.empty()) example = what;
    const auto folder = [&](size_t place) { return records[place].path.parent_path(); };
    for (const size_t place : std::span(places).subspan(1)) {
      if (rule == "newest") {
        dropped.insert(place);
        continue;
      }
      const bool alone = std::count_if(places.begin(), places.end(),
                                       [&](size_t other) { return folder(other) == folder(place); }) == 1;
      records[place].model += fmt::format(" ({})", (alone ? folder(place) : records[place].path).string());
      records[place].name = "";
    }
  }
  if (dropped.empty()) return;
  notes.push_back(
      fmt::format("{} of {} records are left out, for newer ones of the same run; {} (--duplicates "
                  "newest|refuse|all)",
                  dropped.size(), records.size(), example));
  size_t place = 0;
  std::erase_if(records, [&](const RunRecord&) { return dropped.contains(place++); });
}

// Of each. An older program did not name every option: the hash of its plan says that those which others with that hash
// name had the same value.
std::vector<Json> settings_of(const std::vector<RunRecord>& records) {
  std::map<std::string, Json> known;  // by hash: every option that a record of the plan names
  for (const RunRecord& record : records)
    if (!record.plan_hash.empty())
      for (const auto& [key, value] : record.plan.items())
        if (names_a_run(key)) known[record.plan_hash][key] = value;
  std::vector<Json> result;
  for (const RunRecord& record : records) {
    Json& settings = result.emplace_back(settings_of(record));
    for (const auto& [key, value] : known[record.plan_hash].items())
      if (!settings.contains(key)) settings[key] = value;
  }
  return result;
}

}  // namespace

bool counts_before(const RunRecord& one, const RunRecord& other) {
  return std::tuple(one.completed(), one.date, one.path.string()) >
         std::tuple(other.completed(), other.date, other.path.string());
}

std::string with_options(std::string label, const Json& options) {
  for (const auto& [key, value] : options.items())
    label += fmt::format(", {}={}", key.substr(key.find('.') + 1), value_word(value));
  return label;
}

std::vector<RecordLabel> labels_of(const std::vector<RunRecord>& records) {
  const std::vector<Json> settings = settings_of(records);
  std::map<std::string, Group> by_task;
  std::map<std::string, std::set<std::string>> protocols;  // runs that wait may name none
  for (size_t i = 0; i < records.size(); ++i) {
    by_task[records[i].task].push_back(&settings[i]);
    if (!records[i].protocol.empty()) protocols[records[i].task].insert(records[i].protocol);
  }
  std::map<std::string, std::vector<std::string>> data_keys;
  for (const auto& [task, group] : by_task) data_keys[task] = differing_keys(group, /*of_data=*/true);
  const std::map<const RunRecord*, std::string> name_of = model_names(records);
  std::vector<RecordLabel> result;
  std::map<std::pair<std::string, std::string>, Group> by_model;
  for (size_t i = 0; i < records.size(); ++i) {
    const RunRecord& record = records[i];
    const bool several = !record.protocol.empty() && protocols[record.task].size() > 1;
    result.push_back({with_values(several ? record.task + " (" + record.protocol + ")" : record.task, settings[i],
                                  data_keys[record.task]),
                      "", ""});
    by_model[{result.back().column, name_of.at(&record)}].push_back(&settings[i]);
  }
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> own_keys;
  for (const auto& [model, group] : by_model) own_keys[model] = differing_keys(group, /*of_data=*/false);
  std::map<std::pair<std::string, std::string>, std::map<std::string, Json>> usual;
  for (const auto& [model, group] : by_model) usual[model] = usual_values(group, own_keys[model]);
  for (size_t i = 0; i < records.size(); ++i) {
    const std::string& name = name_of.at(&records[i]);
    const std::pair model(result[i].column, name);
    result[i].row = with_values(name, settings[i], own_keys[model], usual[model]);
    if (!usual[model].empty()) result[i].unsaid = with_options(name, usual[model]);
  }
  tell_plans_apart(records, settings, result);
  tell_data_apart(records, result);
  return result;
}

void keep_task(const std::string& pattern, std::vector<RunRecord>& records) {
  if (pattern.empty()) return;
  const std::vector<std::string> tasks = tasks_of(records);
  std::erase_if(records, [&](const RunRecord& record) { return !matches_pattern(pattern, record.task); });
  XF_CHECK(!records.empty(), UserError, "--task {}: there are records of {}", pattern, fmt::join(tasks, ", "));
}

std::vector<RunRecord> select_records(std::vector<RunRecord> records, const RecordSelection& how,
                                      std::vector<std::string>& notes) {
  static_cast<void>(choice("--duplicates: ", "rule", how.duplicates, {"newest", "refuse", "all"}));
  keep_task(how.task, records);
  const auto limited = [](const RunRecord& record) { return !record.not_comparable.empty(); };
  const int64_t quick = std::count_if(records.begin(), records.end(), limited);
  if (quick > 0 && quick < static_cast<int64_t>(records.size())) {
    std::erase_if(records, limited);
    notes.push_back(
        fmt::format("{} records of part of the data (--limit, --fast) are left out: they are not "
                    "comparable with the others",
                    quick));
  } else if (quick > 0) {
    notes.emplace_back(
        "all of these are runs of part of the data (--limit, --fast): of no use but to see that they run");
  }
  settle_duplicates(records, how.duplicates, notes);
  return records;
}

std::vector<RunRecord> judged_by(std::vector<RunRecord> records, const std::string& metric, const std::string& origin) {
  std::vector<std::string> names;
  for (const Quantity& one : quantities()) names.push_back(one.metric.name);
  for (const RunRecord& record : records)
    for (const MetricResult& one : record.metrics)
      if (std::find(names.begin(), names.end(), one.spec.name) == names.end()) names.push_back(one.spec.name);
  const std::string& wanted = names[choice(origin + ": ", "metric", metric, names)];
  const auto is_wanted = [&](const MetricResult& one) { return one.spec.name == wanted; };
  std::set<std::string> tasks;
  for (const RunRecord& record : records)
    if (std::any_of(record.metrics.begin(), record.metrics.end(), is_wanted)) tasks.insert(record.task);
  std::erase_if(records, [&](const RunRecord& record) { return !tasks.contains(record.task); });
  for (RunRecord& record : records)
    // What a run without it reached in another metric is no score here.
    if (std::stable_partition(record.metrics.begin(), record.metrics.end(), is_wanted) == record.metrics.begin())
      record.metrics.clear();
  return records;
}

void require_one_column(const std::vector<RunRecord>& records, const std::string& what) {
  const std::vector<std::string> tasks = tasks_of(records);
  XF_CHECK(tasks.size() <= 1, UserError, "there are records of {}; --task NAME says which are meant",
           fmt::join(tasks, ", "));
  std::set<std::string> columns;
  for (const RecordLabel& label : labels_of(records)) columns.insert(label.column);
  XF_CHECK(columns.size() <= 1, UserError, "{} of one task under one protocol and options; these are records of {}",
           what, fmt::join(columns, " and "));
}

}  // namespace xformer::reporting
