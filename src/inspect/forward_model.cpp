#include "inspect/forward_model.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include "core/error.h"
#include "core/text.h"
#include "plan/options.h"
#include "tasks/task.h"

namespace xformer::inspect {

namespace {

// By the names that tensors have: an input field's own; of what a loss needs, the field "label" is "labels".
std::vector<std::pair<std::string, data::Field>> answer_tensors(const data::DataShape& shape) {
  std::vector<std::pair<std::string, data::Field>> result;
  for (const data::Field& field : shape.target.fields)
    if (field.stored) result.emplace_back(field.name + "s", field);
  return result;
}

// The tensors that hold the examples, and the others that may come with them.
std::vector<ExpectedTensor> expected_tensors(const data::DataShape& shape, const tasks::OutputSpec& output,
                                             int64_t batch, int64_t length) {
  std::vector<int64_t> places{batch, length};
  if (shape.sequences > 1) places.insert(places.begin() + 1, shape.sequences);
  std::vector<ExpectedTensor> result;
  for (const data::Field& field : data::input_fields(shape)) {
    std::vector<int64_t> sizes = field.of_tokens() ? places : std::vector<int64_t>{batch};
    std::string axes = !field.of_tokens() ? "b" : shape.sequences > 1 ? "b,2,n" : "b,n";
    if (field.axes == data::Axes::kTokenByK) {
      sizes.push_back(field.k);
      axes += ",width";
    }
    const bool flags = field.element == data::Element::kBool;
    result.push_back({field.name, sizes,
                      field.whole() ? kWholeTypes
                      : flags       ? std::vector<at::ScalarType>{at::kBool}
                                    : kRealTypes,
                      fmt::format("{} [{}]",
                                  field.whole() ? "ids"
                                  : flags       ? "flags"
                                                : "numbers",
                                  axes)});
  }
  result.push_back({"mask", places, {at::kBool}, "true where a place is valid; absent: everywhere", false});
  std::vector<int64_t> outputs{batch, output.columns};
  if (output.per_position) outputs.insert(outputs.begin() + 1, length);
  result.push_back({kGradOutput, outputs, kRealTypes,
                    fmt::format("what --grad starts with [{},outputs]", output.per_position ? "b,n" : "b"), false});
  for (const auto& [name, field] : answer_tensors(shape)) {
    std::vector<int64_t> sizes = field.of_tokens() ? places : std::vector<int64_t>{batch};
    if (field.axes == data::Axes::kTokenByK) sizes.push_back(field.k);
    result.push_back({name, sizes, field.whole() ? kWholeTypes : kRealTypes,
                      !field.of_tokens() ? field.whole() ? "classes [b]" : "numbers [b]"
                      : field.whole()    ? "classes [b,n], -1 for none"
                                         : "numbers [b,n,width]",
                      false});
  }
  return result;
}

// Ids and labels index tables: one that is too large must not reach them.
void check_range(const std::string& name, const at::Tensor& values, int64_t count, int64_t lowest = 0) {
  const int64_t least = values.min().item<int64_t>(), most = values.max().item<int64_t>();
  XF_CHECK(least >= lowest && most < count, UserError, "--input: {}: expected numbers from {} to {}, found {}", name,
           lowest, count - 1, least < lowest ? least : most);
}

at::ScalarType widest_type(const std::map<std::string, at::Tensor>& tensors) {
  at::ScalarType type = at::kFloat;
  for (const auto& [name, tensor] : tensors)
    if (tensor.is_floating_point()) type = at::promote_types(type, tensor.scalar_type());
  return type;
}

struct ModelBatch {
  tasks::BatchView rows;
  bool wants_loss = false;  // what it needs of every example is there
  at::Tensor grad_output;   // undefined when not given
};

// Checks everything, on the host, before anything goes to the device. Numbers of the input get the model's type.
ModelBatch make_batch(const ModelForward& request, const tasks::Task& task, const TensorMap& inputs,
                      at::ScalarType type, ForwardResult& result) {
  const data::DataShape shape = plan::planned_shape(request.plan);
  const data::Fields fields = data::input_fields(shape);
  const std::string& name = fields.front().name;  // which has places
  const auto found = inputs.find(name);
  const int64_t places = shape.sequences > 1 ? 3 : 2;  // axes up to the places
  const int64_t dims = places + (fields.front().axes == data::Axes::kTokenByK ? 1 : 0);
  const bool rows = found != inputs.end() && found->second.dim() == dims && found->second.numel() > 0;
  const int64_t batch = rows ? found->second.size(0) : 1, longest = plan::padded_len(request.plan);
  const int64_t length = rows ? found->second.size(places - 1) : longest;
  check_inputs(inputs, expected_tensors(shape, task.output(), batch, length), request.view, "");
  XF_CHECK(length <= longest, UserError, "--input: {}: the model takes at most {} places, found {}", name, longest,
           length);
  ModelBatch made;
  made.rows.row_valid = at::ones({batch}, at::TensorOptions(at::kFloat).device(request.device));
  for (const auto& [answer, field] : answer_tensors(shape)) {
    const auto given = inputs.find(answer);
    if (given == inputs.end()) continue;
    XF_CHECK(!inputs.contains(kGradOutput), UserError,
             "--input: expected {} or {}, not both: gradients are of the loss, or of a weighted sum of logits", answer,
             kGradOutput);
    if (field.range > 0) check_range(answer, given->second.to(at::kLong), field.range, field.of_tokens() ? -1 : 0);
    made.rows.fields.emplace_back(field.name, given->second.to(request.device, field.whole() ? at::kLong : type));
  }
  made.wants_loss = !made.rows.fields.empty();
  for (const data::Field& field : fields) {
    const at::Tensor& given = inputs.at(field.name);
    if (field.whole() && field.range > 0) check_range(field.name, given.to(at::kLong), field.range);
    const at::ScalarType own = field.whole() ? at::kLong : given.scalar_type() == at::kBool ? at::kBool : type;
    made.rows.fields.emplace_back(field.name, given.to(request.device, own));
  }
  made.rows.set_inputs();
  models::ModelInput& input = made.rows.inputs;
  input.labels = at::Tensor();  // scores are what is asked for, whatever the model would give in training
  if (const auto mask = inputs.find("mask"); mask != inputs.end()) {
    input.key_valid = mask->second.to(request.device);
  } else {
    input.key_valid = at::ones(found->second.sizes().slice(0, static_cast<size_t>(places)),
                               at::TensorOptions(at::kBool).device(request.device));
    if (shape.vocabulary > 0 && shape.zero_is_padding && (found->second.to(at::kLong) == 0).any().item<bool>())
      result.notes.emplace_back("tokens hold 0, the id of padding, and there is no mask: all of them count as valid");
  }
  if (const auto grad = inputs.find(kGradOutput); grad != inputs.end())
    made.grad_output = grad->second.to(request.device);
  if (length < longest)
    result.notes.push_back(
        fmt::format("training and eval pad every row to {} tokens, these have {}; where padded positions count "
                    "(model.pooling=mean_padded), logits differ from theirs",
                    format_count(static_cast<uint64_t>(longest)), format_count(static_cast<uint64_t>(length))));
  if (plan::training_schema().read(request.plan.group("training")).precision != "fp32")
    result.notes.emplace_back("training.precision is not fp32: training and eval round more than is done here");
  return made;
}

}  // namespace

std::vector<ExpectedTensor> expected_tensors(const ModelForward& request) {
  const data::DataShape shape = plan::planned_shape(request.plan);
  return expected_tensors(shape, tasks::make_task(shape)->output(), 1, plan::padded_len(request.plan));
}

ForwardResult forward_model(const ModelForward& request, const TensorMap& inputs) {
  ForwardResult checked;
  const auto task = tasks::make_task(plan::planned_shape(request.plan));
  const at::ScalarType type = request.weights ? widest_type(request.weights->tensors) : at::kFloat;
  const ModelBatch batch = make_batch(request, *task, inputs, type, checked);
  const auto model = plan::build_model(request.plan);
  model->eval();
  const NamedTensors state = models::state(*model);
  if (request.weights) {
    for (const auto& [name, tensor] : state)
      if (tensor.is_floating_point()) tensor.set_data(tensor.detach().to(type));
    training::load_weights(*model, *request.weights);
  }
  model->to(request.device);

  ForwardPass pass;
  pass.result_name = "logits";
  pass.leaves = models::trainable(*model);
  pass.run = [&] { return model->forward(batch.rows.inputs); };
  pass.grad_output = batch.grad_output;
  if (batch.wants_loss)
    pass.loss = [&](const at::Tensor& logits) {
      return task->loss(logits, batch.rows) / task->weight(batch.rows).to(logits.scalar_type());
    };
  ForwardResult result = run_forward(pass, request.view);
  result.notes = checked.notes;
  for (std::string& note : notes_on_numbers(inputs)) result.notes.push_back(std::move(note));
  result.metadata = {{"model", request.plan.model}, {"plan", request.plan.to_json().dump()}};
  if (request.weights) result.metadata["weights_sha256"] = request.weights->sha256;
  else
    for (const auto& [name, tensor] : models::state(*model)) result.tensors.emplace_back(name, tensor.detach());
  return result;
}

}  // namespace xformer::inspect
