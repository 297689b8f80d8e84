// Gelu and dropout on the CPU, in runs of elements that stay in the first-level cache.
#include "kernels/gelu_dropout/cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/units.h"

namespace xformer::kernels {

namespace {

constexpr int64_t kUnitElements = 16384, kRunElements = 4096;

// work(first element, run, worker) over all of x.
template <class Value, class Work>
void for_runs(const at::Tensor& x, bool tanh, const DropoutPlace& drop, const Work& work) {
  const ElementDraws draws(drop, x);
  const int64_t elements = x.numel(), units = (elements + kUnitElements - 1) / kUnitElements;
  std::vector<std::vector<uint16_t>> memory(static_cast<size_t>(workers_for(units)));
  for_units(units, std::min(elements, 8 * kUnitElements), [&](int64_t unit, int64_t worker) {
    const int64_t end = std::min(elements, (unit + 1) * kUnitElements);
    for (int64_t first = unit * kUnitElements; first < end; first += kRunElements) {
      const int64_t count = std::min(kRunElements, end - first);
      const uint16_t* const drawn = draws.draw(first, count, memory[static_cast<size_t>(worker)]);
      work(first, GeluRun<Value>{count, tanh, drawn, draws.threshold(), static_cast<Value>(draws.keep())}, worker);
    }
  });
}

// Room for runs of each of for_runs' workers.
template <class Value>
struct GeluRooms {
  std::vector<Value> x, gradient, result;
  static std::vector<GeluRooms> of(int64_t elements) {
    return std::vector<GeluRooms>(static_cast<size_t>(workers_for((elements + kUnitElements - 1) / kUnitElements)));
  }
};

}  // namespace

at::Tensor gelu_dropout_forward_cpu(const at::Tensor& x_in, bool tanh, const DropoutPlace& drop) {
  const at::Tensor x = x_in.contiguous();
  at::Tensor result = at::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "gelu_dropout", [&] {
    using Value = Computed<scalar_t>;
    const scalar_t* const in = x.const_data_ptr<scalar_t>();
    scalar_t* const out = result.mutable_data_ptr<scalar_t>();
    auto rooms = GeluRooms<Value>::of(x.numel());
    for_runs<Value>(x, tanh, drop, [&](int64_t first, const GeluRun<Value>& run, int64_t worker) {
      GeluRooms<Value>& room = rooms[static_cast<size_t>(worker)];
      Value* const into = place_for(out + first, run.count, room.result);
      gelu_run(run, loaded(in + first, run.count, room.x), into);
      store(into, run.count, out + first);
    });
  });
  return result;
}

at::Tensor gelu_dropout_backward_cpu(const at::Tensor& gradient_in, const at::Tensor& x_in, bool tanh,
                                     const DropoutPlace& drop) {
  const at::Tensor x = x_in.contiguous(), gradient = gradient_in.contiguous();
  XF_ASSERT(x.sizes() == gradient.sizes(), "a gradient of another shape");
  at::Tensor result = at::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "gelu_dropout_backward", [&] {
    using Value = Computed<scalar_t>;
    const scalar_t *const in = x.const_data_ptr<scalar_t>(), *const slopes = gradient.const_data_ptr<scalar_t>();
    scalar_t* const out = result.mutable_data_ptr<scalar_t>();
    auto rooms = GeluRooms<Value>::of(x.numel());
    for_runs<Value>(x, tanh, drop, [&](int64_t first, const GeluRun<Value>& run, int64_t worker) {
      GeluRooms<Value>& room = rooms[static_cast<size_t>(worker)];
      Value* const into = place_for(out + first, run.count, room.result);
      gelu_gradient_run(run, loaded(in + first, run.count, room.x), loaded(slopes + first, run.count, room.gradient),
                        into);
      store(into, run.count, out + first);
    });
  });
  return result;
}

}  // namespace xformer::kernels
