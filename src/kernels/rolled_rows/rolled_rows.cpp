#include "kernels/rolled_rows/rolled_rows.h"

#include <ATen/Dispatch.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/units.h"
#include "kernels/cpu/valid_rows.h"
#include "kernels/fused.h"
#include "kernels/rolled_rows/cpu.h"
#include "kernels/rolled_rows/device.h"
#include "tensor/op_counter.h"

namespace xformer::kernels {

namespace {

constexpr int64_t kRows = 256;  // of a unit of work

// offset mod n in 0 .. n - 1, or the way back.
std::vector<int64_t> steps_of(const std::vector<int64_t>& offsets, int64_t n, bool back) {
  std::vector<int64_t> result;
  for (const int64_t offset : offsets) result.push_back(step_of(back ? -offset : offset, n));
  return result;
}

// Some neighbouring rows of a sample.
struct RolledUnit {
  RolledLinks of;
  int64_t b, first, last;
  size_t worker;

  // Of the sample in [b,n,width], and of the unit's own rows.
  [[nodiscard]] int64_t sample(int64_t width) const { return b * of.n * width; }
  [[nodiscard]] int64_t own(int64_t width) const { return sample(width) + first * width; }
};

int64_t units_of(const at::Tensor& v) { return v.size(0) * ((v.size(1) + kRows - 1) / kRows); }

// work(unit) over samples and rows.
template <class Work>
void for_rows(const at::Tensor& v, const std::vector<int64_t>& steps, const RolledRowsOptions& options,
              const ValidRows& valid, const Work& work) {
  const int64_t n = v.size(1), links = static_cast<int64_t>(steps.size()), parts = (n + kRows - 1) / kRows;
  for_units(units_of(v), kRows * v.size(2) * links, [&](int64_t unit, int64_t worker) {
    const int64_t b = unit / parts, first = unit % parts * kRows;
    std::vector<int64_t> there(steps.size());
    const bool* const flags = valid.defined() ? valid.flags(b) : nullptr;
    const RolledLinks of{n, v.size(2), links, steps.data(), flags, options.residual, there.data()};
    work(RolledUnit{of, b, first, std::min(n, first + kRows), static_cast<size_t>(worker)});
  });
}

// Stores what compute(place) writes there, the unit's rows of to [b,n,width]. What these read lies far off, and is
// widened where it is read.
template <class Stored, class Compute>
void compute_rows(const RolledUnit& unit, Stored* to, int64_t width, std::vector<std::vector<Computed<Stored>>>& rooms,
                  const Compute& compute) {
  const int64_t count = (unit.last - unit.first) * width;
  Stored* const own = to + unit.own(width);
  Computed<Stored>* const made = place_for(own, count, rooms[unit.worker]);
  compute(made);
  store(made, count, own);
}

int64_t multiply_adds(const at::Tensor& v, const RolledRowsOptions& options, const ValidRows& valid) {
  int64_t rows = 0;
  for (int64_t b = 0; b < v.size(0); ++b)
    for (int64_t i = 0; i < v.size(1); ++i) rows += valid.at(b, i) ? 1 : 0;
  return rows * v.size(2) * static_cast<int64_t>(options.offsets.size());
}

at::Tensor rolled_forward(const at::Tensor& v, const at::Tensor& w, const RolledRowsOptions& options) {
  const ValidRows valid(options.valid, v.size(1));
  const std::vector<int64_t> steps = steps_of(options.offsets, v.size(1), false);
  at::Tensor result = at::empty_like(v);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, v.scalar_type(), "rolled_rows", [&] {
    const auto* const rows = v.const_data_ptr<scalar_t>();
    const auto* const weights = w.const_data_ptr<scalar_t>();
    auto* const out = result.mutable_data_ptr<scalar_t>();
    std::vector<std::vector<Computed<scalar_t>>> rooms(static_cast<size_t>(workers_for(units_of(v))));
    for_rows(v, steps, options, valid, [&](const RolledUnit& unit) {
      const RolledLinks& of = unit.of;
      compute_rows(unit, out, of.columns, rooms, [&](auto* made) {
        mix_rolled(of, rows + unit.sample(of.columns), weights + unit.sample(of.links), unit.first, unit.last, made);
      });
    });
  });
  const int64_t read = multiply_adds(v, options, valid);  // elements of links
  add_executed_flops(2 * read);
  add_gathered_bytes(read * v.element_size());
  return result;
}

RolledGradients rolled_backward(const at::Tensor& gradient, const at::Tensor& v, const at::Tensor& w,
                                const RolledRowsOptions& options) {
  const ValidRows valid(options.valid, v.size(1));
  const std::vector<int64_t> steps = steps_of(options.offsets, v.size(1), false),
                             back = steps_of(options.offsets, v.size(1), true);
  RolledGradients result{at::empty_like(v), at::empty_like(w)};
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, v.scalar_type(), "rolled_rows_backward", [&] {
    const auto* const rows = v.const_data_ptr<scalar_t>();
    const auto* const weights = w.const_data_ptr<scalar_t>();
    const auto* const slopes = gradient.const_data_ptr<scalar_t>();
    auto* const dv = result.v.mutable_data_ptr<scalar_t>();
    auto* const dw = result.w.mutable_data_ptr<scalar_t>();
    std::vector<std::vector<Computed<scalar_t>>> rooms(static_cast<size_t>(workers_for(units_of(v))));
    for_rows(v, steps, options, valid, [&](const RolledUnit& unit) {
      const RolledLinks& of = unit.of;
      const int64_t sample = unit.sample(of.columns), first = unit.first, last = unit.last;
      RolledLinks returning = of;
      returning.steps = back.data();
      compute_rows(unit, dv, of.columns, rooms, [&](auto* made) {
        spread_rolled(returning, slopes + sample, weights + unit.sample(of.links), first, last, made);
      });
      compute_rows(unit, dw, of.links, rooms,
                   [&](auto* made) { weight_slopes(of, slopes + sample, rows + sample, first, last, made); });
    });
  });
  const int64_t read = multiply_adds(v, options, valid);
  add_executed_flops(4 * read);
  add_gathered_bytes(2 * read * v.element_size());  // of the gradient on the way back, and of v beside it
  return result;
}

struct RolledRowsCall {
  at::Tensor v, w;
  RolledRowsOptions options;

  static constexpr const char* kName = "rolled_rows";
  static inline const Operator<rolled_forward> kForward{"rolled_rows_forward"};
  static inline const Operator<rolled_backward> kBackward{"rolled_rows_backward"};
  static constexpr bool kTakesBf16 = true;

  [[nodiscard]] variable_list inputs() const { return {v, w}; }
  variable_list forward() {
    v = v.contiguous(), w = w.contiguous();
    count_links(1);
    return {kForward(v, w, options)};
  }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    count_links(2);
    return tensors_of(kBackward(gradients[0].contiguous(), v, w, options));
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    return {rolled_rows_reference(in[0], in[1], options)};
  }
  // How often each link is followed; the CPU's kernels count themselves.
  void count_links(int64_t times) const {
    if (v.is_cpu()) return;
    const int64_t read = times * v.numel() * w.size(2);
    add_executed_flops(2 * read);
    add_gathered_bytes(read * v.element_size());
  }
};

}  // namespace

at::Tensor rolled_rows_reference(const at::Tensor& v, const at::Tensor& w, const RolledRowsOptions& options) {
  at::Tensor result = options.residual ? v : at::zeros_like(v);
  for (size_t p = 0; p < options.offsets.size(); ++p)
    result = result + w.narrow(2, static_cast<int64_t>(p), 1) * v.roll(-options.offsets[p], 1);
  return options.valid.defined() ? at::where(options.valid.unsqueeze(-1), result, 0) : result;
}

at::Tensor rolled_rows(const at::Tensor& v, const at::Tensor& w, const RolledRowsOptions& options) {
  XF_ASSERT(v.dim() == 3 && w.dim() == 3 && w.size(1) == v.size(1) &&
                w.size(2) == static_cast<int64_t>(options.offsets.size()),
            "rolled_rows takes [b,n,e] and [b,n,{}]", options.offsets.size());
  const bool possible = v.is_cpu() || fits_rolled_programs(v, w);
  return run_fused(RolledRowsCall{v, w, options}, possible)[0];
}

}  // namespace xformer::kernels
