// The observer of operator calls, as a stack: what an operator took is told to the one that called it.
#include "tensor/op_profiler.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/error.h"
#include "tensor/device_clock.h"
#include "tensor/op_counter.h"

namespace xformer {

// These are outside the unnamed namespace because OpProfiler::State holds them.

// An argument or result: what it is and how many different bytes it shows.
struct OpOperand {
  const void *tensor = nullptr, *storage = nullptr;
  int64_t bytes = 0;
};

struct OpTraffic {
  int64_t read = 0, written = 0, allocated = 0;
};

// A call that has begun and not yet ended.
struct OpCall : at::ObserverContext {
  OpCall* outer = nullptr;
  std::vector<OpOperand> inputs;
  std::optional<Product> product;
  bool opaque = false;
  double seconds_inside = 0;
  OpTraffic inside;
  int64_t flops_before = 0, flops_inside = 0, gathered_before = 0, gathered_inside = 0;
  std::chrono::steady_clock::time_point start;
  int64_t span = -1;      // on a device: in OpProfiler::State, its own or that of the call around it; -1: none
  bool has_span = false;  // its own
};

// What a device did for a call.
struct OpSpan {
  int64_t outer = -1;  // before it in the list
  size_t from = 0, to = 0;
  OpFigures *sum = nullptr, *product = nullptr;
};

namespace {

using Clock = std::chrono::steady_clock;
using Inputs = c10::ArrayRef<const c10::IValue>;

OpOperand operand(const at::Tensor& tensor) {
  int64_t elements = 1;
  // An expanded dimension shows the same bytes again.
  for (int64_t dim = 0; dim < tensor.dim(); ++dim)
    if (tensor.stride(dim) != 0 || tensor.size(dim) == 0) elements *= tensor.size(dim);
  return {tensor.unsafeGetTensorImpl(), tensor.storage().unsafeGetStorageImpl(),
          elements * static_cast<int64_t>(tensor.element_size())};
}

std::vector<OpOperand> operands(Inputs values) {
  std::vector<OpOperand> result;
  const auto add = [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.has_storage()) result.push_back(operand(tensor));
  };
  for (const c10::IValue& value : values) {
    if (value.isTensor()) add(value.toTensor());
    else if (value.isList())
      for (const c10::IValue& element : value.toListRef())
        if (element.isTensor()) add(element.toTensor());
  }
  return result;
}

// Where the left factor stands among the arguments of an operator that is one product.
std::optional<size_t> left_factor(std::string_view name) {
  static const std::unordered_map<std::string_view, size_t> kProducts = {
      {"aten::mm", 0},     {"aten::bmm", 0},     {"aten::addmm", 1},    {"aten::_addmm_activation", 1},
      {"aten::addmm_", 1}, {"aten::baddbmm", 1}, {"aten::baddbmm_", 1},
  };
  const auto found = kProducts.find(name);
  return found == kProducts.end() ? std::nullopt : std::optional(found->second);
}

std::optional<Product> product(std::string_view name, Inputs inputs) {
  const std::optional<size_t> first = left_factor(name);
  if (!first) return std::nullopt;
  const at::Tensor &left = inputs[*first].toTensor(), &right = inputs[*first + 1].toTensor();
  const auto transposed = [](const at::Tensor& matrix) { return matrix.stride(-1) != 1 && matrix.stride(-2) == 1; };
  return Product{left.dim() == 3 ? left.size(0) : 1,
                 left.size(-2),
                 left.size(-1),
                 right.size(-1),
                 transposed(left),
                 transposed(right),
                 left.scalar_type()};
}

bool is_one_of_several(std::string_view name) {
  return name == "aten::convolution" || name == "aten::convolution_backward";
}

bool allocates(std::string_view name) {
  static const std::unordered_set<std::string_view> kNames = {"aten::empty", "aten::empty_like", "aten::empty_strided",
                                                              "aten::new_empty", "aten::new_empty_strided"};
  return kNames.contains(name);
}

// In place, but only what the tensor says about its bytes changes.
bool changes_the_view(std::string_view name) {
  static const std::unordered_set<std::string_view> kNames = {"aten::transpose_", "aten::t_",         "aten::squeeze_",
                                                              "aten::unsqueeze_", "aten::resize_",    "aten::set_",
                                                              "aten::detach_",    "aten::as_strided_"};
  return kNames.contains(name);
}

// In place, without a look at what was there.
bool overwrites(std::string_view name) {
  static const std::unordered_set<std::string_view> kNames = {
      "aten::copy_",    "aten::fill_",   "aten::zero_",      "aten::bernoulli_",  "aten::normal_",
      "aten::uniform_", "aten::random_", "aten::geometric_", "aten::exponential_"};
  return kNames.contains(name);
}

// Operators that read rows of their first tensor where the others say: as many bytes as come out.
bool gathers(std::string_view name) {
  static const std::unordered_set<std::string_view> kNames = {"aten::index_select", "aten::gather", "aten::index",
                                                              "aten::embedding"};
  return kNames.contains(name);
}

// Arguments that only lend their shape.
bool reads_nothing(std::string_view name) { return name.ends_with("_like") || name.starts_with("aten::new_"); }

// The traffic of a call by its arguments and results, whoever inside caused it.
OpTraffic traffic(std::string_view name, std::string_view overload, const std::vector<OpOperand>& inputs,
                  const std::vector<OpOperand>& outputs) {
  OpTraffic result;
  if (changes_the_view(name)) return result;
  const bool into_given = overload.find("out") != std::string_view::npos, in_place = name.ends_with('_');
  std::unordered_set<const void*> targets;
  for (const OpOperand& output : outputs) {
    const bool given = std::any_of(inputs.begin(), inputs.end(), [&](auto& it) { return it.tensor == output.tensor; });
    const bool shares =
        std::any_of(inputs.begin(), inputs.end(), [&](auto& it) { return it.storage == output.storage; });
    if (given ? !into_given && !in_place : shares) continue;  // the argument itself, or a view of it
    result.written += output.bytes;
    if (given && (into_given || overwrites(name))) targets.insert(output.tensor);
  }
  if (allocates(name)) return {0, 0, result.written};
  if (result.written == 0 || reads_nothing(name)) return result;
  for (const OpOperand& input : inputs) result.read += input.bytes;
  if (gathers(name)) result.read += result.written - inputs[0].bytes;
  // A target stands once among the arguments without being read; if it is there twice, it is an operand as well.
  for (const OpOperand& input : inputs)
    if (targets.erase(input.tensor) > 0) result.read -= input.bytes;
  return result;
}

// A view or an allocation: what launches for it is in an operator that it calls.
bool launches_nothing(const at::RecordFunction& function) {
  if (allocates(function.name())) return true;
  const auto name = function.operator_name();
  const auto found = name ? c10::Dispatcher::singleton().findOp(*name) : std::nullopt;
  if (!found || !found->hasSchema()) return false;
  const auto& results = found->schema().returns();
  return std::any_of(results.begin(), results.end(), [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
}

// Of the process: callbacks follow the work to the threads of backward passes.
std::atomic<OpProfiler::State*> active = nullptr;
thread_local OpCall* innermost = nullptr;

}  // namespace

struct OpProfiler::State {
  OpProfile profile;
  at::CallbackHandle handle = 0;
  std::optional<OpCounter> counter;
  std::optional<DeviceClock> clock;                     // none: the host's
  std::vector<OpSpan> spans;                            // of calls that the device may not be done with
  std::unordered_map<std::string, bool> has_no_launch;  // by name and overload
  int64_t announced = 0, seen_flops = 0;                // between outermost operators; up to the last of them
  std::mutex lock;

  std::unique_ptr<OpCall> begin(const at::RecordFunction& function) {
    const std::string_view name = function.name();
    if (!name.starts_with("aten::") && !name.starts_with("xformer::")) return nullptr;
    if (innermost != nullptr && innermost->opaque) return nullptr;
    auto call = std::make_unique<OpCall>();
    call->outer = innermost;
    call->inputs = operands(function.inputs());
    call->product = product(name, function.inputs());
    call->opaque = is_one_of_several(name);
    const OpCounts before = counter->counts();
    call->flops_before = before.flops, call->gathered_before = before.gathered;
    if (clock) {
      const std::lock_guard guard(lock);
      if (call->outer == nullptr) take_announced(name, before.flops, *call);
      begin_span(function, *call);
    }
    innermost = call.get();
    call->start = Clock::now();
    return call;
  }

  // A device's kernels count nothing themselves: whoever asks for one announces its FLOPs right before.
  void take_announced(std::string_view name, int64_t flops, OpCall& call) {
    announced += flops - seen_flops;
    seen_flops = flops;
    if (name.starts_with("xformer::")) call.flops_before -= std::exchange(announced, 0);
  }

  void begin_span(const at::RecordFunction& function, OpCall& call) {
    call.span = call.outer == nullptr ? -1 : call.outer->span;
    const auto [known, fresh] =
        has_no_launch.try_emplace(std::string(function.name()) + "." + std::string(function.overload_name()));
    if (fresh) known->second = launches_nothing(function);
    if (known->second) return;
    spans.push_back({call.span, clock->mark()});
    call.span = static_cast<int64_t>(spans.size()) - 1, call.has_span = true;
  }

  // Gives every call the time between its places that no call inside had.
  void settle_spans() {
    std::vector<double> own;
    for (const OpSpan& span : spans) {
      own.push_back(clock->seconds(span.from, span.to));
      if (span.outer >= 0) own[static_cast<size_t>(span.outer)] -= own.back();
    }
    for (size_t i = 0; i < spans.size(); ++i) {
      spans[i].sum->seconds += own[i];
      if (spans[i].product != nullptr) spans[i].product->seconds += own[i];
    }
    spans.clear();
    clock->restart();
  }

  void end(const at::RecordFunction& function, const OpCall& call) {
    const double seconds = clock ? 0 : std::chrono::duration<double>(Clock::now() - call.start).count();
    const std::lock_guard guard(lock);
    if (call.has_span) spans[static_cast<size_t>(call.span)].to = clock->mark();
    const std::string_view name = function.name();
    const OpCounts counts = counter->counts();
    const int64_t flops = counts.flops - call.flops_before, gathered = counts.gathered - call.gathered_before;
    const std::vector<c10::IValue>& results = function.outputs();
    OpTraffic moved =
        traffic(name, function.overload_name(), call.inputs, operands(Inputs(results.data(), results.size())));
    if (name.starts_with("xformer::") && results.empty()) {
      moved.written = call.inside.allocated;
      for (const OpOperand& input : call.inputs) moved.read += input.bytes;
    }
    OpFigures own{1, seconds - call.seconds_inside};
    // What a product's helpers copy is theirs; the product goes through its operands all the same.
    const OpTraffic counted = call.product ? OpTraffic() : call.inside;
    own.read_bytes = std::max<int64_t>(0, moved.read - counted.read);
    own.written_bytes = std::max<int64_t>(0, moved.written - counted.written);
    own.flops = flops - call.flops_inside;
    own.gathered_bytes = gathered - call.gathered_inside;
    own.product = call.product.has_value();
    OpFigures& sum = profile.operators[std::string(name)];
    if (sum.calls == 0) read_tags(function, sum);
    add(own, sum);
    OpFigures* const product = call.product ? &profile.products[*call.product] : nullptr;
    if (product != nullptr) add(own, *product);
    if (call.has_span)
      spans[static_cast<size_t>(call.span)].sum = &sum, spans[static_cast<size_t>(call.span)].product = product;
    innermost = call.outer;
    if (call.outer == nullptr) {
      seen_flops = counts.flops;
      return;
    }
    call.outer->seconds_inside += seconds;
    call.outer->flops_inside += flops;
    call.outer->gathered_inside += gathered;
    call.outer->inside.read += call.inside.read + own.read_bytes;
    call.outer->inside.written += call.inside.written + own.written_bytes;
    call.outer->inside.allocated += std::max(call.inside.allocated, moved.allocated);
  }

  static void add(const OpFigures& own, OpFigures& sum) {
    sum.calls += own.calls;
    sum.seconds += own.seconds;
    sum.read_bytes += own.read_bytes;
    sum.written_bytes += own.written_bytes;
    sum.gathered_bytes += own.gathered_bytes;
    sum.flops += own.flops;
    sum.product = own.product;
  }

  static void read_tags(const at::RecordFunction& function, OpFigures& sum) {
    const auto name = function.operator_name();
    const auto found = name ? c10::Dispatcher::singleton().findOp(*name) : std::nullopt;
    if (!found) return;
    sum.pointwise = found->hasTag(at::Tag::pointwise);
    sum.reduces = found->hasTag(at::Tag::reduction);
  }
};

namespace {

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  OpProfiler::State* const state = active.load();
  return state == nullptr ? nullptr : state->begin(function);
}

void on_end(const at::RecordFunction& function, at::ObserverContext* context) {
  OpProfiler::State* const state = active.load();
  if (context != nullptr && state != nullptr) state->end(function, *static_cast<const OpCall*>(context));
}

}  // namespace

double OpProfile::seconds() const {
  double result = 0;
  for (const auto& [name, figures] : operators) result += figures.seconds;
  return result;
}

OpProfiler::OpProfiler(const at::Device& device) : state_(std::make_unique<State>()) {
  if (!device.is_cpu()) state_->clock.emplace(device);
  State* none = nullptr;
  XF_ASSERT(active.compare_exchange_strong(none, state_.get()), "two operator profilers at once");
  at::RecordFunctionCallback callback(on_start, on_end);
  callback.needsInputs(true).needsOutputs(true).scopes({at::RecordScope::FUNCTION});
  // Before the counter's, so that the FLOPs at the start of a call are those before it.
  state_->handle = at::addThreadLocalCallback(callback);
  state_->counter.emplace();
}

OpProfiler::~OpProfiler() {
  state_->counter.reset();
  at::removeCallback(state_->handle);
  active = nullptr;
}

TimedWork OpProfiler::time(const std::function<void()>& work) {
  std::optional<DeviceClock>& clock = state_->clock;
  if (!clock) {
    const Clock::time_point start = Clock::now();
    work();
    return {std::chrono::duration<double>(Clock::now() - start).count(), false};
  }
  const size_t from = clock->mark();
  work();
  const size_t to = clock->mark();
  const bool ahead = !clock->passed(from);
  clock->wait();
  const double seconds = clock->seconds(from, to);
  state_->settle_spans();
  return {seconds, ahead};
}

double OpProfiler::event_seconds() const { return state_->clock ? state_->clock->mark_seconds() : 0; }

const OpProfile& OpProfiler::profile() const { return state_->profile; }

}  // namespace xformer
