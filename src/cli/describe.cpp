#include "cli/describe.h"

#include "reporting/describe_options.h"

namespace xformer::cli {

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

Json model_json(const models::FamilyDescriptor& family) {
  return {{"name", family.name},       {"kind", "model"},
          {"aliases", family.aliases}, {"title", family.title},
          {"summary", family.summary}, {"options", reporting::options_json(family.options, "model.")}};
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

Json attentions_json() {
  Json result = Json::array();
  for (const std::string& name : attention::all_names()) {
    const attention::Resolved attention = attention::resolve(name);
    if (attention.name == name) result.push_back(attention_json(attention));  // an alias is not listed twice
  }
  return result;
}

Json models_json() {
  Json result = Json::array();
  for (const models::FamilyDescriptor& family : models::all_families().all()) result.push_back(model_json(family));
  return result;
}

Json tasks_json() {
  Json result = Json::array();
  for (const data::DatasetDescriptor& task : data::datasets().all()) result.push_back(task_json(task));
  return result;
}

}  // namespace xformer::cli
