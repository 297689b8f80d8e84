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

}  // namespace

bool BatchView::has(std::string_view name) const { return find(*this, name) != nullptr; }

const at::Tensor& BatchView::field(std::string_view name) const {
  const at::Tensor* const found = find(*this, name);
  XF_ASSERT(found != nullptr, "a batch without the field {}", name);
  return *found;
}

DeviceBatch::DeviceBatch(at::Device device, int64_t rows, int64_t padded_len, const data::DataShape& shape)
    : padded_len_(padded_len), upload_(device) {
  const auto options = at::TensorOptions(device);
  std::vector<int64_t> places{rows, padded_len};
  if (shape.sequences > 1) places.insert(places.begin() + 1, shape.sequences);
  if (shape.vocabulary > 0) all_.inputs.tokens = at::zeros(places, options.dtype(at::kLong));
  else all_.inputs.values = at::zeros({rows, padded_len, shape.width}, options.dtype(at::kFloat));
  all_.inputs.key_valid = at::zeros(places, options.dtype(at::kBool));
  all_.row_valid = at::zeros({rows}, options.dtype(at::kFloat));
  all_.fields = {{"label", at::zeros({rows}, options.dtype(at::kLong))},
                 {"target", at::zeros({rows}, options.dtype(at::kFloat))}};
  if (shape.target.has("share")) {
    all_.fields.emplace_back("second_label", at::zeros({rows}, options.dtype(at::kLong)));
    all_.fields.emplace_back("share", at::ones({rows}, options.dtype(at::kFloat)));
  }
  filled_ = at::ones({}, options.dtype(at::kDouble));
}

void DeviceBatch::load(const data::HostBatch& batch) {
  const auto fits = [](const auto& values, const at::Tensor& into) {
    return static_cast<int64_t>(values.size()) == (into.defined() ? into.numel() : 0);
  };
  XF_ASSERT(batch.batch == size() && batch.padded_len == padded_len_ && fits(batch.tokens, all_.inputs.tokens) &&
                fits(batch.values, all_.inputs.values) && fits(batch.key_valid, all_.inputs.key_valid) &&
                batch.shares.empty() != all_.has("share"),
            "a batch of [{}, {}] in buffers of [{}, {}]", batch.batch, batch.padded_len, size(), padded_len_);
  const auto view = [](const auto& values, const at::Tensor& like, at::ScalarType type) {
    return at::from_blob(const_cast<void*>(static_cast<const void*>(values.data())), like.sizes(), type);
  };
  std::vector<std::pair<at::Tensor, at::Tensor>> copies{
      {view(batch.key_valid, all_.inputs.key_valid, at::kByte), all_.inputs.key_valid},
      {view(batch.labels, all_.field("label"), at::kLong), all_.field("label")},
      {view(batch.targets, all_.field("target"), at::kFloat), all_.field("target")},
      {view(batch.row_valid, all_.row_valid, at::kByte), all_.row_valid}};
  if (const at::Tensor& tokens = all_.inputs.tokens; tokens.defined())
    copies.push_back({view(batch.tokens, tokens, at::kLong), tokens});
  if (const at::Tensor& values = all_.inputs.values; values.defined())
    copies.push_back({view(batch.values, values, at::kFloat), values});
  if (all_.has("share")) {
    copies.push_back({view(batch.second_labels, all_.field("second_label"), at::kLong), all_.field("second_label")});
    copies.push_back({view(batch.shares, all_.field("share"), at::kFloat), all_.field("share")});
  }
  upload_(copies);
  filled_.fill_(static_cast<double>(std::max<int64_t>(batch.filled, 1)));
}

BatchView DeviceBatch::rows(int64_t first, int64_t rows) const {
  const auto part = [&](const at::Tensor& whole) {
    return whole.defined() ? whole.narrow(0, first, rows) : at::Tensor();
  };
  BatchView view{
      {part(all_.inputs.tokens), part(all_.inputs.key_valid), part(all_.inputs.values)}, part(all_.row_valid), {}};
  for (const auto& [name, tensor] : all_.fields) view.fields.emplace_back(name, part(tensor));
  return view;
}

}  // namespace xformer::tasks
