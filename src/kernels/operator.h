// Kernels as operators of LibTorch's dispatcher: functions of structs on both sides, their leaves (fields.h) in
// between.
//
// The program registers xformer::<name> with its CPU kernel:
//   const Operator<attention_forward_cpu> attention_forward{"attention_forward"};
// and a plugin another device's, of the same arguments:
//   TORCH_LIBRARY_IMPL(xformer, CUDA, library) { library.impl("attention_forward", dispatched<attention_forward_cuda>);
//   }
//
// The object that registers an operator is the one that calls it, so no linker can leave out the registration alone.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/library.h>

#include <string>
#include <utility>

#include "kernels/fields.h"

namespace xformer::kernels {

// How a leaf travels.
template <class Leaf>
struct Wire {
  using Type = std::conditional_t<std::is_enum_v<Leaf>, int64_t, Leaf>;
};
template <>
struct Wire<at::Tensor> {
  using Type = const at::Tensor&;
};
template <class Element>
struct Wire<std::vector<Element>> {
  using Type = at::ArrayRef<Element>;
};

// A struct's leaves by value; bare if it is one alone.
template <class Result>
auto pack(Result result) {
  return std::apply(
      [](auto&... leaf) {
        if constexpr (sizeof...(leaf) == 1) return (std::move(leaf), ...);
        else return std::make_tuple(std::move(leaf)...);
      },
      leaves(result));
}

template <class Result>
struct Packed {
  using Type = decltype(pack(std::declval<Result>()));
};
template <>
struct Packed<void> {
  using Type = void;
};

// A kernel's signature on both sides.
template <auto kKernel>
struct Signature;
template <class ResultType, class... Argument, ResultType (*kKernel)(Argument...)>
struct Signature<kKernel> {
  using Result = ResultType;
  using Arguments = std::tuple<std::remove_cvref_t<Argument>...>;
  template <class>
  struct Flat;
  template <class... Leaf>
  struct Flat<std::tuple<Leaf&...>> {
    using Type = typename Packed<Result>::Type(typename Wire<Leaf>::Type...);
  };
  using Dispatched = typename Flat<decltype(leaves(std::declval<Arguments&>()))>::Type;
};

template <auto kKernel, class Dispatched = typename Signature<kKernel>::Dispatched>
struct Unpacked;
template <auto kKernel, class Result, class... Sent>
struct Unpacked<kKernel, Result(Sent...)> {
  static Result call(Sent... sent) {
    typename Signature<kKernel>::Arguments arguments;
    take(leaves(arguments), std::tuple<Sent...>(sent...), std::index_sequence_for<Sent...>());
    if constexpr (std::is_void_v<Result>) std::apply(kKernel, arguments);
    else return pack(std::apply(kKernel, arguments));
  }

 private:
  template <class Leaves, size_t... kPlace>
  static void take(const Leaves& into, const std::tuple<Sent...>& sent, std::index_sequence<kPlace...>) {
    (put(std::get<kPlace>(sent), std::get<kPlace>(into)), ...);
  }
  template <class From, class Leaf>
  static void put(const From& from, Leaf& into) {
    if constexpr (requires { from.vec(); }) into = from.vec();
    else into = static_cast<Leaf>(from);
  }
};

// What the dispatcher is given for a kernel.
template <auto kKernel>
inline constexpr auto* dispatched = &Unpacked<kKernel>::call;

// In the place of the CPU's kernel where devices alone have one: a CPU runs the call's reference.
template <class Function>
inline constexpr Function* kNoCpuKernel = nullptr;

template <auto kCpu>
class Operator {
  using Types = Signature<kCpu>;
  template <auto kKernel>
  struct Is;
  static constexpr bool kHasCpu = !std::is_same_v<Is<kCpu>, Is<decltype(kCpu){nullptr}>>;

 public:
  explicit Operator(const std::string& name)
      : library_(torch::Library::FRAGMENT, "xformer", std::nullopt, __FILE__, __LINE__),
        handle_(registered(library_, name)) {}

  // Runs the kernel of the tensors' device, below autograd.
  template <class... Argument>
  typename Types::Result operator()(const Argument&... given) const {
    const typename Types::Arguments arguments{given...};
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto call = [this](const auto&... leaf) { return handle_.call(sent(leaf)...); };
    if constexpr (std::is_void_v<typename Types::Result>) {
      std::apply(call, leaves(arguments));
    } else {
      typename Types::Result result;
      if constexpr (std::tuple_size_v<decltype(leaves(result))> == 1)
        std::get<0>(leaves(result)) = std::apply(call, leaves(arguments));
      else leaves(result) = std::apply(call, leaves(arguments));
      return result;
    }
  }

  // Whether somebody registered a kernel for the tensor's device.
  [[nodiscard]] bool runs_on(const at::Tensor& tensor) const {
    return handle_.hasKernelForDispatchKey(c10::highestPriorityBackendTypeId(tensor.key_set()));
  }

 private:
  using Dispatched = typename Types::Dispatched;

  static c10::TypedOperatorHandle<Dispatched> registered(torch::Library& library, const std::string& name) {
    library.def(c10::inferFunctionSchemaFlattenedReturns<Dispatched>().cloneWithName(name, ""));
    if constexpr (kHasCpu) library.impl(name.c_str(), c10::DispatchKey::CPU, dispatched<kCpu>);
    return c10::Dispatcher::singleton()
        .findSchemaOrThrow(("xformer::" + name).c_str(), "")
        .template typed<Dispatched>();
  }

  template <class Leaf>
  static typename Wire<Leaf>::Type sent(const Leaf& leaf) {
    if constexpr (std::is_enum_v<Leaf>) return static_cast<int64_t>(leaf);
    else return leaf;
  }

  torch::Library library_;
  c10::TypedOperatorHandle<Dispatched> handle_;
};

}  // namespace xformer::kernels
