// Feature attention over maps, shapes and masks, beside its definition.
#pragma once

#include <string>

#include "core/random.h"
#include "fused_support.h"
#include "kernels/feature_attention/feature_attention.h"

namespace xformer::kernels {

// The feature maps that attentions use.
enum class Form { kElu, kEluPlain, kRelu, kReluIdentity, kSoftmax };
constexpr Form kForms[] = {Form::kElu, Form::kEluPlain, Form::kRelu, Form::kReluIdentity, Form::kSoftmax};

struct FeatureCase {
  int64_t b, h, n, m, d, e, f;
  bool masked = false, holes = false, causal = false;
};

inline FeatureAttentionOptions options_of(Form form, int64_t d, int64_t f, at::ScalarType type) {
  FeatureAttentionOptions options;
  options.map = form == Form::kSoftmax                               ? FeatureMap::kSoftmax
                : form == Form::kRelu || form == Form::kReluIdentity ? FeatureMap::kRelu
                                                                     : FeatureMap::kElu;
  if (form == Form::kElu) options.epsilon = 1e-6;
  if (form == Form::kEluPlain) options.divisor = 7;
  if (options.map == FeatureMap::kRelu) options.floor = 1e-3;
  if (form == Form::kSoftmax) options.floor = 1e-4;
  if (form == Form::kRelu || form == Form::kSoftmax) {
    options.omega = random_tensor("omega", {f, d}, type);
    options.scale = std::pow(static_cast<double>(d), -0.25);
  }
  return options;
}

inline at::Tensor random_mask(Stream& numbers, int64_t rows, int64_t length, bool holes) {
  at::Tensor mask = at::zeros({rows, length}, at::kBool);
  for (int64_t row = 0; row < rows; ++row) {
    // Row 0 keeps everything, the last of several loses all.
    auto valid = static_cast<int64_t>(numbers.next_below(static_cast<uint64_t>(length + 1)));
    if (row == 0) valid = length;
    else if (row == rows - 1) valid = 0;
    for (int64_t i = 0; i < valid; ++i) mask[row][i] = !holes || row == 0 || numbers.next_below(4) > 0;
  }
  return mask;
}

inline FeatureAttentionOptions options_of(Form form, const FeatureCase& one, at::ScalarType type) {
  FeatureAttentionOptions options = options_of(form, one.d, one.f, type);
  Stream numbers(static_cast<uint64_t>(one.n * 1000 + one.m));
  options.mask.causal = one.causal;
  if (one.masked) {
    options.mask.key_valid = random_mask(numbers, one.b, one.m, one.holes);
    options.query_valid = one.n == one.m ? options.mask.key_valid : random_mask(numbers, one.b, one.n, one.holes);
  }
  return options;
}

inline Tensors inputs_of(const FeatureCase& one, at::ScalarType type) {
  return {random_tensor("q", {one.b, one.h, one.n, one.d}, type),
          random_tensor("k", {one.b, one.h, one.m, one.d}, type),
          random_tensor("v", {one.b, one.h, one.m, one.e}, type)};
}

inline TensorFunction fused(const FeatureAttentionOptions& options) {
  return [options](const Tensors& x) { return Tensors{feature_attention(x[0], x[1], x[2], options)}; };
}

inline TensorFunction reference(const FeatureAttentionOptions& options) {
  return [options](const Tensors& x) { return Tensors{feature_attention_reference(x[0], x[1], x[2], options)}; };
}

inline double difference_of(Form form, const FeatureCase& one) {
  const FeatureAttentionOptions options = options_of(form, one, at::kDouble);
  return worst_difference(fused(options), reference(options), inputs_of(one, at::kDouble));
}

// In float no result may be further from the definition in double than ten times what the definition itself is in float
// (gradients that cancel, as those of a single key, are all error).
inline bool is_near_in_float(const FeatureAttentionOptions& options, const Tensors& inputs) {
  const auto converted = [&](at::ScalarType type) {
    FeatureAttentionOptions copy = options;
    if (copy.omega.defined()) copy.omega = options.omega.to(at::kFloat).to(type);
    Tensors result;
    for (const at::Tensor& input : inputs) result.push_back(input.to(at::kFloat).to(type));
    return std::make_pair(copy, result);
  };
  const auto [single, single_inputs] = converted(at::kFloat);
  const auto [exact, exact_inputs] = converted(at::kDouble);
  const Tensors got = run_with_gradients(fused(single), single_inputs),
                usual = run_with_gradients(reference(single), single_inputs),
                meant = run_with_gradients(reference(exact), exact_inputs);
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = difference(got[i].to(at::kDouble), meant[i]);
    CAPTURE(i, error);
    if (!(error <= 2e-5 + 10 * difference(usual[i].to(at::kDouble), meant[i]))) return false;
  }
  return true;
}

}  // namespace xformer::kernels
