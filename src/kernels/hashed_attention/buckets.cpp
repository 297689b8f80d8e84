// Buckets of tokens on the CPU, and the tokens in their order.
#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "kernels/cpu/lanes_512.h"
#include "kernels/cpu/units.h"
#include "kernels/hashed_attention/cpu.h"
#include "kernels/hashed_attention/pass.h"
#include "kernels/hashed_attention/token_rows.h"

namespace xformer::kernels {

namespace {

template <class Value>
auto way_to_find() {
  int64_t (*find)(const Value*, int64_t) = &digit_of;
  if constexpr (std::is_same_v<Value, float>)
    if (has_512()) find = &by_512::digit_of;
  return find;
}

}  // namespace

at::Tensor hash_buckets_cpu(const at::Tensor& turned_in, const std::vector<int64_t>& factors,
                            const HashedAttentionOptions& options) {
  const at::Tensor turned = turned_in.contiguous();
  const int64_t h = turned.size(0), b = turned.size(1), n = turned.size(2), r = turned.size(3),
                columns = turned.size(4), slots = hashed_slots(n, options.chunk);
  const ValidRows valid(options.valid, n);
  const at::Tensor result = at::empty({b, h, r, slots}, turned.options().dtype(at::kLong));
  int64_t behind = 1;
  for (const int64_t factor : factors) behind *= factor;
  AT_DISPATCH_FLOATING_TYPES(turned.scalar_type(), "hash_buckets", [&] {
    const auto digit_of_row = way_to_find<scalar_t>();
    for_units(b * h, n * r * columns, [&](int64_t unit, int64_t /*worker*/) {
      const int64_t sample = unit / h, head = unit % h;
      int64_t* const into = result.mutable_data_ptr<int64_t>() + unit * r * slots;
      std::fill_n(into, r * slots, behind);
      const scalar_t* const rows = turned.const_data_ptr<scalar_t>() + (head * b + sample) * n * r * columns;
      for (int64_t i = 0; i < n; ++i) {
        if (!valid.at(sample, i)) continue;
        const scalar_t* row = rows + i * r * columns;
        for (int64_t round = 0; round < r; ++round) {
          int64_t bucket = 0, unit_of_digit = 1;
          for (const int64_t factor : factors) {
            bucket += unit_of_digit * digit_of_row(row, factor / 2);
            unit_of_digit *= factor;
            row += factor / 2;
          }
          into[round * slots + i] = bucket;
        }
      }
    });
  });
  return result;
}

at::Tensor sorted_tokens(const at::Tensor& buckets_in) {
  const at::Tensor buckets = buckets_in.contiguous();
  const at::Tensor order = at::empty(buckets.sizes(), buckets.options().dtype(at::kInt));
  const int64_t slots = buckets.size(3), lists = buckets.numel() / slots;
  for_units(lists, slots, [&](int64_t list, int64_t /*worker*/) {
    const int64_t* const from = buckets.const_data_ptr<int64_t>() + list * slots;
    int32_t* const into = order.mutable_data_ptr<int32_t>() + list * slots;
    std::vector<int32_t> start(static_cast<size_t>(*std::max_element(from, from + slots) + 2), 0);
    for (int64_t i = 0; i < slots; ++i) ++start[static_cast<size_t>(from[i] + 1)];
    for (size_t i = 1; i < start.size(); ++i) start[i] += start[i - 1];
    for (int64_t i = 0; i < slots; ++i) into[start[static_cast<size_t>(from[i])]++] = static_cast<int32_t>(i);
  });
  return order;
}

}  // namespace xformer::kernels
