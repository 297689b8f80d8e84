// The members of a struct as a flat list: structs and tuples inside are opened, down to tensors, numbers and lists of
// them. Every aggregate of at most eight members will do; it need not say what they are, so none can be forgotten.
#pragma once

#include <torch/types.h>

#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace xformer::kernels {

template <class T>
inline constexpr bool kIsTuple = false;
template <class... Member>
inline constexpr bool kIsTuple<std::tuple<Member...>> = true;

// Stands for a value of any type, where only its place counts.
struct AnyValue {
  template <class T>
  operator T() const;
};

// How many members an aggregate has: as many values as it can be made of.
template <class T, class... Value>
constexpr size_t member_count() {
  static_assert(sizeof...(Value) <= 9, "a struct of more than eight members");
  if constexpr (requires { T{Value()..., AnyValue()}; }) return member_count<T, Value..., AnyValue>();
  else return sizeof...(Value);
}

// References to the members themselves.
template <class T>
auto members(T& value) {
  constexpr size_t kCount = member_count<std::remove_const_t<T>>();
  if constexpr (kCount == 1) {
    auto& [a] = value;
    return std::tie(a);
  } else if constexpr (kCount == 2) {
    auto& [a, b] = value;
    return std::tie(a, b);
  } else if constexpr (kCount == 3) {
    auto& [a, b, c] = value;
    return std::tie(a, b, c);
  } else if constexpr (kCount == 4) {
    auto& [a, b, c, d] = value;
    return std::tie(a, b, c, d);
  } else if constexpr (kCount == 5) {
    auto& [a, b, c, d, e] = value;
    return std::tie(a, b, c, d, e);
  } else if constexpr (kCount == 6) {
    auto& [a, b, c, d, e, f] = value;
    return std::tie(a, b, c, d, e, f);
  } else if constexpr (kCount == 7) {
    auto& [a, b, c, d, e, f, g] = value;
    return std::tie(a, b, c, d, e, f, g);
  } else {
    auto& [a, b, c, d, e, f, g, h] = value;
    return std::tie(a, b, c, d, e, f, g, h);
  }
}

// References to all that is inside.
template <class T>
auto leaves(T& value) {
  const auto open = [](auto&... member) { return std::tuple_cat(leaves(member)...); };
  if constexpr (kIsTuple<std::remove_const_t<T>>) return std::apply(open, value);
  else if constexpr (std::is_aggregate_v<T>) return std::apply(open, members(value));
  else return std::tie(value);
}

// visit(tensor) for every tensor, those of lists too, in order.
template <class T, class Visit>
void for_tensors(T& value, const Visit& visit) {
  const auto look = [&](auto& leaf) {
    using Leaf = std::remove_cvref_t<decltype(leaf)>;
    if constexpr (std::is_same_v<Leaf, at::Tensor>) visit(leaf);
    if constexpr (std::is_same_v<Leaf, std::vector<at::Tensor>>)
      for (auto& one : leaf) visit(one);
  };
  std::apply([&](auto&... leaf) { (look(leaf), ...); }, leaves(value));
}

template <class T>
[[nodiscard]] std::vector<at::Tensor> tensors_of(const T& value) {
  std::vector<at::Tensor> result;
  for_tensors(value, [&](const at::Tensor& tensor) { result.push_back(tensor); });
  return result;
}

}  // namespace xformer::kernels
