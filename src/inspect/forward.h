// One forward pass on given tensors, for whoever checks us against code of their own: what goes in is checked by name,
// shape and type; what comes out has names. docs/forward.md is the user's side.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tensor/tensor_file.h"

namespace xformer::inspect {

using TensorMap = std::map<std::string, at::Tensor>;

// A tensor that an input must or may hold.
struct ExpectedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<at::ScalarType> types;  // any of these
  std::string meaning;
  bool needed = true, parameter = false;

  [[nodiscard]] std::string type_text() const;   // "F32 or F64"
  [[nodiscard]] std::string shape_text() const;  // "[2,2,64,32]"
};

inline const std::vector<at::ScalarType> kRealTypes{at::kFloat, at::kDouble};
inline const std::vector<at::ScalarType> kWholeTypes{at::kLong, at::kInt,    at::kShort,  at::kChar,
                                                     at::kByte, at::kUInt16, at::kUInt32, at::kUInt64};
// Zeros for what is needed of them, parameters apart: enough to see which tensors there are on the way.
[[nodiscard]] TensorMap blank_inputs(const std::vector<ExpectedTensor>& expected);
inline constexpr const char* kGradOutput = "grad_output";

// What is looked at, whatever is run.
struct ForwardView {
  std::vector<std::string> captures;  // patterns of the names that modules report (tensor/probe.h)
  bool gradients = false;
};

struct ForwardResult {
  NamedTensors tensors;                         // as they are written, each name once
  std::map<std::string, std::string> metadata;  // of the file
  std::vector<std::string> notes;               // what the reader may not expect
  std::vector<std::string> captured;            // names of those tensors that are here because --capture fits them
};

// UserError for a tensor that nobody expects (with the nearest name), one that is needed and missing, a wrong shape or
// type. `hint` is added where parameters are missing.
void check_inputs(const TensorMap& inputs, const std::vector<ExpectedTensor>& expected, const ForwardView& view,
                  const std::string& hint);

// A note for each tensor of numbers that holds NaN or infinity, with how many and the first place: "q: NaN in 3 of 640
// numbers, first at [0,1,4,2]; ...".
[[nodiscard]] std::vector<std::string> notes_on_numbers(const TensorMap& inputs);

struct ForwardPass {
  std::string result_name;                                   // "output", "logits"
  NamedTensors leaves;                                       // inputs and parameters that gradients are wanted of
  std::function<at::Tensor()> run;                           // the result
  at::Tensor grad_output;                                    // what the gradients start with; undefined: ones
  std::function<at::Tensor(const at::Tensor& result)> loss;  // written, and differentiated instead; may be empty
};
// The result, captured tensors, the loss and the gradients "grad.<name>", in this order. UserError for a pattern that
// fits nothing, with the names there are.
[[nodiscard]] ForwardResult run_forward(const ForwardPass& pass, const ForwardView& view);

// Zeros where nothing that was differentiated depends on the tensor.
[[nodiscard]] at::Tensor gradient_of(const at::Tensor& tensor);

}  // namespace xformer::inspect
