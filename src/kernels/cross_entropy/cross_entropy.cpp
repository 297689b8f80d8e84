#include "kernels/cross_entropy/cross_entropy.h"

#include "kernels/cross_entropy/device.h"
#include "kernels/fused.h"

namespace xformer::kernels {

namespace {

struct CrossEntropyCall {
  ClassRows rows;
  double smoothing;
  at::Tensor gradient;

  static constexpr const char* kName = "cross_entropy";
  static inline const Operator<kNoCpuKernel<CrossEntropyPass>> kForward{"cross_entropy_forward"};
  static constexpr bool kPartialGradients = true;  // nobody differentiates a count

  [[nodiscard]] variable_list inputs() const { return {rows.scores}; }
  variable_list forward() {
    CrossEntropyForward made = kForward(rows, smoothing);
    gradient = made.gradient;
    return {made.loss, made.right};
  }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const { return {gradients[0] * gradient}; }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    const ClassRows again{in[0], rows.labels, rows.row_valid};
    return {cross_entropy_reference(again, smoothing), rows_found_reference(again).to(at::kDouble)};
  }
};

// where, not a product: an empty row must not count even if it is not finite.
at::Tensor sum_of_valid(const at::Tensor& by_row, const at::Tensor& row_valid) {
  return at::where(row_valid > 0, by_row, at::zeros({}, by_row.options())).sum();
}

bool runs_on_device(const ClassRows& rows) { return !rows.scores.is_cpu() && fits_cross_entropy_program(rows); }

}  // namespace

at::Tensor cross_entropy(const ClassRows& rows, double smoothing) {
  if (!runs_on_device(rows)) return cross_entropy_reference(rows, smoothing);
  return run_fused(CrossEntropyCall{rows, smoothing, {}})[0];
}

at::Tensor rows_found(const ClassRows& rows) {
  if (!runs_on_device(rows)) return rows_found_reference(rows);
  const at::NoGradGuard no_grad;
  return run_fused(CrossEntropyCall{rows, 0, {}})[1];
}

at::Tensor cross_entropy_reference(const ClassRows& rows, double smoothing) {
  const at::Tensor by_row = at::cross_entropy_loss(rows.scores, rows.labels, {}, at::Reduction::None, -100, smoothing);
  return sum_of_valid(by_row, rows.row_valid);
}

at::Tensor rows_found_reference(const ClassRows& rows) {
  return sum_of_valid(rows.scores.argmax(-1).eq(rows.labels), rows.row_valid);
}

}  // namespace xformer::kernels
