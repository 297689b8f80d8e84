// The passes of pooling.h on a device, but for the launches themselves: cuda.cpp gives them, tests walk the programs.
// The signatures are those of the operators' kernels for the CPU.
#pragma once

#include "kernels/device/head_tensors.h"
#include "kernels/pooling/groups.h"
#include "kernels/pooling/program.h"

namespace xformer::kernels {

// Whether a device's programs take such tokens, or rows.
[[nodiscard]] inline bool fits_pool_programs(at::TensorList tensors, const std::vector<HeadGroup>& groups) {
  size_t heads = 0;
  for (const HeadGroup& group : groups) {
    if (group.scale > kMostNumbered) return false;  // an int counts the tokens of a span
    heads += group.heads.size();
  }
  for (const at::Tensor& one : tensors)
    if (one.scalar_type() != tensors[0].scalar_type() || one.scalar_type() == at::kDouble || one.numel() == 0)
      return false;
  return groups.size() <= kMostPoolGroups && heads <= kMostPooledHeads && numbered_by_ints(tensors);
}

// What both ways are told. `x` and `pooled` are as readable_heads() gives them, or made here.
[[nodiscard]] inline PoolArguments pool_arguments(const at::Tensor& x, const std::vector<at::Tensor>& pooled,
                                                  const GroupLists& lists, int64_t pinned) {
  TORCH_CHECK(fits_pool_programs(pooled, lists.groups()) && x.scalar_type() == pooled[0].scalar_type(),
              "pooling on a device takes tokens of one type, not double, at most ", kMostPoolGroups, " groups of ",
              kMostPooledHeads, " heads");
  PoolArguments a;
  a.type = element_type(x), a.places = head_places(x);
  a.b = x.size(0), a.n = x.size(2), a.pinned = pinned;
  a.d = static_cast<int>(x.size(3));
  int first = 0;
  for (size_t i = 0; i < pooled.size(); ++i) {
    const auto heads = static_cast<int>(lists.sizes[i]);
    a.groups[a.count++] = {nullptr, nullptr, head_places(pooled[i]), lists.scales[i], pooled[i].size(2), heads, first};
    first += heads;
  }
  for (size_t i = 0; i < lists.heads.size(); ++i) a.heads[i] = static_cast<int16_t>(lists.heads[i]);
  return a;
}

// Tokens to rows, their means or sums. Launch takes PoolArguments.
template <class Launch>
std::vector<at::Tensor> pooled_on_device(const at::Tensor& x_in, const at::Tensor& key_valid, const GroupLists& lists,
                                         int64_t pinned, bool mean, const Launch& launch) {
  const at::Tensor x = readable_heads(x_in);
  const at::Tensor valid = readable_flags(key_valid);
  std::vector<at::Tensor> result;
  for (size_t i = 0; i < lists.scales.size(); ++i)
    result.push_back(at::empty({x.size(0), lists.sizes[i], pooled_rows(x.size(2), lists.scales[i], pinned), x.size(3)},
                               x.options()));
  PoolArguments a = pool_arguments(x, result, lists, pinned);
  a.x = x.const_data_ptr();
  for (size_t i = 0; i < result.size(); ++i) a.groups[i].rows_made = result[i].mutable_data_ptr();
  a.valid = valid_flags(valid, a.b, a.n), a.mean = mean;
  launch(a);
  return result;
}

// Rows to tokens, whole or shared by those that are valid, likewise.
template <class Launch>
at::Tensor repeated_on_device(const std::vector<at::Tensor>& pooled_in, const at::Tensor& key_valid, int64_t n,
                              const GroupLists& lists, int64_t pinned, bool share, const Launch& launch) {
  std::vector<at::Tensor> pooled;
  for (const at::Tensor& one : pooled_in) pooled.push_back(readable_heads(one));
  const at::Tensor valid = readable_flags(key_valid);
  const at::Tensor& like = pooled[0];
  const at::Tensor result =
      at::empty({like.size(0), n, static_cast<int64_t>(lists.heads.size()), like.size(3)}, like.options())
          .transpose(1, 2);
  PoolArguments a = pool_arguments(result, pooled, lists, pinned);
  a.x_made = result.mutable_data_ptr();
  for (size_t i = 0; i < pooled.size(); ++i) a.groups[i].rows = pooled[i].const_data_ptr();
  a.valid = valid_flags(valid, a.b, a.n), a.mean = share;
  launch(a);
  return result;
}

}  // namespace xformer::kernels
