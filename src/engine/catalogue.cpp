#include "engine/catalogue.h"

#include <CLI/CLI.hpp>

#include "cli/completion.h"
#include "core/option_names.h"
#include "data/fetch.h"
#include "engine/terms.h"
#include "plan/options.h"
#include "plan/protocols.h"
#include "plan/task_defaults.h"
#include "reporting/describe_options.h"

namespace xformer::engine {

Json attention_json(const attention::Resolved& attention) {
  const attention::Descriptor& base = *attention.base;
  const attention::Traits traits = attention.traits();
  Json defaults = Json::object();
  for (const OptionInfo& option : base.options) defaults[option.name] = option.fallback;
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
  result["class_meaning"] = class_meaning(base.method_class);
  result["complexity"] = attention::complexity_name(base.complexity);
  result["role"] = base.build_core ? "core" : base.build_mixer ? "mixer" : "block";
  result["padding"] = fmt::format("appending padding leaves valid outputs as they are: {}", base.appended_padding.when);
  result["traits"] = {{"causal_ok", traits.causal_ok},
                      {"cross_ok", traits.cross_ok},
                      {"appended_padding_exact", base.appended_padding.holds(defaults)},
                      {"stochastic", traits.stochastic},
                      {"fixed_length", traits.fixed_length},
                      {"carries", traits.carries},
                      {"library_dropout", traits.library_dropout}};
  result["trait_meanings"] = Json::object();
  for (const auto& [trait, holds] : result["traits"].items())
    if (holds) result["trait_meanings"][trait] = trait_meaning(trait);
  result["task_defaults"] = Json::array();
  for (const plan::TaskDefault& one : plan::task_defaults_of(attention))
    result["task_defaults"].push_back(
        {{"tasks", one.tasks}, {"option", "attention." + one.option}, {"value", one.value}, {"source", one.source}});
  result["model_defaults"] = Json::array();
  for (const auto& [option, value] : base.model_defaults.items())
    result["model_defaults"].push_back(fmt::format("model.{}={}", option, value_word(value)));
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
          {"classes", task.shape_is_likely || shape.target.classes() == 0 ? Json() : Json(shape.target.classes())},
          {"vocabulary", shape.vocabulary == 0 ? Json() : Json(shape.vocabulary)},
          {"family", task.default_family},
          {"fetch", !data::files_to_fetch(task.name, {}).empty()},
          {"protocols", protocols},
          {"options", reporting::options_json(task.options, "data.")}};
}

Json words_json(const std::string& model) {
  const plan::ModelWords words = plan::read_model(model, "encoder");
  const attention::Resolved attention = attention::resolve(words.attention);
  Json options = reporting::options_json(words.family->options, "model.");
  for (const Json& option : reporting::options_json(attention.options(), "attention.")) options.push_back(option);
  return {{"name", model},
          {"kind", "model"},
          {"aliases", Json::array()},
          {"title", fmt::format("{} with {}", words.family->title, attention.name)},
          {"means", words.family->name + "/" + attention.name},
          {"summary", words.family->summary},
          {"attention", attention.decorator == nullptr ? attention.base->summary : attention.decorator->summary},
          {"options", options}};
}

namespace {

Json model_json(const models::FamilyDescriptor& family) {
  return {{"name", family.name},       {"kind", "model"},
          {"aliases", family.aliases}, {"title", family.title},
          {"summary", family.summary}, {"options", reporting::options_json(family.options, "model.")}};
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
  Json attentions = Json::array(), models = Json::array(), whole = Json::array(), tasks = Json::array();
  for (const std::string& name : attention::distinct_names())
    attentions.push_back(attention_json(attention::resolve(name)));
  for (const models::FamilyDescriptor& family : models::all_families().all()) models.push_back(model_json(family));
  for (const data::DatasetDescriptor& task : data::datasets().all()) tasks.push_back(task_json(task));
  for (const std::string& name : plan::model_names())
    if (name.starts_with("mrs-") && !plan::read_model(name, "encoder").called.empty())
      whole.push_back(words_json(name));
  return {{"verbs", cli::command_tree(program)},
          {"attentions", attentions},
          {"models", models},
          {"tasks", tasks},
          {"whole_models", whole},
          {"terms", terms_json()},
          {"groups",
           {group_json("training", "Training", plan::training_schema().options()),
            group_json("eval", "Evaluation", plan::eval_schema().options())}}};
}

}  // namespace xformer::engine
