#include "inspect/pytorch_module.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "core/code_version.h"
#include "core/error.h"
#include "core/text.h"
#include "inspect/pytorch_fragments.h"
#include "models/encoder_options.h"
#include "models/event_input.h"
#include "plan/options.h"

namespace xformer::inspect {

namespace {

struct Fragment {
  std::vector<std::string> names;  // "# for:"
  std::vector<std::string> only;   // "key=value"
  std::string body;                // what is behind these lines
};

std::vector<std::string> listed(std::string_view text) {
  std::vector<std::string> result;
  for (const std::string_view word : split(text, ',')) result.emplace_back(trim(word));
  return result;
}

std::vector<Fragment> parse(const std::vector<const char*>& texts) {
  constexpr std::string_view kFor = "# for: ", kOnly = "# only: ";
  std::vector<Fragment> result;
  for (std::string_view rest : texts) {
    Fragment fragment;
    for (std::vector<std::string>* into : {&fragment.names, &fragment.only}) {
      const std::string_view mark = into == &fragment.names ? kFor : kOnly;
      if (!rest.starts_with(mark)) continue;
      const size_t end = rest.find('\n');
      *into = listed(rest.substr(mark.size(), end - mark.size()));
      rest.remove_prefix(end + 1);
    }
    XF_ASSERT(!fragment.names.empty(), "a fragment does not say what it is for: {}", rest.substr(0, 80));
    fragment.body = rest;
    result.push_back(std::move(fragment));
  }
  return result;
}

const std::vector<Fragment>& attentions() {
  static const std::vector<Fragment> kFragments = parse(attention_fragments());
  return kFragments;
}

const std::vector<Fragment>& parts() {
  static const std::vector<Fragment> kFragments = parse(model_fragments());
  return kFragments;
}

const Fragment* find(const std::vector<Fragment>& fragments, const std::string& name) {
  for (const Fragment& fragment : fragments)
    if (std::find(fragment.names.begin(), fragment.names.end(), name) != fragment.names.end()) return &fragment;
  return nullptr;
}

std::string part(const std::string& name) {
  const Fragment* const found = find(parts(), name);
  XF_ASSERT(found != nullptr, "there is no fragment '{}'", name);
  return found->body;
}

// The fragment of a name and the options it is for.
const Fragment& fragment_of(const std::vector<Fragment>& fragments, const std::string& name, const std::string& prefix,
                            const Json& options, const std::vector<std::string>& known, const char* kind) {
  const Fragment* const found = find(fragments, name);
  XF_CHECK(found != nullptr, UserError, "{} {} is not written in plain PyTorch yet; there are {}", kind, name,
           fmt::join(known, ", "));
  for (const std::string& condition : found->only) {
    const size_t equals = condition.find('=');
    const Json& value = options.at(condition.substr(0, equals));
    const std::string found_value = value.is_string() ? value.get<std::string>() : value.dump();
    const std::vector<std::string_view> good = split(std::string_view(condition).substr(equals + 1), '|');
    XF_CHECK(std::find(good.begin(), good.end(), found_value) != good.end(), UserError,
             "{} is written in plain PyTorch with {}.{} alone, the run has {}", name, prefix, condition, found_value);
  }
  return *found;
}

// A value as Python writes it: for words, numbers and lists of them as JSON does.
std::string python(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  return value.dump();
}

// NAME = SimpleNamespace(key=value, ...) in lines of a readable width.
std::string definition(const std::string& name, const Json& values) {
  constexpr size_t kWidth = 110;
  std::string text = name + " = SimpleNamespace(", line;
  for (const auto& [key, value] : values.items()) {
    const std::string word = fmt::format("{}={},", key, python(value));
    if (line.empty() || line.size() + word.size() > kWidth) {
      text += line + "\n";
      line = "   ";
    }
    line += " " + word;
  }
  return text + line + "\n)\n";
}

int64_t count_of(const Json& values, const char* key) { return values.at(key).get<int64_t>(); }

// What families of Transformers leave out of their options: an encoder's, or what the family sets instead.
Json transformer_options(const std::string& family, const Json& own) {
  static const std::map<std::string, Json> kFixed{
      {"decoder", Json{{"pooling", "none"}, {"classifier_dim", 0}, {"mask_output", false}}},
      {"token-encoder", Json{{"pooling", "none"}, {"classifier_dim", 0}, {"mask_output", false}}},
      {"vit", Json{{"pooling", "cls_vector"}, {"classifier_dim", 0}, {"mask_output", false}, {"norm_epsilon", 1e-6}}}};
  Json result = models::encoder_schema().write({});
  result["stochastic_depth"] = 0.0;
  result["tied"] = false;
  if (const auto fixed = kFixed.find(family); fixed != kFixed.end()) result.update(fixed->second);
  result.update(own);
  return result;
}

// MODEL of an FT-Transformer.
Json table_settings(const models::ModelRequest& request, int64_t columns) {
  Json model = request.model_options;
  model["head_dim"] = count_of(model, "dim") / count_of(model, "heads");
  model.update(Json{{"attention_bias", true}, {"pinned", 1}, {"max_len", columns + 1}});
  return model;
}

// MODEL of another Transformer: its options, and what follows from them.
Json transformer_settings(const RunPlan& plan, const models::ModelRequest& request, int64_t length) {
  Json model = transformer_options(plan.family, request.model_options);
  const bool batch_norm = model["norm"] == "batch";
  // Families of places have a norm behind their layers where these take the norm of their input.
  model["final_norm"] = plan.family == "decoder" || plan.family == "token-encoder"
                            ? Json(model["norm"] == "pre")
                            : Json(request.attention_options.value("final_norm", !batch_norm));
  const int64_t width = count_of(model, "classifier_dim");
  Json widths = Json::array();
  if (width > 0 && model["pooling"] != "flatten") widths.push_back(width);
  if (model.value("head_layers", int64_t{2}) == 3) widths.push_back(std::max<int64_t>(1, width / 2));
  model["head_widths"] = widths;
  model["summaries"] = request.input.sequences == 1 ? 1 : model["interaction"] == "nli" ? 4 : 2;
  const int64_t prefix = attention::prefix_tokens(request.attention, request.attention_options);
  model["prefix"] = prefix;
  model["pinned"] = prefix + (model["pooling"].get<std::string>().starts_with("cls_") ? 1 : 0);
  model["max_len"] = length + prefix + (model["pooling"] == "cls_vector" ? 1 : 0);
  // Of initial values, memory and batches.
  for (const char* key :
       {"init", "classifier_dim", "head_layers", "ff_chunk", "loss_block", "length_rule", "norm_places"})
    model.erase(key);
  return model;
}

std::string opening(const RunPlan& plan, const training::Weights& weights, const std::string& stem) {
  const auto step = weights.metadata.find("step");
  return fmt::format(
      R"python("""{name} on {task}{step} as a plain PyTorch module, written by `xformer export-pytorch` ({version}, {commit}).

It needs PyTorch alone. The weights lie beside it, under the names that the model's parameters have here:

    python3 {stem}.py 3 5 7 2             # the logits of these ids
    python3 {stem}.py in.safetensors      # of what `xformer forward --input` takes: tokens or values, and mask
    from {stem} import load
    load()(ids, mask)                     # ids [b,n], mask [b,n] bool, true where a place is valid

In evaluation mode it computes what the program does. In training it drops what the run dropped, by PyTorch's generator;
what an attention does between steps (drawing new features) it does not do.
"""

import json
import math
import pathlib
import sys
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn

WEIGHTS = pathlib.Path(__file__).with_suffix(".safetensors")
)python",
      fmt::arg("name", plan.name()), fmt::arg("task", plan.task),
      fmt::arg("step", step == weights.metadata.end() ? "" : fmt::format(" after {} steps,", step->second)),
      fmt::arg("version", code_version().version), fmt::arg("commit", code_version().commit), fmt::arg("stem", stem));
}

// Of functions those that `code` calls, or one of them that stands behind.
std::string called(std::string_view functions, const std::string& code) {
  std::string kept;
  for (size_t begin = functions.rfind("\ndef "); begin != std::string_view::npos; begin = functions.rfind("\ndef ")) {
    const std::string function(trim(functions.substr(begin)));
    const std::string call = function.substr(4, function.find('(') - 3);  // "dot("
    if (code.find(call) != std::string::npos || kept.find(call) != std::string::npos)
      kept = "\n\n" + function + "\n" + kept;
    functions = functions.substr(0, begin);
  }
  return kept;
}

std::vector<std::string> sorted(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  return names;
}

std::string text_of(const RunPlan& plan, const training::Weights& weights, const std::string& stem) {
  const models::ModelRequest request = plan::model_request(plan);
  const std::string objective = plan.options.values["data.objective"];
  XF_CHECK(objective == "task", UserError,
           "what a run of data.objective={} leaves are weights to begin a task with, and no model to write out; take a "
           "run of the task itself",
           objective);
  const models::FamilyDescriptor& family = models::all_families().get(plan.family);
  const Fragment& model =
      fragment_of(parts(), family.name, "model", request.model_options, pytorch_families(), "the family");
  const int64_t length = plan::padded_len(plan);
  Json settings = !family.takes_attention           ? request.model_options
                  : family.name == "ft-transformer" ? table_settings(request, length)
                                                    : transformer_settings(plan, request, length);
  settings.update(Json{{"vocabulary", request.input.vocabulary},
                       {"numbers", request.input.width},
                       {"categories", request.input.categories},
                       {"sequences", request.input.sequences},
                       {"segments", request.input.segments},
                       {"columns", request.input.columns},
                       {"length", length},
                       {"causal", request.causal},
                       {"outputs", request.outputs}});
  std::string opened =
      opening(plan, weights, stem) + "\n# What the plan of the run says.\n" + definition("MODEL", settings);
  std::string body;
  if (family.takes_attention) {
    const attention::Descriptor& base = *request.attention.base;
    const Fragment& fragment = fragment_of(attentions(), base.name, "attention", request.attention_options,
                                           pytorch_attentions(), "the attention");
    Json options{{"name", base.name}};
    options.update(request.attention_options);
    opened += definition("ATTENTION", options);
    if (base.build_core) body += part("core");
    body += fragment.body;
    if (request.attention.decorator != nullptr) body += part(request.attention.decorator->name);
    if (base.build_core) body += part("multi-head");
    if (settings.value("norm", "") == "batch") body += part("batch-norm");
    if (!base.build_block && model.body.find("\nclass Layer(") == std::string::npos) body += part("layer");
  }
  if (models::holds_events(request.input)) body += part("events");
  body += model.body + part("file");
  return opened + called(part("helpers"), body) + body;
}

}  // namespace

std::vector<std::string> pytorch_attentions() {
  std::vector<std::string> names;
  for (const Fragment& fragment : attentions()) names.insert(names.end(), fragment.names.begin(), fragment.names.end());
  return sorted(names);
}

std::vector<std::string> pytorch_families() {
  std::vector<std::string> names;
  for (const models::FamilyDescriptor& family : models::all_families().all())
    if (find(parts(), family.name) != nullptr) names.push_back(family.name);
  return sorted(names);
}

PytorchModule pytorch_module(const RunPlan& plan, const training::Weights& weights, const std::string& stem) {
  PytorchModule result{text_of(plan, weights, stem), {}};
  const auto model = plan::build_model(plan);
  training::load_weights(*model, weights);  // for its errors
  for (const auto& [name, tensor] : models::state(*model)) result.tensors.emplace_back(name, weights.tensors.at(name));
  return result;
}

}  // namespace xformer::inspect
