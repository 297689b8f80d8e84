#include "kernels/running_max/running_max.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/error.h"
#include "kernels/cpu/heads.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/units.h"
#include "kernels/fused.h"
#include "kernels/running_max/cpu.h"
#include "kernels/running_max/device.h"
#include "kernels/window_attention/window_attention.h"

namespace xformer::kernels {

namespace {

// Columns are worked on side by side, as their cells lie in memory.
constexpr int64_t kMostLanes = 8, kPlacesAhead = 3;

// Rows or columns of one head's cells, in the order in which maxima run: `count` of them, `between` cells apart.
struct Lanes {
  int64_t first, step, cells, count, between;

  [[nodiscard]] int64_t cell(int64_t place, int64_t lane) const { return first + place * step + lane * between; }
  // Asks for the numbers of a place, which need not be there: between two of them lie other lanes'.
  template <class Value>
  [[gnu::always_inline]] void fetch(const Value* head, int64_t place, int64_t d) const {
    for (int64_t lane = 0; lane < count; ++lane) fetch_row(head + cell(place, lane) * d, d);
  }
  // Whether all cells of a place are so: they are neighbours in memory, so that one loop does for them.
  template <class Is>
  [[nodiscard]] bool together(const Is& is) const {
    bool all = true;
    for (int64_t lane = 0; all && lane < count; ++lane) all = is(lane);
    return all;
  }
};

// work(offset of the head's numbers, valid flags of the sample's cells, lanes, worker)
template <class Work>
void for_lanes(const at::Tensor& x, const RunningMaxOptions& options, const at::Tensor& valid, const Work& work) {
  const int64_t h = x.size(1), rows = x.size(2), columns = x.size(3), d = x.size(4);
  const int64_t lanes = options.down ? columns : rows, cells = options.down ? rows : columns;
  const int64_t step = options.down ? columns : 1, between = options.down ? 1 : columns;
  const int64_t at_once = options.down ? kMostLanes : 1, blocks = (lanes + at_once - 1) / at_once;
  for_units(x.size(0) * h * blocks, at_once * cells * d, [&](int64_t unit, int64_t worker) {
    const int64_t head = unit / blocks, lane = unit % blocks * at_once, begin = lane * between;
    const int64_t count = std::min(at_once, lanes - lane);
    const Lanes own = options.behind ? Lanes{begin + (cells - 1) * step, -step, cells, count, between}
                                     : Lanes{begin, step, cells, count, between};
    work(head * rows * columns * d, valid.const_data_ptr<bool>() + head / h * rows * columns, own, worker);
  });
}

// As larger_of(), of what is there: nullptr is nothing, and of nothing comes 0.
template <class Value>
void larger_of_any(const Value* own, const Value* before, int64_t count, Value* out) {
  if (before == nullptr && own == nullptr) std::fill_n(out, count, Value(0));
  else if (own == nullptr) std::copy_n(before, count, out);
  else if (before == nullptr) std::copy_n(own, count, out);
  else larger_of(own, before, count, out);
}

at::Tensor running_max_forward(const at::Tensor& x, const RunningMaxOptions& options) {
  const at::Tensor valid = options.valid.contiguous();
  const int64_t d = x.size(4);
  at::Tensor result = at::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "running_max", [&] {
    const auto* const from = x.const_data_ptr<scalar_t>();
    auto* const to = result.mutable_data_ptr<scalar_t>();
    for_lanes(x, options, valid, [&](int64_t head, const bool* counts, const Lanes& lanes, int64_t) {
      std::array<const scalar_t*, kMostLanes> before{};  // the result at the last cell, where some cell counted before
      std::array<const scalar_t*, kMostLanes> own{};     // that cell's own numbers, where it counts
      const auto both = [&](int64_t l) {
        return before[static_cast<size_t>(l)] != nullptr && own[static_cast<size_t>(l)] != nullptr;
      };
      for (int64_t i = 0; i < lanes.cells; ++i) {
        lanes.fetch(from + head, i + kPlacesAhead, d);
        const bool together = lanes.together(both);
        if (together) larger_of(own[0], before[0], lanes.count * d, to + head + lanes.cell(i, 0) * d);
        for (int64_t l = 0; l < lanes.count; ++l) {
          const int64_t cell = lanes.cell(i, l);
          const auto lane = static_cast<size_t>(l);
          scalar_t* const out = to + head + cell * d;
          if (!together) larger_of_any(own[lane], before[lane], d, out);
          if (before[lane] != nullptr || own[lane] != nullptr) before[lane] = out;
          own[lane] = counts[cell] ? from + head + cell * d : nullptr;
        }
      }
    });
  });
  return result;
}

at::Tensor running_max_backward(const at::Tensor& gradient, const at::Tensor& x, const RunningMaxOptions& options) {
  const at::Tensor valid = options.valid.contiguous();
  const int64_t d = x.size(4);
  at::Tensor result = at::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "running_max_backward", [&] {
    using Value = Computed<scalar_t>;
    struct Scratch {
      std::vector<Value> sums;
      std::vector<scalar_t> largest;
    };
    std::vector<Scratch> scratch(static_cast<size_t>(workers_for(x.numel())));
    const auto* const values = x.const_data_ptr<scalar_t>();
    const auto* const slopes = gradient.const_data_ptr<scalar_t>();
    auto* const to = result.mutable_data_ptr<scalar_t>();
    for_lanes(x, options, valid, [&](int64_t head, const bool* counts, const Lanes& lanes, int64_t worker) {
      Scratch& mine = scratch[static_cast<size_t>(worker)];
      const int64_t size = lanes.count * d;
      Value* const all_sums = grown(mine.sums, size);
      // The largest before every cell of all lanes, in their order.
      scalar_t* const room = grown(mine.largest, (lanes.cells + 1) * size);
      std::fill_n(all_sums, size, Value(0));
      std::fill_n(room, size, scalar_t(0));
      std::array<int64_t, kMostLanes> begin{};  // the first cell that counts
      for (int64_t l = 0; l < lanes.count; ++l) begin[static_cast<size_t>(l)] = lanes.cells;
      // Whether each lane's cell counts, and one before it does.
      const auto all_run = [&](int64_t i) {
        return lanes.together([&](int64_t l) { return counts[lanes.cell(i, l)] && begin[static_cast<size_t>(l)] < i; });
      };
      for (int64_t i = 0; i < lanes.cells; ++i) {
        const int64_t place = head + lanes.cell(i, 0) * d;
        scalar_t *const all_before = room + i * size, *const all_after = all_before + size;
        lanes.fetch(values + head, i + kPlacesAhead, d);
        if (all_run(i)) {
          larger_of(values + place, all_before, size, all_after);
          continue;
        }
        for (int64_t l = 0; l < lanes.count; ++l) {
          const int64_t cell = lanes.cell(i, l);
          const scalar_t *const own = values + head + cell * d, *const before = all_before + l * d;
          scalar_t* const after = all_after + l * d;
          int64_t& first = begin[static_cast<size_t>(l)];
          if (!counts[cell]) std::copy_n(before, d, after);
          else if (first == lanes.cells) std::copy_n(own, d, after), first = i;
          else larger_of(own, before, d, after);
        }
      }
      // On the way back a cell that is the largest so far takes what the cells behind it have left.
      for (int64_t i = lanes.cells - 1; i >= 0; --i) {
        const int64_t place = head + lanes.cell(i, 0) * d;
        const scalar_t* const all_before = room + i * size;
        lanes.fetch(slopes + head, i - kPlacesAhead, d);
        if (all_run(i)) {
          take_slopes(values + place, all_before, slopes + place, size, all_sums, to + place);
          continue;
        }
        for (int64_t l = 0; l < lanes.count; ++l) {
          const int64_t cell = lanes.cell(i, l), first = begin[static_cast<size_t>(l)];
          Value* const sums = all_sums + l * d;
          const scalar_t* const slope = slopes + head + cell * d;
          scalar_t* const out = to + head + cell * d;
          if (i > first && counts[cell]) {
            take_slopes(values + head + cell * d, all_before + l * d, slope, d, sums, out);
            continue;
          }
          if (i == first) put(sums, d, out);
          else std::fill_n(out, d, scalar_t(0));
          for (int64_t c = 0; c < d; ++c) sums[c] += static_cast<Value>(slope[c]);
        }
      }
    });
  });
  return result;
}

struct RunningMaxCall {
  at::Tensor x;
  RunningMaxOptions options;

  static constexpr const char* kName = "running_max";
  static inline const Operator<running_max_forward> kForward{"running_max_forward"};
  static inline const Operator<running_max_backward> kBackward{"running_max_backward"};
  static constexpr bool kTakesBf16 = true;

  [[nodiscard]] variable_list inputs() const { return {x}; }
  variable_list forward() {
    x = x.contiguous();
    return {kForward(x, options)};
  }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    return {kBackward(gradients[0].contiguous(), x, options)};
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    return {running_max_reference(in[0], options)};
  }
};

}  // namespace

at::Tensor running_max_reference(const at::Tensor& x, const RunningMaxOptions& options) {
  const int64_t dim = options.down ? 2 : 3, rest = x.size(dim) - 1;
  const auto turned = [&](const at::Tensor& cells) { return options.behind ? cells.flip(dim) : cells; };
  // What has run up to the cell before each one, 0 in front of the first.
  const auto before = [&](const at::Tensor& sums) {
    const at::Tensor none = at::zeros_like(sums.narrow(dim, 0, 1));
    return turned(at::cat({none, sums.narrow(dim, 0, rest)}, dim));
  };
  const at::Tensor valid = options.valid.unsqueeze(1).unsqueeze(-1);
  const at::Tensor cells = turned(at::where(valid, x, lowest_log_sum(x.scalar_type())));
  const at::Tensor count = before(turned(valid).to(at::kLong).cumsum(dim));
  return at::where(count.gt(0), before(std::get<0>(at::cummax(cells, dim))), 0);
}

at::Tensor running_max(const at::Tensor& x, const RunningMaxOptions& options) {
  XF_ASSERT(x.dim() == 5 && options.valid.sizes() == at::IntArrayRef({x.size(0), x.size(2), x.size(3)}),
            "running_max takes [b,h,R,C,d] and valid cells [b,R,C]");
  return run_fused(RunningMaxCall{x, options}, x.is_cpu() || fits_running_max_program(x))[0];
}

}  // namespace xformer::kernels
