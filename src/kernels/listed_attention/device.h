// The passes of listed_attention.h on a device, but for the launches themselves: cuda.cpp gives them, tests walk the
// programs. The signatures are the CPU's (cpu.h).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/device/head_tensors.h"
#include "kernels/listed_attention/cpu.h"
#include "kernels/listed_attention/gradient_programs.h"

namespace xformer::kernels {

// Whether the programs take these: narrow heads of one type, float, bf16 or fp16, a bias of float, and lists whose
// places an int counts.
[[nodiscard]] inline bool fits_listed_programs(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                               const at::Tensor& bias, const at::Tensor& places) {
  const at::ScalarType type = q.scalar_type();
  return type != at::kDouble && k.scalar_type() == type && v.scalar_type() == type &&
         (!bias.defined() || bias.scalar_type() == at::kFloat) && q.size(3) <= kListedHeadWidest &&
         v.size(3) <= kListedHeadWidest && q.numel() > 0 && v.numel() > 0 && places.numel() > 0 &&
         std::max({q.size(0) * q.size(1), q.size(2), k.size(2), places.size(3)}) <= kListedMost &&
         places.size(2) * places.size(3) <= kListedMostPlaces;
}

// Tensors as programs read them, which must outlive the launches, and what these are told.
struct ListedOperands {
  at::Tensor q, k, v, bias, places, lists, key_valid, row_valid;
  ListedArguments a;

  ListedOperands(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v_in, const at::Tensor& bias_in,
                 const ListedAttentionOptions& options)
      : q(readable_heads(q_in)),
        k(readable_heads(k_in)),
        v(readable_heads(v_in)),
        bias(bias_in.defined() ? bias_in.contiguous() : bias_in),
        places(options.places.contiguous()),
        lists(options.lists.defined() ? options.lists.contiguous() : options.lists),
        key_valid(readable_flags(options.key_valid)),
        row_valid(readable_flags(options.row_valid)) {
    TORCH_CHECK(fits_listed_programs(q, k, v, bias, places), "attention over lists on a device takes heads of one ",
                "type, not double, at most ", kListedHeadWidest, " wide");
    a.b = static_cast<int>(q.size(0)), a.h = static_cast<int>(q.size(1));
    a.n = static_cast<int>(q.size(2)), a.m = static_cast<int>(k.size(2));
    a.c = static_cast<int>(places.size(2)), a.length = static_cast<int>(places.size(3));
    a.d = static_cast<int>(q.size(3)), a.e = static_cast<int>(v.size(3));
    for (const at::Tensor& one : {k, v, bias, places, lists})
      TORCH_CHECK(!one.defined() || one.device() == q.device(), "attention over lists has its tensors on one device");
    TORCH_CHECK(places.scalar_type() == at::kLong && (lists.defined() || a.c == a.n),
                "places are int64 [b,h,c,L], with a list of each row or c = n");
    TORCH_CHECK(!lists.defined() || (lists.scalar_type() == at::kLong && lists.numel() == q.size(0) * q.size(1) * a.n),
                "lists are int64 [b,h,n]");
    TORCH_CHECK(!bias.defined() || bias.numel() == q.size(0) * q.size(1) * a.n * a.length, "a bias is [b,h,n,L]");
    a.type = element_type(q), a.bias = read_floats(bias);
    a.q = q.const_data_ptr(), a.k = k.const_data_ptr(), a.v = v.const_data_ptr();
    a.q_places = head_places(q), a.k_places = head_places(k), a.v_places = head_places(v);
    a.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(a.d)));
    a.places = static_cast<const int64_t*>(places.const_data_ptr());
    a.slice_head = places.size(1) == 1 ? 0 : 1, a.slice_sample = places.size(0) == 1 ? 0 : places.size(1);
    if (lists.defined()) a.lists = static_cast<const int64_t*>(lists.const_data_ptr());
    a.key_valid = valid_flags(key_valid, a.b, a.m), a.row_valid = valid_flags(row_valid, a.b, a.n);
    a.drop = device_drop(options.dropout, q);
    a.drop.row_elements = q.size(1) * a.n * a.length;  // of the weights [b,h,n,L]
  }
};

// Launch takes ListedArguments.
template <class Launch>
ListedAttentionForward listed_attention_forward_device(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                       const at::Tensor& bias, const ListedAttentionOptions& options,
                                                       const Launch& launch) {
  ListedOperands given(q, k, v, bias, options);
  ListedArguments& a = given.a;
  ListedAttentionForward result{rows_of_heads(given.q, a.n, a.e),
                                at::empty({a.b, a.h, a.n}, q.options().dtype(at::kFloat))};
  a.out = result.out.mutable_data_ptr(), a.log_sum = written_floats(result.log_sum);
  launch(a);
  return result;
}

// Where a reversal of `entries` numbers below `values` in each of so many slices is left: [starts, found].
[[nodiscard]] inline std::array<at::Tensor, 2> reversal_tensors(Reversal& r, const at::Tensor& numbers, int64_t slices,
                                                                int entries, int values) {
  const std::array<at::Tensor, 2> result{at::empty({slices, values + 1}, numbers.options().dtype(at::kInt)),
                                         at::empty({slices, entries}, numbers.options().dtype(at::kInt))};
  r = {static_cast<const int64_t*>(numbers.const_data_ptr()),
       slices,
       entries,
       values,
       static_cast<int*>(result[0].mutable_data_ptr()),
       static_cast<int*>(result[1].mutable_data_ptr())};
  return result;
}

// Launch takes ListedArguments.
template <class Launch>
ListedAttentionGradients listed_attention_backward_device(const at::Tensor& gradient_in, const at::Tensor& q,
                                                          const at::Tensor& k, const at::Tensor& v,
                                                          const at::Tensor& bias, const ListedAttentionForward& forward,
                                                          const ListedAttentionOptions& options, const Launch& launch) {
  ListedOperands given(q, k, v, bias, options);
  ListedArguments& a = given.a;
  const at::Tensor gradient = readable_heads(gradient_in);
  TORCH_CHECK(gradient.scalar_type() == q.scalar_type(), "a gradient unlike its heads");
  const at::Tensor weights = at::empty({a.b, a.h, a.n, a.length}, q.options().dtype(at::kFloat)),
                   slopes = at::empty_like(weights);
  ListedAttentionGradients result{rows_of_heads(given.q, a.n, a.d), rows_of_heads(given.q, a.m, a.d),
                                  rows_of_heads(given.q, a.m, a.e), bias.defined() ? slopes : at::Tensor()};
  const auto readers =
      reversal_tensors(a.readers, given.places, given.places.size(0) * given.places.size(1), a.c * a.length, a.m);
  std::array<at::Tensor, 2> members;
  if (given.lists.defined()) members = reversal_tensors(a.members, given.lists, q.size(0) * q.size(1), a.n, a.c);
  a.out = forward.out.mutable_data_ptr(), a.log_sum = written_floats(forward.log_sum);
  a.gradient = gradient.const_data_ptr(), a.gradient_places = head_places(gradient);
  a.weights = written_floats(weights), a.slopes = written_floats(slopes);
  a.dq = result.q.mutable_data_ptr(), a.dk = result.k.mutable_data_ptr(), a.dv = result.v.mutable_data_ptr();
  launch(a);
  return result;
}

}  // namespace xformer::kernels
