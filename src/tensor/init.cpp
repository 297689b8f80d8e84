#include "tensor/init.h"

#include <ATen/Functions.h>

#include <cmath>
#include <numbers>

namespace xformer {

namespace {

template <class Draw>
at::Tensor filled(at::IntArrayRef shape, const Draw& draw) {
  at::Tensor result = at::empty(shape, at::kFloat);
  float* values = result.data_ptr<float>();
  for (int64_t i = 0; i < result.numel(); ++i) values[i] = static_cast<float>(draw());
  return result;
}

}  // namespace

double next_normal(Stream& stream) {
  const double radius = std::sqrt(-2 * std::log(1 - stream.next_unit()));
  return radius * std::cos(2 * std::numbers::pi * stream.next_unit());
}

at::Tensor InitStream::uniform(const std::string& name, at::IntArrayRef shape, double low, double high) const {
  Stream numbers = stream(name);
  return filled(shape, [&] { return low + (high - low) * numbers.next_unit(); });
}

at::Tensor InitStream::normal(const std::string& name, at::IntArrayRef shape, double deviation) const {
  Stream numbers = stream(name);
  return filled(shape, [&] { return deviation * next_normal(numbers); });
}

at::Tensor InitStream::truncated_normal(const std::string& name, at::IntArrayRef shape, double deviation) const {
  // 0.8796... is the deviation of a standard normal cut to [-2, 2].
  const double scale = deviation / 0.87962566103423978;
  Stream numbers = stream(name);
  return filled(shape, [&] {
    double value = next_normal(numbers);
    while (std::abs(value) > 2) value = next_normal(numbers);
    return scale * value;
  });
}

}  // namespace xformer
