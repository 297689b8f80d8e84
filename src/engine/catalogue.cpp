#include "engine/catalogue.h"

#include <CLI/CLI.hpp>

#include <algorithm>

#include "cli/completion.h"
#include "data/check.h"
#include "plan/options.h"
#include "plan/protocols.h"
#include "reporting/describe_options.h"

namespace xformer::engine {

Json attention_json(const attention::Resolved& attention) {
  const attention::Descriptor& base = *attention.base;
  const attention::Traits traits = attention.traits();
  Json result{{"name", attention.name}, {"kind", "attention"}, {"title", base.title}, {"paper", base.paper}};
  if (attention.decorator != nullptr) {
    result["title"] = attention.decorator->title + " around " + base.title;
    result["paper"] = attention.decorator->paper + "; " + base.paper;
    result["decorator"] = attention.decorator->name;
    result["base"] = base.name;
  }
  result["aliases"] = attention.decorator == nullptr ? Json(base.aliases) : Json::array();
  result["summary"] =
      attention.decorator == nullptr ? base.summary : attention.decorator->summary + " Inside: " + base.summary;
  result["class"] = base.method_class;
  result["complexity"] = attention::complexity_name(base.complexity);
  result["role"] = base.build_core ? "core" : base.build_mixer ? "mixer" : "block";
  result["traits"] = {{"causal_ok", traits.causal_ok},
                      {"cross_ok", traits.cross_ok},
                      {"appended_padding_exact", traits.appended_padding_exact},
                      {"stochastic", traits.stochastic},
                      {"fixed_length", traits.fixed_length},
                      {"carries", traits.carries},
                      {"library_dropout", traits.library_dropout}};
  result["options"] = reporting::options_json(attention.options(), "attention.");
  return result;
}

Json task_json(const data::DatasetDescriptor& task) {
  Json protocols = Json::array(), defaults = Json::object();
  for (const OptionInfo& option : task.options) defaults[option.name] = option.fallback;
  const data::DataShape shape = task.shape(defaults);
  for (const plan::Protocol& protocol : plan::protocols_of(task.name))
    protocols.push_back({{"name", protocol.name}, {"summary", protocol.summary}, {"values", protocol.values}});
  return {{"name", task.name},
          {"kind", "task"},
          {"aliases", task.aliases},
          {"title", task.title},
          {"paper", task.paper},
          {"source", task.source},
          {"predicts", task.shape_is_likely ? "what its files say" : shape.target.text},
          {"classes", shape.target.classes()},
          {"vocabulary", shape.vocabulary},
          {"family", task.default_family},
          {"protocols", protocols},
          {"options", reporting::options_json(task.options, "data.")}};
}

namespace {

Json model_json(const models::FamilyDescriptor& family) {
  return {{"name", family.name},       {"kind", "model"},
          {"aliases", family.aliases}, {"title", family.title},
          {"summary", family.summary}, {"options", reporting::options_json(family.options, "model.")}};
}

cli::CompletionWords words() {
  const std::vector<std::string> attentions = attention::all_names();
  std::vector<std::string> tasks = data::datasets().names();
  // "uea/<name>" stands for any name.
  std::erase_if(tasks, [](const std::string& name) { return name.ends_with("<name>"); });
  std::vector<std::string> names = attentions, protocols, keys;
  for (const auto& list : {models::all_families().names(), tasks, std::vector<std::string>{"training", "eval"}})
    names.insert(names.end(), list.begin(), list.end());
  for (const data::DatasetDescriptor& task : data::datasets().all()) {
    for (const plan::Protocol& protocol : plan::protocols_of(task.name)) protocols.push_back(protocol.name);
    for (const std::string& attention : attentions)
      for (const OptionGroup& group : plan::option_groups(plan::find_parts(task.name, attention, "")))
        for (const OptionInfo& option : group.options) keys.push_back(group.prefix + "." + option.name + "=");
  }
  const auto unique = [](std::vector<std::string> list) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    return list;
  };
  return {{"--model", attentions},
          {"--models", attentions},
          {"--mode", {"train", "inference"}},
          {"--core", attentions},
          {"--mixer", attentions},
          {"--task", tasks},
          {"--protocol", unique(protocols)},
          {"--set", unique(keys)},
          {"NAME", unique(names)},
          {"--precision", {"fp32", "bf16"}},
          {"--device", {"auto", "cpu", "cuda"}},
          {"--resume", {"auto", "never", "must"}},
          {"--kernels", {"auto", "composite", "reference", "check"}},
          {"--deterministic", {"on", "off"}},
          {"--cuda-graph", {"auto", "on", "off"}},
          {"--split", {"train", "dev", "test"}},
          {"--dump-config", {"full", "minimal"}},
          {"WHAT", {"all", "attentions", "models", "tasks"}},
          {"SHELL", {"bash", "zsh", "fish"}}};
}

Json group_json(const char* name, const char* title, const std::vector<OptionInfo>& options) {
  return {{"name", name},
          {"kind", "options"},
          {"aliases", Json::array()},
          {"title", title},
          {"options", reporting::options_json(options, std::string(name) + ".")}};
}

}  // namespace

Json catalogue_json(const CLI::App& program) {
  Json attentions = Json::array(), models = Json::array(), tasks = Json::array(), verbs = Json::array(),
       scripts = Json::object();
  for (const std::string& name : attention::all_names()) {
    const attention::Resolved attention = attention::resolve(name);
    if (attention.name == name) attentions.push_back(attention_json(attention));  // an alias is not listed twice
  }
  for (const models::FamilyDescriptor& family : models::all_families().all()) models.push_back(model_json(family));
  for (const data::DatasetDescriptor& task : data::datasets().all()) tasks.push_back(task_json(task));
  for (const CLI::App* verb : program.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); }))
    verbs.push_back({{"name", verb->get_name()}, {"help", verb->get_description()}});
  const cli::CompletionWords offered = words();
  for (const char* shell : {"bash", "zsh", "fish"}) scripts[shell] = cli::completion_script(program, shell, offered);
  return {{"verbs", verbs},
          {"attentions", attentions},
          {"models", models},
          {"tasks", tasks},
          {"groups",
           {group_json("training", "Training", plan::training_schema().options()),
            group_json("eval", "Evaluation", plan::eval_schema().options())}},
          {"completion", scripts}};
}

}  // namespace xformer::engine
