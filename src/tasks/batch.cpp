#include "tasks/batch.h"

#include <ATen/Functions.h>

#include "core/error.h"

namespace xformer::tasks {

namespace {

const at::Tensor* find(const BatchView& view, std::string_view name) {
  for (const auto& [own, tensor] : view.fields)
    if (own == name) return &tensor;
  return nullptr;
}

constexpr size_t kBeforeFields = 3;  // flags of places, flags of rows, numbers

at::ScalarType type_of(const data::Field& field) {
  if (!field.whole()) return field.element == data::Element::kBool ? at::kBool : at::kFloat;
  return at::kLong;
}

// With a sign: a place without a label has -1.
at::ScalarType travels_as(const data::Field& field) {
  if (!field.whole() || !field.of_tokens() || field.range == 0) return type_of(field);
  if (field.range <= int64_t{1} << 7) return at::kChar;
  return field.range <= int64_t{1} << 15 ? at::kShort : at::kInt;
}

Upload::Shapes upload_shapes(int64_t rows, int64_t padded_len, const data::DataShape& shape, int64_t numbers) {
  std::vector<int64_t> places{rows, padded_len};
  if (shape.sequences > 1) places.insert(places.begin() + 1, shape.sequences);
  Upload::Shapes shapes{{places, at::kBool}, {{rows}, at::kFloat}, {{numbers}, at::kDouble}};
  for (const data::Field& field : data::fields_of(shape)) {
    std::vector<int64_t> sizes = field.of_tokens() ? places : std::vector<int64_t>{rows};
    if (field.axes == data::Axes::kTokenByK) sizes.push_back(field.k);
    shapes.emplace_back(sizes, travels_as(field));
  }
  return shapes;
}

}  // namespace

bool BatchView::has(std::string_view name) const { return find(*this, name) != nullptr; }

const at::Tensor& BatchView::field(std::string_view name) const {
  const at::Tensor* const found = find(*this, name);
  XF_ASSERT(found != nullptr, "a batch without the field {}", name);
  return *found;
}

BatchView BatchView::rows(int64_t first, int64_t count) const {
  BatchView view;
  view.inputs.key_valid = inputs.key_valid.narrow(0, first, count);
  view.row_valid = row_valid.narrow(0, first, count);
  for (const auto& [name, tensor] : fields) view.fields.emplace_back(name, tensor.narrow(0, first, count));
  view.set_inputs();
  return view;
}

void BatchView::set_inputs() {
  if (has("tokens")) inputs.tokens = field("tokens");
  if (has("values")) inputs.values = field("values");
  if (has("segments")) inputs.segments = field("segments");
  if (has("label") && field("label").dim() == 2) inputs.labels = field("label");  // of places
}

DeviceBatch::DeviceBatch(at::Device device, int64_t rows, int64_t padded_len, const data::DataShape& shape,
                         int64_t numbers)
    : padded_len_(padded_len), upload_(device, upload_shapes(rows, padded_len, shape, numbers)) {
  const std::vector<at::Tensor>& tensors = upload_.tensors();
  all_.inputs.key_valid = tensors[0];
  all_.row_valid = tensors[1];
  numbers_ = tensors[2];
  size_t next = kBeforeFields;
  for (const data::Field& field : data::fields_of(shape)) {
    const at::Tensor& arrived = tensors[next++];
    const bool narrow = travels_as(field) != type_of(field);
    all_.fields.emplace_back(field.name, narrow ? at::zeros_like(arrived, type_of(field)) : arrived);
    if (narrow) narrow_.emplace_back(arrived, all_.fields.back().second);
  }
  all_.set_inputs();
}

const BatchView& DeviceBatch::widened() const {
  for (const auto& [arrived, field] : narrow_) field.copy_(arrived);
  return all_;
}

void DeviceBatch::load(const data::HostBatch& batch, const std::vector<double>& numbers) {
  const auto view = [](const auto& values, const at::Tensor& like, at::ScalarType type) {
    XF_ASSERT(static_cast<int64_t>(values.size()) == like.numel(), "{} values for a tensor of {}", values.size(),
              like.numel());
    return at::from_blob(const_cast<void*>(static_cast<const void*>(values.data())), like.sizes(), type);
  };
  XF_ASSERT(batch.batch == size() && batch.padded_len == padded_len_ && batch.columns.size() == all_.fields.size(),
            "a batch of [{}, {}] in buffers of [{}, {}]", batch.batch, batch.padded_len, size(), padded_len_);
  std::vector<at::Tensor> from{view(batch.key_valid, all_.inputs.key_valid, at::kByte),
                               view(batch.row_valid, all_.row_valid, at::kByte), view(numbers, numbers_, at::kDouble)};
  for (size_t i = 0; i < all_.fields.size(); ++i) {
    const data::HostColumn& column = batch.columns[i];
    const at::Tensor& into = all_.fields[i].second;
    const bool number = column.field.element == data::Element::kF32;
    from.push_back(number ? view(column.numbers, into, at::kFloat) : view(column.whole, into, at::kLong));
  }
  upload_(from);
}

}  // namespace xformer::tasks
