#include "data/target.h"

#include <fmt/format.h>

namespace xformer::data {

int64_t TargetSpec::classes() const {
  const int64_t label = index_of(fields, "label");
  return label < 0 ? 0 : fields[static_cast<size_t>(label)].range;
}

TargetSpec class_target(int64_t classes, const ClassTarget& options) {
  const auto label = [&](const char* name, bool stored) {
    return Field{.name = name, .element = Element::kI32, .range = classes, .stored = stored};
  };
  TargetSpec target{"classification", fmt::format("class, 1 of {}", classes), {label("label", true)}};
  if (options.mixed) {
    target.fields.push_back(label("second_label", false));
    // Of the first label; whole where an example is no mixture.
    target.fields.push_back({.name = "share", .element = Element::kF32, .stored = false, .fill = 1});
  }
  if (options.top5) target.parameters["top5"] = true;
  return target;
}

TargetSpec binary_target() {
  TargetSpec target = class_target(2);
  target.kind = "binary";
  return target;
}

TargetSpec number_target(double scale, double tolerance) {
  return {"regression",
          "number",
          {{.name = "target", .element = Element::kF32}},
          {{"scale", scale}, {"tolerance", tolerance}}};
}

TargetSpec place_target(int64_t classes, const PlaceTarget& options) {
  TargetSpec target{
      "per-position",
      options.symbol.empty()
          ? fmt::format("class of places, 1 of {}", classes)
          : fmt::format("{} {}, 1 of {}", options.causal ? "next" : "masked", options.symbol, classes),
      {{.name = "label", .element = Element::kI32, .axes = Axes::kToken, .range = classes, .fill = kNoLabel}},
      {{"causal", options.causal}}};
  if (!options.symbol.empty()) target.parameters.update({{"symbol", options.symbol}, {"scoring", options.scoring}});
  if (options.perplexity) target.parameters["headline"] = "perplexity";
  if (options.words)
    target.fields.push_back({.name = "words", .element = Element::kU8, .axes = Axes::kToken, .range = 256});
  return target;
}

TargetSpec text_target(int64_t classes, int64_t written, const std::string& symbol, Judged judged) {
  return {"written-text",
          fmt::format("text of at most {} {}s", written, symbol),
          {},
          {{"classes", classes},
           {"written", written},
           {"symbol", symbol},
           {"judged", judged == Judged::kAnswer ? "answers" : "summaries"}}};
}

Json target_to_json(const TargetSpec& target) {
  Json fields = Json::array();
  for (const Field& field : target.fields) fields.push_back(field_to_json(field));
  return {{"kind", target.kind}, {"text", target.text}, {"fields", fields}, {"parameters", target.parameters}};
}

TargetSpec target_from_json(const Json& json) {
  TargetSpec target{json.at("kind"), json.at("text"), {}, json.at("parameters")};
  for (const Json& field : json.at("fields")) target.fields.push_back(field_from_json(field));
  return target;
}

}  // namespace xformer::data
