// Buckets of tokens on the CPU, and the tokens in their order.
#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/heads.h"
#include "kernels/cpu/lanes_512.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/units.h"
#include "kernels/hashed_attention/cpu.h"
#include "kernels/hashed_attention/pass.h"
#include "kernels/hashed_attention/token_rows.h"

namespace xformer::kernels {

namespace {

// What lies along the directions stays in the cache until its digits are found.
constexpr int64_t kRowsHashed = 128;

template <class Value>
auto way_to_find() {
  int64_t (*find)(const Value*, int64_t) = &digit_of;
  if constexpr (std::is_same_v<Value, float>)
    if (has_512()) find = &by_512::digit_of;
  return find;
}

}  // namespace

at::Tensor hash_buckets_cpu(const at::Tensor& q_in, const at::Tensor& directions_in,
                            const std::vector<int64_t>& factors, const HashedAttentionOptions& options) {
  const at::Tensor q = with_rows(q_in), directions = directions_in.contiguous();
  const int64_t b = q.size(0), h = q.size(1), n = q.size(2), d = q.size(3), r = directions.size(2),
                width = r * directions.size(3), slots = hashed_slots(n, options.chunk),
                tiles = (n + kRowsHashed - 1) / kRowsHashed;
  const ValidRows valid(options.valid, n);
  int64_t behind = 1;
  for (const int64_t factor : factors) behind *= factor;
  const at::Tensor result = at::full({b, h, r, slots}, behind, q.options().dtype(at::kLong));
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, q.scalar_type(), "hash_buckets", [&] {
    using Value = Computed<scalar_t>;
    struct Room {
      std::vector<Value> wide, along;
    };
    const auto digit_of_row = way_to_find<Value>();
    const auto queries = reading<scalar_t>(q);
    std::vector<PackedFactor<Value>> of_heads(static_cast<size_t>(h));
    for (int64_t head = 0; head < h; ++head)
      of_heads[static_cast<size_t>(head)].pack(b * n, d, width, Value(1),
                                               {directions.const_data_ptr<Value>() + head * d * width, width});
    std::vector<Room> rooms(static_cast<size_t>(workers_for(b * h * tiles)));
    for_units(b * h * tiles, std::min(n, kRowsHashed) * d * width, [&](int64_t unit, int64_t worker) {
      const int64_t sample = unit / tiles / h, head = unit / tiles % h, first = unit % tiles * kRowsHashed,
                    rows = std::min(kRowsHashed, n - first);
      Room& room = rooms[static_cast<size_t>(worker)];
      const auto wide = loaded_rows(queries.at(sample, head, first), queries.stride, rows, d, room.wide);
      const Value* row = grown(room.along, rows * width);
      gemm(rows, {wide.data, wide.stride}, of_heads[static_cast<size_t>(head)], Value(0), room.along.data(), width);
      int64_t* const into = result.mutable_data_ptr<int64_t>() + (sample * h + head) * r * slots + first;
      for (int64_t i = 0; i < rows; ++i, row += width) {
        if (!valid.at(sample, first + i)) continue;
        const Value* part = row;
        for (int64_t round = 0; round < r; ++round) {
          int64_t bucket = 0, unit_of_digit = 1;
          for (const int64_t factor : factors) {
            bucket += unit_of_digit * digit_of_row(part, factor / 2);
            unit_of_digit *= factor;
            part += factor / 2;
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
