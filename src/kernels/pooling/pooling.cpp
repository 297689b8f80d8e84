#include "kernels/pooling/pooling.h"

#include <ATen/Dispatch.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "kernels/cpu/heads.h"
#include "kernels/cpu/lanes_512.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/units.h"
#include "kernels/cpu/valid_rows.h"
#include "kernels/fused.h"
#include "kernels/pooling/cpu.h"
#include "kernels/pooling/device.h"

namespace xformer::kernels {

namespace {

int64_t heads_in(const std::vector<HeadGroup>& groups) {
  int64_t result = 0;
  for (const HeadGroup& group : groups) result += static_cast<int64_t>(group.heads.size());
  return result;
}

std::vector<HeadGroup> all_heads(const at::Tensor& x, int64_t scale) {
  std::vector<int64_t> heads(static_cast<size_t>(x.size(1)));
  std::iota(heads.begin(), heads.end(), 0);
  return {{scale, std::move(heads)}};
}

// Walks all samples' heads: work(sample, place of the group, place of the head in it, head, its scale, worker).
template <class Work>
void for_heads(const std::vector<HeadGroup>& groups, int64_t samples, int64_t head_elements, const Work& work) {
  struct Place {
    size_t group;
    int64_t within, head, scale;
  };
  std::vector<Place> places;
  for (size_t g = 0; g < groups.size(); ++g)
    for (size_t i = 0; i < groups[g].heads.size(); ++i)
      places.push_back({g, static_cast<int64_t>(i), groups[g].heads[i], groups[g].scale});
  const auto count = static_cast<int64_t>(places.size());
  for_units(samples * count, head_elements, [&](int64_t unit, int64_t worker) {
    const Place& one = places[static_cast<size_t>(unit % count)];
    work(unit / count, one.group, one.within, one.head, one.scale, static_cast<size_t>(worker));
  });
}

// Tokens from .. to - 1 form row `row` of a pooled sequence.
struct Span {
  int64_t from, to;
};
Span span_of(int64_t row, int64_t scale, int64_t pinned, int64_t n) {
  if (row < pinned) return {row, row + 1};
  const int64_t from = pinned + (row - pinned) * scale;
  return {from, std::min(from + scale, n)};
}

// The flags of a span's rows; none where all count. Scale 1 hands tokens on as they are.
const bool* flags_of(const ValidRows& valid, int64_t b, const Span& span, int64_t scale) {
  return scale == 1 || !valid.defined() ? nullptr : valid.flags(b) + span.from;
}

template <class Value>
std::vector<Heads<Value>> writing_all(const std::vector<at::Tensor>& tensors) {
  std::vector<Heads<Value>> result;
  for (const at::Tensor& tensor : tensors) result.push_back(writing<Value>(tensor));
  return result;
}

template <class Value>
std::vector<Heads<const Value>> reading_all(const std::vector<at::Tensor>& tensors) {
  std::vector<Heads<const Value>> result;
  for (const at::Tensor& tensor : tensors) result.push_back(reading<Value>(tensor));
  return result;
}

std::vector<at::Tensor> with_rows_all(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) result.push_back(with_rows(tensor));
  return result;
}

// Room of for_heads' workers for the rows of a span and for one row.
template <class Value>
struct PoolRooms {
  std::vector<Value> span, row;
  static std::vector<PoolRooms> of(const std::vector<HeadGroup>& groups, int64_t samples) {
    return std::vector<PoolRooms>(static_cast<size_t>(workers_for(samples * heads_in(groups))));
  }
};

// sum_rows() of rows as they are stored.
template <class Stored, class Value = Computed<Stored>>
int64_t sum_stored(const Stored* x, RowSet set, Value* sum, std::vector<Value>& room) {
  if constexpr (kConverts<Stored>)
    if (has_bf16_512()) return by_512::sum_rows(x, set, sum);
  const auto rows = loaded_rows(x, set.stride, set.rows, set.columns, room);
  set.stride = rows.stride;
  return sum_rows(rows.data, set, sum);
}

// add_to_rows() likewise.
template <class Stored, class Value = Computed<Stored>>
void add_stored(const Value* row, Value factor, const RowSet& set, Stored* out, std::vector<Value>& room) {
  if constexpr (kConverts<Stored>) {
    if (has_bf16_512()) return by_512::add_to_rows(row, factor, set, out);
    Value* const rows = grown(room, set.rows * set.columns);
    widen(set.rows, set.columns, out, set.stride, rows, set.columns);
    add_to_rows(row, factor, {set.rows, set.columns, set.columns, set.flags}, rows);
    narrow(set.rows, set.columns, rows, set.columns, out, set.stride);
  } else {
    add_to_rows(row, factor, set, out);
  }
}

// Means (pools) or, for the gradient of a repetition, sums over each span. `mean`: over valid tokens, where scale > 1.
std::vector<at::Tensor> gather_rows(const at::Tensor& x, const at::Tensor& key_valid,
                                    const std::vector<HeadGroup>& groups, int64_t pinned, bool mean) {
  const int64_t n = x.size(2), d = x.size(3);
  const ValidRows valid(key_valid, n);
  std::vector<at::Tensor> result;
  for (const HeadGroup& group : groups)
    result.push_back(at::empty(
        {x.size(0), static_cast<int64_t>(group.heads.size()), pooled_len(n, group.scale, pinned), d}, x.options()));
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "pool_heads", [&] {
    using Value = Computed<scalar_t>;
    const auto tokens = reading<scalar_t>(x);
    const auto out = writing_all<scalar_t>(result);
    auto rooms = PoolRooms<Value>::of(groups, x.size(0));
    const auto pool = [&](int64_t b, size_t group, int64_t within, int64_t head, int64_t scale, size_t worker) {
      for (int64_t row = 0; row < pooled_len(n, scale, pinned); ++row) {
        const Span span = span_of(row, scale, pinned, n);
        const int64_t size = span.to - span.from;
        scalar_t* const to = out[group].at(b, within, row);
        Value* const sum = place_for(to, d, rooms[worker].row);
        const int64_t count =
            sum_stored(tokens.at(b, head, span.from), RowSet{size, tokens.stride, d, flags_of(valid, b, span, scale)},
                       sum, rooms[worker].span);
        if (mean && count > 1)
          for (int64_t c = 0; c < d; ++c) sum[c] /= static_cast<Value>(count);
        store(sum, d, to);
      }
    };
    for_heads(groups, x.size(0), n * d, pool);
  });
  return result;
}

// Every row to all tokens of its span; `share`: divided among the valid ones, as the gradient of a mean is.
at::Tensor scatter_rows(const std::vector<at::Tensor>& pooled, const at::Tensor& key_valid, int64_t n,
                        const std::vector<HeadGroup>& groups, int64_t pinned, bool share) {
  const int64_t samples = pooled[0].size(0), d = pooled[0].size(3);
  const ValidRows valid(key_valid, n);
  at::Tensor result = at::empty({samples, n, heads_in(groups), d}, pooled[0].options()).transpose(1, 2);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, result.scalar_type(), "repeat_heads", [&] {
    using Value = Computed<scalar_t>;
    const auto rows = reading_all<scalar_t>(pooled);
    const auto out = writing<scalar_t>(result);
    auto rooms = PoolRooms<Value>::of(groups, samples);
    const auto repeat = [&](int64_t b, size_t group, int64_t within, int64_t head, int64_t scale, size_t worker) {
      for (int64_t row = 0; row < pooled_len(n, scale, pinned); ++row) {
        const Span span = span_of(row, scale, pinned, n);
        const bool* const flags = share ? flags_of(valid, b, span, scale) : nullptr;
        const int64_t size = span.to - span.from, count = flags ? std::count(flags, flags + size, true) : size;
        const Value factor = share && count > 1 ? Value(1) / static_cast<Value>(count) : Value(1);
        scalar_t* const to = out.at(b, head, span.from);
        const TileRows<Value> into = rows_for(to, out.stride, size, d, rooms[worker].span);
        spread_row(loaded(rows[group].at(b, within, row), d, rooms[worker].row), factor, {size, into.stride, d, flags},
                   into.data);
        store_rows(into, size, d, to, out.stride);
      }
    };
    for_heads(groups, samples, n * d, repeat);
  });
  return result;
}

at::Tensor pool_beside_forward(const at::Tensor& x, const at::Tensor& key_valid, int64_t scale) {
  return gather_rows(x, key_valid, all_heads(x, scale), 0, true).front();
}
// Adds to the rows that count, where they lie: `past` is a gradient nobody else has (own_rows()). All heads of a span's
// tokens at once, which lie side by side.
void pool_beside_backward(const at::Tensor& gradient, const at::Tensor& past, const at::Tensor& key_valid,
                          int64_t scale) {
  const int64_t samples = gradient.size(0), h = gradient.size(1), m = gradient.size(2), d = gradient.size(3);
  const int64_t n = past.size(2), width = h * d;
  const ValidRows valid(key_valid, n);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, past.scalar_type(), "pool_beside", [&] {
    using Value = Computed<scalar_t>;
    const auto rows = reading<scalar_t>(gradient);
    auto* const out = past.mutable_data_ptr<scalar_t>();
    std::vector<PoolRooms<Value>> rooms(static_cast<size_t>(workers_for(samples * m)));
    for_units(samples * m, scale * width, [&](int64_t unit, int64_t worker) {
      PoolRooms<Value>& room = rooms[static_cast<size_t>(worker)];
      const int64_t b = unit / m, row = unit % m;
      const Span span = span_of(row, scale, 0, n);
      const bool* const flags = flags_of(valid, b, span, scale);
      const int64_t size = span.to - span.from, count = flags ? std::count(flags, flags + size, true) : size;
      if (count == 0) return;
      Value* const own = grown(room.row, width);
      for (int64_t head = 0; head < h; ++head) take(rows.at(b, head, row), d, own + head * d);
      add_stored(own, Value(1) / static_cast<Value>(count), RowSet{size, width, width, flags},
                 out + (b * n + span.from) * width, room.span);
    });
  });
}

std::vector<at::Tensor> pool_forward(const at::Tensor& x, const at::Tensor& key_valid, const GroupLists& groups,
                                     int64_t pinned) {
  return gather_rows(x, key_valid, groups.groups(), pinned, true);
}
at::Tensor pool_backward(const std::vector<at::Tensor>& gradients, const at::Tensor& key_valid, int64_t n,
                         const GroupLists& groups, int64_t pinned) {
  return scatter_rows(gradients, key_valid, n, groups.groups(), pinned, true);
}
at::Tensor repeat_forward(const std::vector<at::Tensor>& pooled, int64_t n, const GroupLists& groups, int64_t pinned) {
  return scatter_rows(pooled, {}, n, groups.groups(), pinned, false);
}
std::vector<at::Tensor> repeat_backward(const at::Tensor& gradient, const GroupLists& groups, int64_t pinned) {
  return gather_rows(gradient, {}, groups.groups(), pinned, false);
}

struct PoolHeadsCall {
  at::Tensor x, key_valid;
  int64_t n, pinned;
  GroupLists groups;

  static constexpr const char* kName = "pool_heads";
  static inline const Operator<pool_forward> kForward{"pool_heads_forward"};
  static inline const Operator<pool_backward> kBackward{"pool_heads_backward"};
  static constexpr bool kReports = true, kTakesBf16 = true;
  static bool takes_half(size_t /*input*/) { return true; }

  [[nodiscard]] variable_list inputs() const { return {x}; }
  variable_list forward() { return kForward(with_rows(std::exchange(x, {})), key_valid, groups, pinned); }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    return {kBackward(with_rows_all(gradients), key_valid, n, groups, pinned)};
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    return pool_heads_reference(in[0], {key_valid, false}, groups.groups(), pinned);
  }
};

// The gradient [b,h,n,d] itself if nobody else has it, whose heads of a token lie side by side, or a copy like that.
at::Tensor own_rows(const at::Tensor& gradient) {
  const bool alone = gradient.use_count() == 1 && gradient.storage().use_count() == 1 && policy() != Policy::kCheck;
  if (alone && gradient.transpose(1, 2).is_contiguous()) return gradient;
  return gradient.transpose(1, 2).clone(at::MemoryFormat::Contiguous).transpose(1, 2);
}

struct PoolBesideCall {
  at::Tensor x, key_valid;
  int64_t scale, n;

  static constexpr const char* kName = "pool_beside";
  static inline const Operator<pool_beside_forward> kForward{"pool_beside_forward"};
  static inline const Operator<pool_beside_backward> kBackward{"pool_beside_backward"};
  static constexpr bool kReports = true, kTakesBf16 = true, kPartialGradients = true;

  [[nodiscard]] variable_list inputs() const { return {x}; }
  variable_list forward() {
    const at::Tensor all = std::exchange(x, {});
    return {kForward(with_rows(all), key_valid, scale), all};
  }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    const at::Tensor &pooled = gradients[0], &past = gradients[1];
    if (!pooled.defined()) return {past};
    if (!past.defined())
      return {PoolHeadsCall::kBackward(with_rows_all({pooled}), key_valid, n, GroupLists::of(all_heads(pooled, scale)),
                                       int64_t{0})};
    const at::Tensor result = own_rows(past);
    kBackward(with_rows(pooled), result, key_valid, scale);
    return {result};
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    return {pool_heads_reference(in[0], {key_valid, false}, all_heads(in[0], scale)).front(), in[0]};
  }
};

struct RepeatHeadsCall {
  std::vector<at::Tensor> pooled;
  int64_t n, pinned;
  GroupLists groups;

  static constexpr const char* kName = "repeat_heads";
  static inline const Operator<repeat_forward> kForward{"repeat_heads_forward"};
  static inline const Operator<repeat_backward> kBackward{"repeat_heads_backward"};
  static constexpr bool kReports = true, kTakesBf16 = true;
  static bool takes_half(size_t /*input*/) { return true; }

  [[nodiscard]] variable_list inputs() const { return pooled; }
  variable_list forward() {
    const std::vector<at::Tensor> rows = with_rows_all(pooled);
    pooled.assign(pooled.size(), at::Tensor());
    return {kForward(rows, n, groups, pinned)};
  }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    return kBackward(with_rows(gradients[0]), groups, pinned);
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    return {repeat_heads_reference(in, n, groups.groups(), pinned)};
  }
};

// A group's heads of [b,h,n,d]; a view where they are evenly spaced.
at::Tensor take_heads(const at::Tensor& x, const std::vector<int64_t>& heads) {
  const int64_t first = heads.front(), stride = heads.size() > 1 ? heads[1] - first : 1;
  for (size_t i = 1; i < heads.size(); ++i)
    if (heads[i] - heads[i - 1] != stride) {
      std::vector<at::Tensor> parts;
      for (const int64_t head : heads) parts.push_back(x.narrow(1, head, 1));
      return at::cat(parts, 1);
    }
  return x.slice(1, first, heads.back() + 1, stride);
}

}  // namespace

std::vector<at::Tensor> pool_heads_reference(const at::Tensor& x, const SequenceMask& mask,
                                             const std::vector<HeadGroup>& groups, int64_t pinned) {
  std::vector<at::Tensor> result;
  for (const HeadGroup& group : groups)
    result.push_back(pool_tokens(take_heads(x, group.heads), mask, group.scale, pinned));
  return result;
}

at::Tensor repeat_heads_reference(const std::vector<at::Tensor>& pooled, int64_t n,
                                  const std::vector<HeadGroup>& groups, int64_t pinned) {
  std::vector<at::Tensor> rows(static_cast<size_t>(heads_in(groups)));  // [b,1,n,d] for each head
  for (size_t g = 0; g < groups.size(); ++g) {
    const at::Tensor repeated = repeat_tokens(pooled[g], n, groups[g].scale, pinned);
    if (groups.size() == 1) return repeated;
    for (size_t i = 0; i < groups[g].heads.size(); ++i)
      rows[static_cast<size_t>(groups[g].heads[i])] = repeated.narrow(1, static_cast<int64_t>(i), 1);
  }
  return at::cat(rows, 1);
}

std::vector<at::Tensor> pool_heads(const at::Tensor& x, const SequenceMask& mask, const std::vector<HeadGroup>& groups,
                                   int64_t pinned) {
  XF_ASSERT(heads_in(groups) == x.size(1), "groups of {} heads for {}", heads_in(groups), x.size(1));
  if (groups.size() == 1 && groups[0].scale == 1) return pool_heads_reference(x, mask, groups, pinned);
  const bool possible = x.is_cpu() || fits_pool_programs({x}, groups);
  return run_fused(PoolHeadsCall{x, mask.key_valid, x.size(2), pinned, GroupLists::of(groups)}, possible);
}

PooledBeside pool_beside(const at::Tensor& x, const SequenceMask& mask, int64_t scale) {
  const PoolBesideCall call{x, mask.key_valid, scale, x.size(2)};
  if (scale == 1 || !x.is_cpu() || !fused_type<PoolBesideCall>(call.inputs()))
    return {pool_heads(x, mask, all_heads(x, scale)).front(), x};
  const variable_list made = run_fused(call);
  return {made[0], made[1]};
}

at::Tensor repeat_heads(const std::vector<at::Tensor>& pooled, int64_t n, const std::vector<HeadGroup>& groups,
                        int64_t pinned) {
  XF_ASSERT(pooled.size() == groups.size(), "{} tensors for {} groups", pooled.size(), groups.size());
  if (groups.size() == 1 && groups[0].scale == 1) return repeat_heads_reference(pooled, n, groups, pinned);
  const bool possible = pooled[0].is_cpu() || fits_pool_programs(pooled, groups);
  return run_fused(RepeatHeadsCall{pooled, n, pinned, GroupLists::of(groups)}, possible)[0];
}

}  // namespace xformer::kernels
