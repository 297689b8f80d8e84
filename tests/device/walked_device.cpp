// The walked device: its memory, its place among LibTorch's devices, and how LibTorch's operators get to the CPU.
#include "device/walked_device.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/detail/HPUHooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/record_function.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstdlib>
#include <mutex>

namespace xformer::kernels {

namespace {

std::mutex lock;  // backward passes have a thread of their own
DeviceWork work;
std::optional<WalkOrder> order;
ClockTicks ticks;
double now = 0;  // milliseconds
bool failed = false;
int64_t freed_too_late = 0;
thread_local int falling_back = 0;  // LibTorch copies what it takes to the CPU

struct Memory : at::Allocator {
  at::DataPtr allocate(size_t bytes) override {
    void* const place = bytes > 0 ? std::aligned_alloc(64, (bytes + 63) / 64 * 64) : nullptr;
    if (place != nullptr) memset(place, 0, bytes);
    return {place, place, &std::free, kWalkedDevice};
  }
  at::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { memcpy(to, from, bytes); }
};

struct PinnedMemory : Memory {
  at::DataPtr allocate(size_t bytes) override {
    at::DataPtr data = Memory::allocate(bytes);
    return {data.get(), data.release_context(), &release, at::kCPU};
  }
  at::DeleterFnPtr raw_deleter() const override { return &release; }
  static void release(void* place) {
    freed_too_late += failed ? 1 : 0;
    std::free(place);
  }
};

void wait_for_device() {
  if (failed)
    throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, 719, "CUDA error: unspecified launch failure\n...");
}

struct Guard : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::HPU> {
  c10::Device getDevice() const override { return kWalkedDevice; }
  c10::Device exchangeDevice(c10::Device) const override { return kWalkedDevice; }
  c10::Stream getStream(c10::Device) const noexcept override { return stream(); }
  c10::Stream getNewStream(c10::Device, int) const override { return stream(); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return stream(); }
  // All work is done when it is asked for.
  void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {
    const std::lock_guard guard(lock);
    if (*event == nullptr) *event = new double;
    now += ticks.event;
    *static_cast<double*>(*event) = now;
  }
  double elapsedTime(void* from, void* to, const c10::DeviceIndex) const override {
    return *static_cast<double*>(to) - *static_cast<double*>(from);
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<double*>(event); }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override { wait_for_device(); }
  void synchronizeDevice(const c10::DeviceIndex) const override { wait_for_device(); }

 private:
  static c10::Stream stream() noexcept { return c10::Stream(c10::Stream::DEFAULT, kWalkedDevice); }
};

int64_t bytes_of(c10::ArrayRef<const c10::IValue> values) {
  int64_t bytes = 0;
  for (const c10::IValue& value : values) {
    if (value.isTensor() && value.toTensor().defined()) bytes += static_cast<int64_t>(value.toTensor().nbytes());
    else if (value.isTensorList())
      for (const at::Tensor& one : value.toTensorVector())
        if (one.defined()) bytes += static_cast<int64_t>(one.nbytes());
  }
  return bytes;
}

void count_operator(const std::string& name, int64_t bytes) {
  const std::lock_guard guard(lock);
  ++work.operators[name];
  now += ticks.launch;
  work.bytes += bytes;
}

void count_read() {
  const std::lock_guard guard(lock);
  ++work.reads;
}

void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t arguments = op.schema().arguments().size();
  int64_t bytes = bytes_of(at::ArrayRef<const c10::IValue>(stack->data() + stack->size() - arguments, arguments));
  ++falling_back;
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
  --falling_back;
  const size_t results = op.schema().returns().size();
  bytes += bytes_of(at::ArrayRef<const c10::IValue>(stack->data() + stack->size() - results, results));
  if (falling_back == 0) count_operator(op.schema().name(), bytes);
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, c10::GetAllocator(at::kHPU), c10::DispatchKeySet(c10::DispatchKey::HPU),
                                   at::dtype_or_default(type), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, c10::GetAllocator(at::kHPU),
                                           c10::DispatchKeySet(c10::DispatchKey::HPU), at::dtype_or_default(type));
}

// The same memory as a tensor of the CPU.
at::Tensor on_host(const at::Tensor& x) {
  if (x.is_cpu()) return x;
  return at::from_blob(const_cast<void*>(x.const_data_ptr()), x.sizes(), x.strides(),
                       x.options().device(at::kCPU).requires_grad(false));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  on_host(to).copy_(on_host(from));
  if (falling_back == 0) {
    count_operator("aten::copy_", static_cast<int64_t>(from.nbytes() + to.nbytes()));
    if (to.is_cpu()) count_read();
  }
  return to;
}

// Of results that LibTorch gives their size later: what was in there does not matter.
const at::Tensor& resize(const at::Tensor& x, at::IntArrayRef size, std::optional<at::MemoryFormat>) {
  x.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  const at::Storage& storage = x.storage();
  const size_t needed = (static_cast<size_t>(x.storage_offset() + x.numel())) * x.element_size();
  if (storage.nbytes() < needed) {
    storage.set_data_ptr_noswap(storage.allocator()->allocate(needed));
    storage.set_nbytes(needed);
  }
  return x;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar read_value(const at::Tensor& x) {
  count_read();
  return on_host(x).item();
}

// Bytes of our own operators; their launches count themselves.
std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  if (!name.starts_with("xformer::")) return nullptr;
  const std::lock_guard guard(lock);
  work.bytes += bytes_of(function.inputs());
  return nullptr;
}

void on_end(const at::RecordFunction& function, at::ObserverContext*) {
  const std::string_view name = function.name();
  if (!name.starts_with("xformer::")) return;
  const std::lock_guard guard(lock);
  const std::vector<c10::IValue>& results = function.outputs();
  work.bytes += bytes_of(at::ArrayRef<const c10::IValue>(results.data(), results.size()));
}

const bool kRegistered = [] {
  static Memory memory;
  c10::SetAllocator(at::kHPU, &memory);
  at::addGlobalCallback(at::RecordFunctionCallback(on_start, on_end)
                            .needsInputs(true)
                            .needsOutputs(true)
                            .scopes({at::RecordScope::FUNCTION}));
  return true;
}();

}  // namespace

// LibTorch looks for this name.
struct HPUHooks : at::HPUHooksInterface {
  explicit HPUHooks(at::HPUHooksArgs) {}
  void init() const override {}
  bool hasHPU() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  at::DeviceIndex deviceCount() const override { return 1; }
  at::DeviceIndex getCurrentDevice() const override { return 0; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  at::Device getDeviceFromPtr(void*) const override { return kWalkedDevice; }
  at::Allocator* getPinnedMemoryAllocator() const override {
    static PinnedMemory memory;
    return &memory;
  }
};

void set_walk_order(std::optional<WalkOrder> wanted) { order = wanted; }
std::optional<WalkOrder> walk_order() { return order; }

void count_launch() {
  const std::lock_guard guard(lock);
  ++work.launches;
  now += ticks.launch;
}

void set_failed(bool now_failed) { failed = now_failed; }
int64_t pinned_blocks_freed_too_late() { return freed_too_late; }

void note_plan(LaunchPlan plan) {
  const std::lock_guard guard(lock);
  work.plans.insert(std::move(plan));
}

void set_clock_ticks(const ClockTicks& wanted) {
  const std::lock_guard guard(lock);
  ticks = wanted;
}

int64_t DeviceWork::all_launches() const {
  int64_t all = launches;
  for (const auto& [name, calls] : operators) all += calls;
  return all;
}

DeviceWork take_device_work() {
  const std::lock_guard guard(lock);
  return std::exchange(work, {});
}

C10_REGISTER_GUARD_IMPL(HPU, Guard)

TORCH_LIBRARY_IMPL(_, HPU, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back>()); }

TORCH_LIBRARY_IMPL(aten, HPU, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
  library.impl("_local_scalar_dense", read_value);
  library.impl("resize_", resize);
  library.impl("view", at::native::view);
  library.impl("as_strided", at::native::as_strided_tensorimpl);
  library.impl("_reshape_alias", at::native::_reshape_alias);
  library.impl("unfold", at::native::unfold);
}

}  // namespace xformer::kernels

namespace at {
using xformer::kernels::HPUHooks;
REGISTER_HPU_HOOKS(HPUHooks)
}  // namespace at
