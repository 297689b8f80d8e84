#include "kernels/joined_softmax/joined_softmax.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/cpu/heads.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/units.h"
#include "kernels/fused.h"
#include "kernels/joined_softmax/cpu.h"
#include "kernels/joined_softmax/device.h"
#include "tensor/probe.h"

namespace xformer::kernels {

namespace {

constexpr int64_t kJoinedRows = 64;  // of a block

using Tensors = std::vector<at::Tensor>;

Tensors with_rows_of(const Tensors& given) {
  Tensors result;
  for (const at::Tensor& one : given) result.push_back(with_rows(one));
  return result;
}

// work(b, h, first row, rows, worker) for blocks of the first n rows.
template <class Work>
void for_blocks(int64_t b, int64_t h, int64_t n, int64_t size, const Work& work) {
  const int64_t blocks = (n + kJoinedRows - 1) / kJoinedRows;
  for_units(b * h * blocks, kJoinedRows * size, [&](int64_t unit, int64_t worker) {
    const int64_t first = unit % blocks * kJoinedRows;
    work(unit / blocks / h, unit / blocks % h, first, std::min(kJoinedRows, n - first), static_cast<size_t>(worker));
  });
}

// What a worker needs: the shares of a block, twice, and room beside them; rows that are widened, or computed before
// they are stored.
template <class Stored>
struct JoinScratch {
  using Value = Computed<Stored>;
  explicit JoinScratch(size_t parts)
      : shares(2 * parts * kJoinedRows), room(2 * kJoinedRows), rows(parts), to(parts), read(parts), made(parts) {}
  std::vector<Value> shares, room, whole;
  std::vector<TileRows<const Value>> rows;
  std::vector<TileRows<Value>> to;
  std::vector<std::vector<Value>> read, made;  // of each part
};

// The shares of a block's rows of e, and where the parts' rows are.
template <class Stored>
void read_block(const std::vector<Heads<const Stored>>& outs, const Tensors& log_sums, int64_t b, int64_t h,
                int64_t first, int64_t count, int64_t e, JoinScratch<Stored>& mine) {
  using Value = Computed<Stored>;
  for (size_t i = 0; i < outs.size(); ++i) {
    mine.rows[i] = loaded_rows(outs[i].at(b, h, first), outs[i].stride, count, e, mine.read[i]);
    const Value* const logs =
        log_sums[i].const_data_ptr<Value>() + (b * log_sums[i].size(1) + h) * log_sums[i].size(2) + first;
    std::copy_n(logs, count, mine.shares.data() + static_cast<int64_t>(i) * count);
  }
  shares_of(static_cast<int64_t>(outs.size()), count, mine.shares.data(), mine.room.data());
}

template <class Value>
std::vector<Heads<const Value>> reading_parts(const Tensors& parts) {
  std::vector<Heads<const Value>> result;
  for (const at::Tensor& part : parts) result.push_back(reading<Value>(part));
  return result;
}

// log_sums are contiguous, and float where outs are bf16.
at::Tensor join_forward(const Tensors& outs_in, const Tensors& log_sums, int64_t n) {
  const Tensors outs = with_rows_of(outs_in);
  const auto parts = static_cast<int64_t>(outs.size());
  const int64_t b = outs[0].size(0), h = outs[0].size(1), e = outs[0].size(3);
  const at::Tensor result = new_heads(outs[0], n, e);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, result.scalar_type(), "joined_softmax", [&] {
    const auto from = reading_parts<scalar_t>(outs);
    const auto to = writing<scalar_t>(result);
    std::vector<JoinScratch<scalar_t>> scratch(static_cast<size_t>(workers_for(b * h * n)),
                                               JoinScratch<scalar_t>(outs.size()));
    for_blocks(b, h, n, parts * e, [&](int64_t sample, int64_t head, int64_t first, int64_t count, size_t worker) {
      JoinScratch<scalar_t>& mine = scratch[worker];
      read_block(from, log_sums, sample, head, first, count, e, mine);
      scalar_t* const out = to.at(sample, head, first);
      const TileRows<Computed<scalar_t>> made = rows_for(out, to.stride, count, e, mine.whole);
      join_rows(mine.rows.data(), parts, count, e, mine.shares.data(), made);
      store_rows(made, count, e, out, to.stride);
    });
  });
  return result;
}

// Gradients of the outs, then those of the logs of their sums; zero behind row n.
Tensors join_backward(const at::Tensor& gradient_in, const Tensors& outs_in, const Tensors& log_sums) {
  const at::Tensor gradient = with_rows(gradient_in);
  const Tensors outs = with_rows_of(outs_in);
  const auto parts = static_cast<int64_t>(outs.size());
  const int64_t b = outs[0].size(0), h = outs[0].size(1), n = gradient.size(2), e = outs[0].size(3);
  Tensors result;
  for (const at::Tensor& out : outs) {
    result.push_back(new_heads(out, out.size(2), e));
    if (out.size(2) > n) result.back().narrow(2, n, out.size(2) - n).zero_();
  }
  for (const at::Tensor& log_sum : log_sums) {
    result.push_back(at::empty(log_sum.sizes(), log_sum.options()));
    if (log_sum.size(2) > n) result.back().narrow(2, n, log_sum.size(2) - n).zero_();
  }
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, gradient.scalar_type(), "joined_softmax_backward", [&] {
    const auto from = reading_parts<scalar_t>(outs);
    const auto slopes = reading<scalar_t>(gradient);
    using Value = Computed<scalar_t>;
    std::vector<Heads<scalar_t>> to;
    std::vector<Heads<Value>> to_logs;
    for (size_t i = 0; i < outs.size(); ++i) {
      to.push_back(writing<scalar_t>(result[i]));
      to_logs.push_back(writing<Value>(result[outs.size() + i]));
    }
    std::vector<JoinScratch<scalar_t>> scratch(static_cast<size_t>(workers_for(b * h * n)),
                                               JoinScratch<scalar_t>(outs.size()));
    for_blocks(b, h, n, 2 * parts * e, [&](int64_t sample, int64_t head, int64_t first, int64_t count, size_t worker) {
      JoinScratch<scalar_t>& mine = scratch[worker];
      read_block(from, log_sums, sample, head, first, count, e, mine);
      for (size_t i = 0; i < to.size(); ++i)
        mine.to[i] = rows_for(to[i].at(sample, head, first), to[i].stride, count, e, mine.made[i]);
      part_rows(loaded_rows(slopes.at(sample, head, first), slopes.stride, count, e, mine.whole), mine.rows.data(),
                parts, count, e, mine.shares.data(), mine.to.data(), mine.room.data());
      for (size_t i = 0; i < to.size(); ++i) {
        store_rows(mine.to[i], count, e, to[i].at(sample, head, first), to[i].stride);
        std::copy_n(mine.shares.data() + static_cast<int64_t>(i) * count, count, to_logs[i].at(sample, head, first));
      }
    });
  });
  return result;
}

struct JoinedSoftmaxCall {
  Tensors outs, log_sums;
  int64_t n;

  static constexpr const char* kName = "joined_softmax";
  static inline const Operator<join_forward> kForward{"joined_softmax_forward"};
  static inline const Operator<join_backward> kBackward{"joined_softmax_backward"};
  static constexpr bool kReports = true, kTakesBf16 = true;

  // Each out, and behind it the log of its sum, so that the place says which is which, whatever their number.
  static bool is_parameter(size_t input) { return input % 2 == 1; }
  [[nodiscard]] variable_list inputs() const { return by_parts(outs, log_sums); }
  variable_list forward() {
    for (at::Tensor& log_sum : log_sums) log_sum = log_sum.contiguous();
    return {kForward(outs, log_sums, n)};
  }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    const Tensors found = kBackward(gradients[0], outs, log_sums);
    const auto middle = found.begin() + static_cast<std::ptrdiff_t>(outs.size());
    return by_parts({found.begin(), middle}, {middle, found.end()});
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    Tensors rows, logs;
    for (size_t i = 0; i < in.size(); ++i) (is_parameter(i) ? logs : rows).push_back(in[i]);
    return {joined_softmax_reference(rows, logs, n)};
  }
  [[nodiscard]] static variable_list by_parts(const Tensors& of_outs, const Tensors& of_logs) {
    variable_list result;
    for (size_t i = 0; i < of_outs.size(); ++i) result.push_back(of_outs[i]), result.push_back(of_logs[i]);
    return result;
  }
};

}  // namespace

at::Tensor joined_softmax_reference(const Tensors& outs, const Tensors& log_sums, int64_t n) {
  const auto rows = [&](const at::Tensor& x) { return x.size(2) == n ? x : x.narrow(2, 0, n); };
  Tensors logs;
  for (const at::Tensor& log_sum : log_sums) logs.push_back(rows(log_sum));
  const at::Tensor shares = at::softmax(at::cat(logs, -1), -1);  // [b,h,n,parts]
  probe("shares", shares);
  at::Tensor result;
  for (size_t i = 0; i < outs.size(); ++i) {
    const at::Tensor share = shares.narrow(-1, static_cast<int64_t>(i), 1), out = rows(outs[i]);
    result = result.defined() ? at::addcmul(result, out, share) : out * share;
  }
  return result;
}

at::Tensor joined_softmax(const Tensors& outs, const Tensors& log_sums, int64_t n) {
  bool fits = !outs.empty() && outs.size() == log_sums.size();
  for (size_t i = 0; fits && i < outs.size(); ++i)
    fits = outs[i].dim() == 4 && outs[i].size(2) >= n && outs[i].size(3) == outs[0].size(3) &&
           log_sums[i].sizes() == at::IntArrayRef({outs[0].size(0), outs[0].size(1), outs[i].size(2), 1});
  XF_ASSERT(fits, "joined_softmax takes as many outs [b,h,m,e] as log_sums [b,h,m,1], of {} rows or more", n);
  const bool possible = outs[0].is_cpu() || fits_joined_programs(outs, n);
  return run_fused(JoinedSoftmaxCall{outs, log_sums, n}, possible)[0];
}

}  // namespace xformer::kernels
