// What is to be predicted of an example, as far as its data says: the kind of task (src/tasks/kinds), the fields that
// hold the answer, and facts that the kind reads by name.
#pragma once

#include "data/field.h"

namespace xformer::data {

struct TargetSpec {
  std::string kind;
  std::string text;  // as a person would say it: "class, 1 of 10"
  Fields fields;
  Json parameters = Json::object();

  // Of the field "label"; 0 where there is none.
  [[nodiscard]] int64_t classes() const;
  [[nodiscard]] bool has(std::string_view field) const { return index_of(fields, field) >= 0; }
  // Whether the answer is a field with places.
  [[nodiscard]] bool of_places() const { return !fields.empty() && fields.front().of_tokens(); }
  bool operator==(const TargetSpec&) const = default;
};

struct ClassTarget {
  bool top5 = false;   // also counted is whether the label is among the five highest scores
  bool mixed = false;  // a training example may be a mixture of two with their labels
};
// One of `classes`.
[[nodiscard]] TargetSpec class_target(int64_t classes, const ClassTarget& options = {});
// One of two classes by one logit.
[[nodiscard]] TargetSpec binary_target();
// `scale`: what one unit of the stored number is in the data's own unit; `tolerance`: a prediction this close counts as
// right, 0: accuracy has no meaning.
[[nodiscard]] TargetSpec number_target(double scale = 1, double tolerance = 0);

inline constexpr int32_t kNoLabel = -1;  // of a place where there is nothing to predict

struct PlaceTarget {
  bool causal = true;  // no place may see a later one
  // Where the sequence itself is predicted: what one place of it is ("byte"), and which context the places were scored
  // with ("window"), without which bits for each of them cannot be compared.
  std::string symbol = {}, scoring = {};
  bool perplexity = false;  // and not bits is what models are compared by
  bool words = false;       // a second field, "words": how many words begin with what is to be predicted at a place
};
// One of `classes` at every place that has one: the field "label" with places, elsewhere kNoLabel.
[[nodiscard]] TargetSpec place_target(int64_t classes, const PlaceTarget& options = {});

enum class Judged { kSummary, kAnswer };  // by ROUGE, or by F1 and exact match
// A text of at most `written` symbols about the first of two sequences, the second of which holds those that are right
// (core/pair_symbols.h). `symbol`: what one is ("byte").
[[nodiscard]] TargetSpec text_target(int64_t classes, int64_t written, const std::string& symbol, Judged judged);

[[nodiscard]] Json target_to_json(const TargetSpec& target);
[[nodiscard]] TargetSpec target_from_json(const Json& json);

}  // namespace xformer::data
