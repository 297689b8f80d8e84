#include "models/event_input.h"

#include <ATen/Functions.h>

#include <cmath>

namespace xformer::models {

int64_t code_width(int64_t size) {
  return std::min<int64_t>(32, static_cast<int64_t>(std::ceil(1.6 * std::pow(static_cast<double>(size), 0.56))));
}

EventInput::EventInput(const InputSpec& input, int64_t dim, const std::string& scheme, const InitStream& init)
    : numbers_(input.width - static_cast<int64_t>(input.categories.size())) {
  int64_t width = numbers_;
  for (size_t i = 0; i < input.categories.size(); ++i) {
    const int64_t size = input.categories[i];
    const std::string name = fmt::format("codes_{}", i);
    codes_.push_back(register_parameter(name, init.normal(name, {size, code_width(size)}, 1)));
    width += code_width(size);
  }
  map_ = register_module("map", std::make_shared<attention::Linear>(width, dim, true, scheme, init.child("map")));
}

at::Tensor EventInput::forward(const at::Tensor& values) const {
  const at::Tensor codes = values.narrow(-1, numbers_, static_cast<int64_t>(codes_.size())).to(at::kLong);
  std::vector<at::Tensor> parts;
  for (size_t i = 0; i < codes_.size(); ++i)
    parts.push_back(at::embedding(codes_[i], codes.select(-1, static_cast<int64_t>(i))));
  parts.push_back(values.narrow(-1, 0, numbers_).to(parts[0].scalar_type()));
  return map_->forward(at::cat(parts, -1));
}

}  // namespace xformer::models
