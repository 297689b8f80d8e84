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

Upload::Shapes upload_shapes(int64_t rows, int64_t padded_len, const data::DataShape& shape, int64_t numbers) {
  std::vector<int64_t> places{rows, padded_len};
  if (shape.sequences > 1) places.insert(places.begin() + 1, shape.sequences);
  Upload::Shapes shapes{{places, at::kBool}, {{rows}, at::kFloat}, {{numbers}, at::kDouble}};
  for (const data::Field& field : data::fields_of(shape)) {
    std::vector<int64_t> sizes = field.of_tokens() ? places : std::vector<int64_t>{rows};
    if (field.axes == data::Axes::kTokenByK) sizes.push_back(field.k);
    const bool number = field.element == data::Element::kF32, flag = field.element == data::Element::kBool;
    shapes.emplace_back(sizes, number ? at::kFloat : flag ? at::kBool : at::kLong);
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
  for (const data::Field& field : data::fields_of(shape)) all_.fields.emplace_back(field.name, tensors[next++]);
  all_.set_inputs();
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

BatchView DeviceBatch::rows(int64_t first, int64_t rows) const {
  BatchView view;
  view.inputs.key_valid = all_.inputs.key_valid.narrow(0, first, rows);
  view.row_valid = all_.row_valid.narrow(0, first, rows);
  for (const auto& [name, tensor] : all_.fields) view.fields.emplace_back(name, tensor.narrow(0, first, rows));
  view.set_inputs();
  return view;
}

}  // namespace xformer::tasks
