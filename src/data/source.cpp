#include "data/source.h"

#include <algorithm>

#include "core/error.h"
#include "core/names.h"
#include "core/plain_files.h"

namespace xformer::data {

std::string split_name(Split split) {
  switch (split) {
    case Split::kTrain:
      return "train";
    case Split::kDev:
      return "dev";
    case Split::kTest:
      return "test";
  }
  throw InternalError("a split without a name");
}

Split parse_split(const std::string& name) {
  const std::string wanted = canonical_name(name);
  if (wanted == "val" || wanted == "valid" || wanted == "validation") return Split::kDev;
  for (const Split split : kAllSplits)
    if (split_name(split) == wanted) return split;
  throw UserError(unknown_name_message("split", name, {"train", "dev", "test"}));
}

int64_t image_columns(const DataShape& shape) { return shape.side * (shape.width > 0 ? 1 : shape.channels); }

Fields input_fields(const DataShape& shape) {
  Fields fields;
  if (shape.vocabulary > 0)
    fields.push_back({"tokens", narrowest(shape.vocabulary - shape.id_offset), Axes::kToken, 1, shape.vocabulary});
  else if (shape.width > 0) fields.push_back({"values", Element::kF32, Axes::kTokenByK, shape.width});
  fields.insert(fields.end(), shape.further.begin(), shape.further.end());
  return fields;
}

Fields fields_of(const DataShape& shape) {
  Fields fields = input_fields(shape);
  fields.insert(fields.end(), shape.target.fields.begin(), shape.target.fields.end());
  return fields;
}

int64_t example_length(const Example& example, const DataShape& shape) {
  if (shape.vocabulary == 0) return static_cast<int64_t>(example.values.size()) / shape.width;
  return static_cast<int64_t>(std::max(example.ids[0].size(), example.ids[1].size()));
}

std::vector<Part> parts_of(const DataShape& shape) {
  const Fields fields = fields_of(shape);
  std::vector<Part> facts, result;
  size_t further = 0, more = 0;
  for (size_t i = 0; i < fields.size(); ++i) {
    Part part;
    part.place = i;
    part.field = fields[i];
    if (!part.field.stored) continue;
    using enum Part::Member;
    const std::string& name = part.field.name;
    if (!part.field.of_tokens()) {
      part.member_ = name == "label" ? kLabel : name == "target" ? kTarget : kFacts;
      if (part.member_ == kFacts) part.at_ = more++;
      facts.push_back(part);
      continue;
    }
    part.member_ = name == "tokens" ? kIds : name == "values" ? kValues : kFurther;
    for (part.sequence = 0; part.sequence < shape.sequences; ++part.sequence) {
      part.at_ = part.member_ == kFurther ? further++ : static_cast<size_t>(part.sequence);
      result.push_back(part);
    }
  }
  // Both of one sequence lie side by side.
  std::stable_sort(result.begin(), result.end(),
                   [](const Part& left, const Part& right) { return left.sequence < right.sequence; });
  facts.insert(facts.end(), result.begin(), result.end());
  return facts;
}

Elements Part::elements(const Example& example) const {
  if (member_ == Member::kIds) return example.ids[at_];
  if (member_ == Member::kValues) return example.values;
  XF_ASSERT(member_ == Member::kFurther && at_ < example.further.size(), "an example without {}", field.name);
  return example.further[at_];
}

double Part::fact(const Example& example) const {
  if (member_ == Member::kLabel) return static_cast<double>(example.label);
  if (member_ == Member::kTarget) return example.target;
  XF_ASSERT(member_ == Member::kFacts && at_ < example.facts.size(), "an example without {}", field.name);
  return example.facts[at_];
}

void Part::set_elements(Example& example, const Elements& elements) const {
  if (member_ == Member::kIds) example.ids[at_] = elements;
  else if (member_ == Member::kValues) example.values = elements;
  else {
    example.further.resize(std::max(example.further.size(), at_ + 1));
    example.further[at_] = elements;
  }
}

void Part::set_fact(Example& example, double fact) const {
  if (member_ == Member::kLabel) example.label = static_cast<int64_t>(fact);
  else if (member_ == Member::kTarget) example.target = static_cast<float>(fact);
  else {
    example.facts.resize(std::max(example.facts.size(), at_ + 1));
    example.facts[at_] = fact;
  }
}

void check_place(const Path& folder) {
  if (folder.empty()) return;
  const std::string other = other_than_a_file(folder);
  XF_CHECK(other != "nothing", DataError, "--data: there is no file or folder {}", folder.string());
  XF_CHECK(other.empty() || other == "a folder", DataError, "--data: expected a folder or a file, found {} at {}",
           other, folder.string());
}

void require_folder(const std::string& dataset, const std::string& expected, const DataLocation& location) {
  XF_CHECK(!location.folder.empty(), DataError,
           "{} needs its files: --data DIR (or $XFORMER_DATA/{}) with {}; `xformer describe {}` says where they come "
           "from",
           dataset, dataset, expected, dataset);
}

}  // namespace xformer::data
