// The passes of hashed_attention.h on a device, but for the launches themselves: cuda.cpp gives them, tests walk the
// programs. The signatures are the CPU's (cpu.h).
#pragma once

#include <algorithm>

#include "kernels/device/head_tensors.h"
#include "kernels/hashed_attention/cpu.h"
#include "kernels/hashed_attention/gradient_programs.h"

namespace xformer::kernels {

static_assert(kAloneLogit == static_cast<float>(kSelfLogit));

// Whether the programs take these: narrow heads of float, lists whose slots shared memory has room for.
[[nodiscard]] inline bool fits_hashed_programs(const at::Tensor& q, const at::Tensor& v, const at::Tensor& buckets) {
  const int64_t rounds = buckets.defined() ? buckets.size(2) : 1, slots = buckets.defined() ? buckets.size(3) : 1;
  return q.scalar_type() == at::kFloat && v.scalar_type() == at::kFloat && q.size(3) <= kHashedHeadWidest &&
         v.size(3) <= kHashedHeadWidest && q.numel() > 0 && v.numel() > 0 && slots <= kMostSlots &&
         std::max({q.size(0) * q.size(1), q.size(2), rounds * slots}) <= kHashedMost;
}

// Tensors as programs read them, which must outlive the launches, and what these are told.
struct HashedOperands {
  at::Tensor q, v, valid, shifts, sums, rows;
  HashedArguments a;

  // `lists`: buckets or the tokens in their order; undefined where there are none.
  HashedOperands(const at::Tensor& q_in, const at::Tensor& v_in, const at::Tensor& lists,
                 const HashedAttentionOptions& options)
      : q(readable_heads(q_in)), v(readable_heads(v_in)), valid(readable_flags(options.valid)) {
    const bool hashed = lists.defined();
    TORCH_CHECK(fits_hashed_programs(q, v, lists) && v.device() == q.device(),
                "hashed attention on a device takes heads of float, at most ", kHashedHeadWidest,
                " wide, and lists of ", kMostSlots, " slots");
    a.product = product_kind();
    a.q = read_floats(q), a.v = read_floats(v);
    a.q_places = head_places(q), a.v_places = head_places(v);
    a.b = static_cast<int>(q.size(0)), a.h = static_cast<int>(q.size(1)), a.n = static_cast<int>(q.size(2));
    a.d = static_cast<int>(q.size(3)), a.e = static_cast<int>(v.size(3));
    a.rounds = hashed ? static_cast<int>(lists.size(2)) : 1;
    a.slots = hashed ? static_cast<int>(lists.size(3)) : a.n;
    a.chunk = hashed ? static_cast<int>(options.chunk) : a.n;
    a.before = hashed ? a.chunk : 0;
    TORCH_CHECK(a.slots % a.chunk == 0 && a.slots >= a.n, "lists are whole chunks with room for all tokens");
    a.key_floor = static_cast<float>(kKeyEpsilon * static_cast<double>(a.d));
    a.valid = valid_flags(valid, a.b, a.n);
    a.drop = device_drop(options.dropout, q);
    a.drop.row_elements = int64_t{a.h} * a.total() * a.width();
  }

  [[nodiscard]] at::Tensor of_rounds(int64_t width) const {
    return at::empty({a.b, a.h, a.rounds, a.n, width}, q.options());
  }
};

// Launch takes HashedArguments.
template <class Launch>
HashedAttentionForward hashed_attention_forward_device(const at::Tensor& q, const at::Tensor& v,
                                                       const at::Tensor& buckets_in,
                                                       const HashedAttentionOptions& options, const Launch& launch) {
  const at::Tensor buckets = buckets_in.defined() ? buckets_in.contiguous() : buckets_in;
  HashedOperands given(q, v, buckets, options);
  HashedArguments& a = given.a;
  HashedAttentionForward result{rows_of_heads(given.q, a.n, a.e), {}, at::empty({a.b, a.h, a.n}, q.options()), {}};
  result.sum = at::empty_like(result.shift);
  if (buckets.defined()) {
    TORCH_CHECK(buckets.scalar_type() == at::kLong && buckets.device() == q.device() &&
                    buckets.numel() == int64_t{a.b} * a.h * a.total(),
                "buckets are int64 [b,h,r,slots] on the device of the heads");
    result.order = at::empty(buckets.sizes(), buckets.options().dtype(at::kInt));
    const int64_t lists = buckets.numel() / a.slots, most = (a.slots + kCountedValues - 1) / kCountedValues;
    a.sorting = {static_cast<const int64_t*>(buckets.const_data_ptr()),
                 static_cast<int*>(result.order.mutable_data_ptr()), lists, a.slots,
                 static_cast<int>(std::clamp<int64_t>(kSpreadBlocks / lists, 1, most))};
    a.order = a.sorting.order;
  }
  const at::Tensor rows = given.of_rounds(a.e), shifts = given.of_rounds(1), sums = given.of_rounds(1);
  a.rows = written_floats(rows), a.shifts = written_floats(shifts), a.sums = written_floats(sums);
  a.out = written_floats(result.out);
  a.shift = written_floats(result.shift), a.sum = written_floats(result.sum);
  launch(a);
  return result;
}

// Launch takes HashedArguments.
template <class Launch>
HashedAttentionGradients hashed_attention_backward_device(const at::Tensor& gradient_in, const at::Tensor& q,
                                                          const at::Tensor& v, const HashedAttentionForward& forward,
                                                          const HashedAttentionOptions& options, const Launch& launch) {
  HashedOperands given(q, v, forward.order, options);
  HashedArguments& a = given.a;
  const at::Tensor gradient = readable_heads(gradient_in), delta = at::empty_like(forward.shift);
  const at::Tensor dq_rows = given.of_rounds(a.d), dk_rows = given.of_rounds(a.d), dv_rows = given.of_rounds(a.e);
  HashedAttentionGradients result{rows_of_heads(given.q, a.n, a.d), rows_of_heads(given.q, a.n, a.e)};
  if (forward.order.defined()) a.order = static_cast<const int*>(forward.order.const_data_ptr());
  a.out = written_floats(forward.out);
  a.shift = written_floats(forward.shift), a.sum = written_floats(forward.sum);
  a.gradient = read_floats(gradient), a.gradient_places = head_places(gradient), a.delta = written_floats(delta);
  a.dq_rows = written_floats(dq_rows), a.dk_rows = written_floats(dk_rows), a.dv_rows = written_floats(dv_rows);
  a.dq = written_floats(result.q), a.dv = written_floats(result.v);
  launch(a);
  return result;
}

// Whether the program takes these.
[[nodiscard]] inline bool fits_bucket_program(const at::Tensor& q, const at::Tensor& directions,
                                              const std::vector<int64_t>& factors, int64_t chunk) {
  int64_t buckets = 1;  // no product of two that are few leaves an int64
  for (const int64_t factor : factors)
    if (factor > kHashedMost || (buckets *= factor) > kHashedMost) return false;
  return directions.scalar_type() == at::kFloat && q.numel() > 0 && factors.size() <= size_t{kMostFactors} &&
         std::max({q.size(0) * q.size(1), q.size(2), directions.size(2) * directions.size(3), chunk}) <= kHashedMost;
}

// Launch takes HashBucketArguments.
template <class Launch>
at::Tensor hash_buckets_device(const at::Tensor& q, const at::Tensor& directions, const std::vector<int64_t>& factors,
                               const HashedAttentionOptions& options, const Launch& launch) {
  TORCH_CHECK(fits_bucket_program(q, directions, factors, options.chunk), "buckets on a device are of floats, at most ",
              kMostFactors, " factors, and at most ", kHashedMost);
  const at::Tensor turned = along_directions(q, directions), valid = readable_flags(options.valid);
  HashBucketArguments a;
  a.h = static_cast<int>(turned.size(0)), a.b = static_cast<int>(turned.size(1));
  a.n = static_cast<int>(turned.size(2)), a.rounds = static_cast<int>(turned.size(3));
  a.columns = static_cast<int>(turned.size(4)), a.slots = static_cast<int>(hashed_slots(a.n, options.chunk));
  a.turned = read_floats(turned), a.wide = reads_wide({turned});
  for (const int64_t factor : factors) {
    a.factor[a.factors++] = static_cast<int>(factor);
    a.wide = a.wide && factor / 2 % kRun == 0;
    a.behind *= factor;
  }
  a.valid = valid_flags(valid, a.b, a.n);
  const at::Tensor result = at::empty({a.b, a.h, a.rounds, a.slots}, turned.options().dtype(at::kLong));
  a.buckets = static_cast<int64_t*>(result.mutable_data_ptr());
  launch(a);
  return result;
}

}  // namespace xformer::kernels
