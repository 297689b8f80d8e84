#include "engine/terms.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>
#include <vector>

#include "attention/descriptor.h"
#include "core/metric.h"
#include "core/names.h"
#include "core/text.h"
#include "data/datasets.h"
#include "plan/protocols.h"
#include "plan/schedule.h"
#include "plan/update_rule.h"
#include "tasks/two_classes.h"

namespace xformer::engine {
namespace {

using Meanings = std::vector<std::pair<const char*, const char*>>;

// Letters of Tay et al., "Efficient Transformers: A Survey", 2020, and MR, which it does not have. Some names are of
// two classes, "FP+M".
const Meanings kClasses{
    {"full", "every query sees every key, and the weights are exact"},
    {"FP", "fixed pattern: which keys a query sees is decided by their places (windows, blocks, strides)"},
    {"LP", "learned pattern: which keys a query sees is decided by what they hold (hashing, sorting)"},
    {"LR", "low rank: all keys, brought to a number of them that does not grow with the length"},
    {"KR", "kernel: weights are products of features of queries and keys, so sums over keys are taken once"},
    {"RC", "recurrence: what a segment leaves behind is seen from the next"},
    {"M", "memory: a few tokens that see all others and are seen by them"},
    {"MR", "several resolutions: near keys one by one, far ones in groups"},
    {"own", "a module from a file of yours, of which nobody here knows more"}};

const Meanings kGrowths{
    {"n", "the time grows as the length: twice as long takes twice as long"},
    {"n log n", "the time grows little faster than the length: twice as long takes some 2.2 times at 1,024 places"},
    {"n sqrt n", "the time grows as the length times its root: twice as long takes 2.8 times"},
    {"n^2", "the time grows as the square of the length, as of all pairs of places: twice as long takes four times"}};

const Meanings kTraits{
    {"causal_ok", "can be told to look at no later place"},
    {"cross_ok", "queries may be of another sequence than keys and values"},
    {"appended_padding_exact", "padding more at the end changes no output of a valid place"},
    {"stochastic", "draws numbers even without dropout"},
    {"fixed_length", "has parameters for every place, so the longest length is decided when it is built"},
    {"carries", "hands something from layer to layer"},
    {"library_dropout", "drops by LibTorch's generator: what is computed again is another draw"}};

const Meanings kMeasures{
    {"examples_per_s", "examples per second: the median over the timed steps of a run's last process"},
    {"peak_device_bytes", "memory in tensors: most bytes at once, as the device's allocator counts them"},
    {"peak_process_bytes", "memory of the process: the most that was resident, the program and LibTorch included"},
    {"parameters", "trained numbers; one that is shared counts once"},
    {"flops_per_example", "operations of a forward pass: matrix products, a multiply-add counts 2"},
    {"smat", "AdaMRA's score of speed, memory and accuracy of some models beside each other: `xformer smat`"},
    {"chance", "what the best constant answer gets: the most frequent class, or the mean"}};

std::string meaning(const Meanings& meanings, const std::string& name) {
  const auto found = std::find_if(meanings.begin(), meanings.end(), [&](const auto& one) { return name == one.first; });
  return found == meanings.end() ? "" : found->second;
}

std::string names_of(const Meanings& meanings) {
  std::string result;
  for (const auto& [name, text] : meanings) result += (result.empty() ? "" : ", ") + std::string(name);
  return result;
}

// Letters of classes and sums of them, as attentions have them.
std::set<std::string> class_names() {
  std::set<std::string> names;
  for (const auto& [name, text] : kClasses) names.insert(name);
  for (const std::string& attention : attention::distinct_names())
    names.insert(attention::resolve(attention).base->method_class);
  return names;
}

Json term(const std::string& name, const char* kind, const std::string& title, Json more = Json::object()) {
  Json result{{"name", name}, {"kind", kind}, {"aliases", Json::array()}, {"title", title}};
  result.update(more);
  return result;
}

Json training_keys(const std::vector<std::string>& options) {
  Json keys = Json::array();
  for (const std::string& option : options) keys.push_back("training." + option);
  return keys;
}

Json protocol_json(const Json& file) {
  Json tasks = Json::array();
  for (const data::DatasetDescriptor& task : data::datasets().all())
    for (const plan::Protocol& protocol : plan::protocols_of(task.name))
      if (protocol.name == file["name"])
        tasks.push_back({{"name", task.name}, {"summary", protocol.summary}, {"values", protocol.values}});
  return term(file["name"], "protocol", file["about"], {{"protocols", tasks}});
}

}  // namespace

std::string class_meaning(const std::string& method_class) {
  std::string result;
  for (const std::string_view one : split(method_class, '+'))
    result += (result.empty() ? "" : "; ") + meaning(kClasses, std::string(one));
  return result;
}
std::string trait_meaning(const std::string& trait) { return meaning(kTraits, trait); }

Json terms_json() {
  Json result = Json::array();
  for (const Json& file : plan::protocol_files()) result.push_back(protocol_json(file));
  for (const plan::ScheduleDescriptor& one : plan::all_schedules().all())
    result.push_back(term(one.name, "schedule", one.summary,
                          {{"choose", "training.schedule=" + one.name}, {"reads", training_keys(one.options)}}));
  for (const plan::UpdateRule& one : plan::all_optimizers().all())
    result.push_back(term(one.name, "optimizer", one.summary,
                          {{"choose", "training.optimizer=" + one.name},
                           {"reads", training_keys(one.options)},
                           {"remembers", one.moments}}));
  const std::array<std::pair<MetricSpec, const char*>, 5> metrics{
      {{accuracy_metric(), "the share of the examples whose answer is right"},
       {tasks::auc_metric(), "of two classes: the share of pairs, one of each, whose scores are in the right order"},
       {tasks::f1_metric(), "of two classes: the harmonic mean of precision and recall of class 1"},
       {top5_metric(), "the share of the examples whose class is among the five highest scores"},
       {rmse_metric(), "the root of the mean squared error, in the target's own unit"}}};
  for (const auto& [spec, text] : metrics)
    result.push_back(term(spec.name, "metric", text,
                          {{"shown as", spec.heading()}, {"better", spec.higher_is_better ? "higher" : "lower"}}));
  for (const auto& [name, text] : kMeasures) result.push_back(term(name, "measure", text));
  for (const std::string& name : class_names()) result.push_back(term(name, "class of attention", class_meaning(name)));
  for (const auto& [name, text] : kGrowths) {
    result.push_back(term(name, "growth of an attention's time with the length n", text));
    result.back()["aliases"] = {canonical_name(fmt::format("O({})", name))};
  }
  const auto column = [&](const char* name, const char* alias, const std::string& text) {
    result.push_back(term(name, "what is said of an attention", text));
    result.back()["aliases"] = {alias};
  };
  column("class", "classes", fmt::format("what it saves by: {}, or several of these", names_of(kClasses)));
  column("growth", "complexity", "how its time grows with the length: " + names_of(kGrowths));
  column("traits", "trait", "what callers can count on: " + names_of(kTraits));
  for (const auto& [name, text] : kTraits) result.push_back(term(name, "trait of an attention", text));
  return result;
}

}  // namespace xformer::engine
