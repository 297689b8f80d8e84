// What device programs are told of tensors.
#pragma once

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "kernels/device/tile.h"
#include "kernels/dropout/dropout.h"
#include "tensor/autocast.h"

namespace xformer::kernels {

[[nodiscard]] inline ElementType element_type(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kFloat:
      return ElementType::kFloat;
    case at::kDouble:
      return ElementType::kDouble;
    case at::kHalf:
      return ElementType::kHalf;
    case at::kBFloat16:
      return ElementType::kBFloat16;
    default:
      TORCH_CHECK(false, "a device's kernels take floating types, not ", x.scalar_type());
  }
}

// How exact products are where those of cuBLAS are as exact.
[[nodiscard]] inline ProductKind product_kind() {
  return at::globalContext().allowTF32CuBLAS() ? ProductKind::kTf32 : ProductKind::kFloat;
}

// Whether sixteen bytes at a time can be read from where each of them begins, undefined ones aside. What LibTorch
// allocates begins there; views may not.
[[nodiscard]] inline bool reads_wide(at::TensorList tensors) {
  for (const at::Tensor& one : tensors)
    if (one.defined() && reinterpret_cast<uintptr_t>(one.const_data_ptr()) % 16 != 0) return false;
  return true;
}

// Whether ints number all axes of these, undefined ones aside.
[[nodiscard]] inline bool numbered_by_ints(at::TensorList tensors) {
  for (const at::Tensor& one : tensors)
    for (int64_t axis = 0; one.defined() && axis < one.dim(); ++axis)
      if (one.size(axis) > kMostNumbered) return false;
  return true;
}

// Where floats lie, if anywhere: nowhere for an undefined tensor and for one of shape and type alone (LibTorch's meta).
[[nodiscard]] inline const float* read_floats(const at::Tensor& x) {
  return x.defined() ? static_cast<const float*>(x.const_data_ptr()) : nullptr;
}
[[nodiscard]] inline float* written_floats(const at::Tensor& x) { return static_cast<float*>(x.mutable_data_ptr()); }

// Flags of so many rows, those that somebody reads, in one piece; undefined, all are. They must outlive the launch.
[[nodiscard]] inline at::Tensor dense_flags(const at::Tensor& needed, int64_t rows) {
  if (!needed.defined()) return needed;
  TORCH_CHECK(needed.numel() == rows && needed.scalar_type() == at::kBool, rows, " rows, of which ", needed.numel(),
              " are said to be needed or not");
  return needed.contiguous();
}
[[nodiscard]] inline const bool* read_flags(const at::Tensor& flags) {
  return flags.defined() ? static_cast<const bool*>(flags.const_data_ptr()) : nullptr;
}

// Where a matrix lies that may be in sixteen bits.
[[nodiscard]] inline Stored read_stored(const at::Tensor& x) {
  return {x.const_data_ptr(), x.scalar_type() != at::kFloat};
}
[[nodiscard]] inline StoredTo written_stored(const at::Tensor& x) {
  return {x.mutable_data_ptr(), x.scalar_type() != at::kFloat};
}
// The type of those of a launch that are stored in sixteen bits; float where all, undefined ones aside, are floats.
[[nodiscard]] inline ElementType half_among(at::TensorList tensors) {
  ElementType half = ElementType::kFloat;
  for (const at::Tensor& one : tensors) {
    if (!one.defined() || one.scalar_type() == at::kFloat) continue;
    const ElementType type = element_type(one);
    TORCH_CHECK(type != ElementType::kDouble && (half == ElementType::kFloat || half == type),
                "products on a device take floats, and one type of 16 bits");
    half = type;
  }
  return half;
}
// What products of x are stored as: autocast's type, or x's own.
[[nodiscard]] inline at::ScalarType product_type(const at::Tensor& x) {
  return autocast_type(x.device().type()).value_or(x.scalar_type());
}

// Where a float64 scalar lies that a step may change.
[[nodiscard]] inline double* device_number(const at::Tensor& scalar, const at::Tensor& beside) {
  TORCH_CHECK(scalar.scalar_type() == at::kDouble && scalar.numel() == 1 && scalar.device() == beside.device(),
              "a step's scalars are float64 on the device");
  return scalar.mutable_data_ptr<double>();
}

// Dropout at this place of a contiguous tensor like `dropped`.
[[nodiscard]] inline DeviceDrop device_drop(const DropoutPlace& place, const at::Tensor& dropped) {
  const uint32_t threshold = dropout_threshold(place.p);
  if (threshold == 0 || dropped.numel() == 0) return {};
  TORCH_CHECK(place.state.device() == dropped.device() && place.state.scalar_type() == at::kLong &&
                  place.state.numel() == 3 && place.state.is_contiguous(),
              "dropout's state is int64 [3] on the tensor's device");
  return {threshold, static_cast<const int64_t*>(place.state.const_data_ptr()), place.site,
          dropped.numel() / dropped.size(0)};
}

// x dropped at this place, by the dispatcher: a plugin links none of the program's functions.
[[nodiscard]] inline at::Tensor dropped_on_device(const DropoutPlace& place, const at::Tensor& x) {
  if (dropout_threshold(place.p) == 0) return x;
  static const auto kDropout = c10::Dispatcher::singleton()
                                   .findSchemaOrThrow("xformer::dropout", "")
                                   .typed<at::Tensor(const at::Tensor&, double, const at::Tensor&, int64_t)>();
  return kDropout.call(x, place.p, place.state, place.site);
}

}  // namespace xformer::kernels
