#include "kernels/fused.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>
#include <mutex>

#include "core/error.h"
#include "kernels/cpu/gemm.h"
#include "kernels/policy.h"

namespace xformer::kernels {

namespace {

// Four roundings of 2^-11 each.
constexpr double kHalfTolerance = 1.0 / 512;

bool products_in_tf32(const at::Tensor& x) { return x.is_cuda() && at::globalContext().allowTF32CuBLAS(); }

// `least`: a difference is compared with the largest element, or with this where that is smaller.
void compare(const char* name, const char* what, size_t place, const at::Tensor& got, const at::Tensor& meant,
             double tolerance, double least = 1e-3) {
  if (meant.numel() == 0) return;
  const double stored = tolerance_of(got.scalar_type());
  const double allowed = got.scalar_type() == at::kDouble ? 1e-9
                         : stored > 0                     ? std::max(tolerance, stored)
                         : products_in_tf32(got)          ? std::max(tolerance, kTf32Tolerance)
                                                          : tolerance;
  const double largest = meant.abs().max().item<double>(), difference = (got - meant).abs().max().item<double>();
  // Not `difference > ...`: a NaN on one side must fail. Both may be NaN where the input is.
  const bool both_lost = !got.isfinite().all().item<bool>() && !meant.isfinite().all().item<bool>();
  XF_CHECK(both_lost || difference <= allowed * std::max(largest, least), InternalError,
           "xformer::{} differs from its reference in {} {} by {} where the largest element is {}", name, what, place,
           difference, largest);
}

bool fused_wanted() { return policy() != Policy::kComposite && policy() != Policy::kReference; }

std::mutex counts_lock;

std::map<std::string, CallCounts>& all_counts() {
  static std::map<std::string, CallCounts> counts;
  return counts;
}

}  // namespace

CallCounts& calls_of(const std::string& name) {
  const std::lock_guard lock(counts_lock);
  return all_counts()[name];
}

std::map<std::string, std::string> backends_run() {
  std::map<std::string, std::string> result;
  const std::lock_guard lock(counts_lock);
  for (const auto& [name, counts] : all_counts()) {
    std::string& ran = result[name];
    const auto add = [&](const std::string& backend) { ran += (ran.empty() ? "" : "+") + backend; };
    for (size_t type = 0; type < counts.fused.size(); ++type)
      if (counts.fused[type] > 0)
        add("fused-" + c10::DeviceTypeName(static_cast<c10::DeviceType>(type), /*lower_case=*/true));
    if (counts.bf16 > 0) add("fused-cpu-bf16");
    if (counts.reference > 0) add("reference");
    if (ran.empty()) result.erase(name);
  }
  if (const std::string products = products_run(); !products.empty()) result["products"] = products;
  return result;
}

void reset_backends() {
  const std::lock_guard lock(counts_lock);
  for (auto& [name, counts] : all_counts()) {
    counts.reference = counts.bf16 = 0;
    for (auto& count : counts.fused) count = 0;
  }
  reset_products();
}

bool fit_kernels(at::TensorList tensors) {
  if (!fused_wanted()) return false;
  const at::Tensor* first = nullptr;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    if (first == nullptr) first = &tensor;
    if (tensor.scalar_type() != at::kFloat && tensor.scalar_type() != at::kDouble) return false;
    if (tensor.scalar_type() != first->scalar_type() || tensor.device() != first->device()) return false;
  }
  return true;
}

bool fit_with_half(const variable_list& tensors, bool (*takes_half)(size_t place)) {
  if (!fused_wanted()) return false;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    if (!tensor.defined()) continue;
    const at::ScalarType type = tensor.scalar_type();
    const bool half = type == at::kBFloat16 || type == at::kHalf;
    if (tensor.device() != tensors[0].device() || !(type == at::kFloat || (half && takes_half(i)))) return false;
  }
  return true;
}

bool stores_bf16(at::TensorList tensors) {
  if (!fused_wanted() || probe_recorder != nullptr) return false;
  bool bf16 = autocast_type(at::kCPU) == at::kBFloat16;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    if (!tensor.is_cpu() || (tensor.scalar_type() != at::kFloat && tensor.scalar_type() != at::kBFloat16)) return false;
    bf16 = bf16 || tensor.scalar_type() == at::kBFloat16;
  }
  return bf16;
}

bool of_one_type(const variable_list& tensors) {
  const at::Tensor* first = nullptr;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    if (first == nullptr) first = &tensor;
    if (tensor.scalar_type() != first->scalar_type()) return false;
  }
  return true;
}

at::Tensor in_float(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const at::ScalarType type = tensor.scalar_type();
  return type == at::kBFloat16 || type == at::kHalf ? tensor.to(at::kFloat) : tensor;
}

variable_list in_float(const variable_list& tensors) {
  variable_list result = tensors;
  for (at::Tensor& one : result) one = in_float(one);
  return result;
}

double tolerance_of(at::ScalarType type) {
  return type == at::kBFloat16 ? kBf16Tolerance : type == at::kHalf ? kHalfTolerance : 0;
}

// Sums that may cancel over a whole sequence, of rounded terms.
double gradient_tolerance(at::ScalarType kept) { return 4 * tolerance_of(kept); }

void check_forward(const char* name, const variable_list& got, const std::function<variable_list()>& reference,
                   double tolerance) {
  if (policy() != Policy::kCheck) return;
  const at::NoGradGuard no_grad;
  const variable_list meant = reference();
  XF_ASSERT(meant.size() == got.size(), "xformer::{} has {} outputs, its reference {}", name, got.size(), meant.size());
  for (size_t i = 0; i < got.size(); ++i)
    if (meant[i].defined()) compare(name, "output", i, got[i].detach(), meant[i], tolerance);
}

void check_backward(const char* name, const variable_list& inputs, const variable_list& gradients,
                    const variable_list& got,
                    const std::function<variable_list(const variable_list& inputs)>& reference, double tolerance) {
  const at::AutoGradMode with_grad(true);
  variable_list leaves = in_float(inputs), wanted;
  double allowed = tolerance;
  double least = 1e-3;  // in 16 bits where gradients cancel, of one token say, what is left is compared with what came
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    leaves[i] = leaves[i].detach();
    if (got[i].defined()) wanted.push_back(leaves[i].requires_grad_(true));
  }
  const variable_list outputs = reference(leaves);
  variable_list sources, heads;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!gradients[i].defined()) continue;
    sources.push_back(outputs[i]);
    if (tolerance_of(gradients[i].scalar_type()) > 0 && gradients[i].numel() > 0) {
      allowed = std::max(allowed, gradient_tolerance(gradients[i].scalar_type()));
      least = std::max(least, gradients[i].abs().max().item<double>());
    }
    heads.push_back(gradients[i].to(outputs[i].scalar_type()));
  }
  const variable_list meant = torch::autograd::grad(sources, wanted, heads, {}, false, /*allow_unused=*/true);
  size_t next = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || !got[i].defined()) continue;
    const at::Tensor one = meant[next].defined() ? meant[next] : at::zeros_like(got[i]);
    compare(name, "gradient", i, got[i], one, allowed, least);
    ++next;
  }
}

}  // namespace xformer::kernels
