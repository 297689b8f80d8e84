// The observer of operator calls and the FLOPs that each multiplying operator stands for.
#include "tensor/op_counter.h"

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/error.h"

namespace xformer {

// Outside the unnamed namespace because OpCounter::State holds it.
struct OpTotals {
  std::atomic<int64_t> flops{0}, calls{0}, reads{0}, gathered{0};
};

namespace {

using Inputs = c10::ArrayRef<const c10::IValue>;

int64_t numel(const c10::IValue& value) { return value.isTensor() ? value.toTensor().numel() : 0; }

int64_t size(const c10::IValue& value, int64_t dim) { return value.toTensor().size(dim); }

// [.., m, k] x [.., k, n] at inputs `left` and left + 1.
int64_t product_flops(Inputs inputs, size_t left) { return 2 * numel(inputs[left]) * size(inputs[left + 1], -1); }

// [m, k] x [k], or [k] . [k], at inputs `left` and left + 1.
int64_t vector_flops(Inputs inputs, size_t left) { return 2 * numel(inputs[left]); }

// Every element of the output (of the input, when transposed) meets one filter: input, weight, .., stride,
// padding, dilation, transposed, output padding, groups.
int64_t convolution_flops(const at::Tensor& input, const at::Tensor& weight, Inputs geometry) {
  const bool transposed = geometry[3].toBool();
  const int64_t filter = weight.numel() / weight.size(0);
  if (transposed) return 2 * input.numel() * filter;
  const auto stride = geometry[0].toIntVector(), padding = geometry[1].toIntVector(),
             dilation = geometry[2].toIntVector();
  int64_t outputs = input.size(0) * weight.size(0);
  for (int64_t dim = 2; dim < input.dim(); ++dim) {
    // One number may stand for all dimensions.
    const auto at = [&](const std::vector<int64_t>& list) {
      return list[list.size() == 1 ? 0 : static_cast<size_t>(dim - 2)];
    };
    outputs *= (input.size(dim) + 2 * at(padding) - at(dilation) * (weight.size(dim) - 1) - 1) / at(stride) + 1;
  }
  return 2 * outputs * filter;
}

int64_t forward_convolution(Inputs inputs, size_t) {
  return convolution_flops(inputs[0].toTensor(), inputs[1].toTensor(), inputs.slice(3));
}

// Gradient, input, weight, sizes of the bias, geometry, output mask: as much again for each of dx and dw.
int64_t backward_convolution(Inputs inputs, size_t) {
  const auto wanted = inputs[10].toBoolList();
  return convolution_flops(inputs[1].toTensor(), inputs[2].toTensor(), inputs.slice(4)) *
         (int64_t{wanted[0]} + int64_t{wanted[1]});
}

// Pairs that fused attention looks at, over batch and heads: q at input `first`, k after it.
int64_t pairs(Inputs inputs, size_t first, bool causal) {
  const int64_t queries = size(inputs[first], -2), keys = size(inputs[first + 1], -2);
  const int64_t rows = numel(inputs[first]) / size(inputs[first], -1) / queries;
  if (!causal) return rows * queries * keys;
  const int64_t triangle = std::min(queries, keys);  // query i sees keys 0 .. i
  return rows * (triangle * (triangle + 1) / 2 + (queries - triangle) * keys);
}

// q, k, v, ..; the argument is where `is_causal` stands. q k^T and p v.
int64_t forward_attention(Inputs inputs, size_t causal) {
  return 2 * pairs(inputs, 0, inputs[causal].toBool()) * (size(inputs[0], -1) + size(inputs[2], -1));
}

// Gradient, q, k, v, ..: q k^T again, dq and dk; dp and dv.
int64_t backward_attention(Inputs inputs, size_t causal) {
  return 2 * pairs(inputs, 1, inputs[causal].toBool()) * (3 * size(inputs[1], -1) + 2 * size(inputs[3], -1));
}

struct Rule {
  int64_t (*flops)(Inputs inputs, size_t argument);
  size_t argument;
};

// The operators that multiply. While one of them runs, those it calls are not counted again; linear, matmul,
// einsum and the like are absent because they only call these.
const Rule* find_rule(std::string_view name) {
  static const std::unordered_map<std::string_view, Rule> kRules = {
      {"aten::mm", {product_flops, 0}},
      {"aten::bmm", {product_flops, 0}},
      {"aten::addmm", {product_flops, 1}},
      {"aten::addmm_", {product_flops, 1}},
      {"aten::_addmm_activation", {product_flops, 1}},
      {"aten::baddbmm", {product_flops, 1}},
      {"aten::baddbmm_", {product_flops, 1}},
      {"aten::addbmm", {product_flops, 1}},
      {"aten::addbmm_", {product_flops, 1}},
      {"aten::mv", {vector_flops, 0}},
      {"aten::addmv", {vector_flops, 1}},
      {"aten::addmv_", {vector_flops, 1}},
      {"aten::dot", {vector_flops, 0}},
      {"aten::vdot", {vector_flops, 0}},
      {"aten::convolution", {forward_convolution, 0}},
      {"aten::convolution_backward", {backward_convolution, 0}},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", {forward_attention, 4}},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", {backward_attention, 7}},
      {"aten::_scaled_dot_product_flash_attention", {forward_attention, 4}},
      {"aten::_scaled_dot_product_flash_attention_backward", {backward_attention, 11}},
      {"aten::_scaled_dot_product_efficient_attention", {forward_attention, 6}},
      {"aten::_scaled_dot_product_efficient_attention_backward", {backward_attention, 11}},
  };
  const auto found = kRules.find(name);
  return found == kRules.end() ? nullptr : &found->second;
}

// Operators whose result, or its size, must be known before the next launch.
bool reads_back(std::string_view name) {
  static const std::unordered_set<std::string_view> kReaders = {
      "aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select",      "aten::_unique2", "aten::unique_dim",
      "aten::is_nonzero",          "aten::equal",   "aten::unique_consecutive", "aten::bincount", "aten::allclose"};
  return kReaders.contains(name);
}

// LibTorch's callbacks are plain functions, so each counter that lives has a slot with a function of its own.
// Callbacks follow the work to the autograd engine's threads (CUDA), where a thread-local pointer to the
// counter would be lost.
constexpr size_t kSlots = 8;

std::array<std::atomic<OpTotals*>, kSlots> slots{};

// Per slot: an operator with a rule is running on this thread.
thread_local std::array<bool, kSlots> inside_counted{};

// Lives from start to end of an operator with a rule.
struct CountedCall : at::ObserverContext {
  explicit CountedCall(size_t slot) : slot_(slot) { inside_counted[slot_] = true; }
  ~CountedCall() override { inside_counted[slot_] = false; }
  size_t slot_;
};

template <size_t kSlot>
std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& call) {
  const std::string_view name = call.name();
  if (!name.starts_with("aten::") && !name.starts_with("xformer::")) return nullptr;
  OpTotals* const totals = slots[kSlot].load();
  if (totals == nullptr) return nullptr;
  ++totals->calls;
  if (reads_back(name)) ++totals->reads;
  const Rule* const rule = find_rule(name);
  if (rule == nullptr || inside_counted[kSlot]) return nullptr;
  totals->flops += rule->flops(call.inputs(), rule->argument);
  return std::make_unique<CountedCall>(kSlot);
}

template <size_t... kSlot>
constexpr auto starts_of(std::index_sequence<kSlot...>) {
  return std::array<at::RecordFunctionCallback::StartCallback, kSlots>{on_start<kSlot>...};
}

constexpr auto kStarts = starts_of(std::make_index_sequence<kSlots>());

}  // namespace

void add_executed_flops(int64_t flops) {
  for (const auto& slot : slots)
    if (OpTotals* const totals = slot.load(std::memory_order_relaxed)) totals->flops += flops;
}

void add_gathered_bytes(int64_t bytes) {
  for (const auto& slot : slots)
    if (OpTotals* const totals = slot.load(std::memory_order_relaxed)) totals->gathered += bytes;
}

struct OpCounter::State {
  OpTotals totals;
  size_t slot = 0;
  at::CallbackHandle handle = 0;
};

OpCounter::OpCounter() : state_(std::make_unique<State>()) {
  size_t slot = 0;
  for (OpTotals* none = nullptr; slot < kSlots; ++slot, none = nullptr) {
    if (slots[slot].compare_exchange_strong(none, &state_->totals)) break;
  }
  XF_ASSERT(slot < kSlots, "more than {} operator counters at once", kSlots);
  state_->slot = slot;
  at::RecordFunctionCallback callback(kStarts[slot]);
  callback.needsInputs(true).scopes({at::RecordScope::FUNCTION});
  state_->handle = at::addThreadLocalCallback(callback);
}

OpCounter::~OpCounter() {
  at::removeCallback(state_->handle);
  slots[state_->slot].store(nullptr);
}

OpCounts OpCounter::counts() const {
  const OpTotals& totals = state_->totals;
  return {totals.flops.load(), totals.calls.load(), totals.reads.load(), totals.gathered.load()};
}

}  // namespace xformer
