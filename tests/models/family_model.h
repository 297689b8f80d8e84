// What tests of families share: a model from words, its tensors by name.
#pragma once

#include <ATen/Functions.h>

#include <catch2/catch.hpp>
#include <map>

#include "models/model.h"

namespace xformer::models::family_model {

inline ModelRequest request_for(const std::string& family, const std::string& attention_name, const InputSpec& input,
                                int64_t outputs, const Json& options) {
  ModelRequest request;
  request.input = input;
  request.outputs = outputs;
  request.attention = attention::resolve(attention_name);
  for (const OptionInfo& option : request.attention.options()) request.attention_options[option.name] = option.fallback;
  for (const OptionInfo& option : all_families().get(family).options)
    request.model_options[option.name] = option.fallback;
  request.model_options.update(options);
  request.seed = 4;
  return request;
}

inline std::shared_ptr<Model> build(const std::string& family, const ModelRequest& request) {
  const FamilyDescriptor& found = all_families().get(family);
  found.check(request);
  const auto model = found.build(request);
  model->eval();
  return model;
}

class Tensors {
 public:
  explicit Tensors(const Model& model) {
    for (const auto& [name, tensor] : state(model)) tensors_[name] = tensor.detach();
  }
  [[nodiscard]] at::Tensor operator()(const std::string& name) const {
    INFO(name);
    REQUIRE(tensors_.contains(name));
    return tensors_.at(name);
  }
  // x W^T + b of the map of this name.
  [[nodiscard]] at::Tensor map(const std::string& name, const at::Tensor& x) const {
    return at::linear(x, (*this)(name + ".weight"), (*this)(name + ".bias"));
  }
  [[nodiscard]] at::Tensor norm(const std::string& name, const at::Tensor& x) const {
    return at::layer_norm(x, {x.size(-1)}, (*this)(name + ".weight"), (*this)(name + ".bias"), 1e-5);
  }

 private:
  std::map<std::string, at::Tensor> tensors_;
};

inline double apart(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

}  // namespace xformer::models::family_model
