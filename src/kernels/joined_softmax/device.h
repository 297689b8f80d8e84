// The passes of joined_softmax.h on a device, but for the launches themselves: cuda.cpp gives them, tests walk the
// programs. The signatures are those of the operator's kernels for the CPU.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/device/head_tensors.h"
#include "kernels/joined_softmax/program.h"

namespace xformer::kernels {

// Whether a device's programs take so many parts of such rows.
[[nodiscard]] inline bool fits_joined_programs(const std::vector<at::Tensor>& outs, int64_t n) {
  return outs.size() <= kMostJoined && n > 0 && outs[0].numel() > 0 && numbered_by_ints(outs) &&
         std::all_of(outs.begin(), outs.end(), [](const at::Tensor& out) { return out.scalar_type() == at::kFloat; });
}

// Operands as programs read them, which must outlive the launch, and what it is told.
struct JoinedOperands {
  std::vector<at::Tensor> outs;
  JoinedArguments a;

  // log_sums are contiguous.
  JoinedOperands(const std::vector<at::Tensor>& outs_in, const std::vector<at::Tensor>& log_sums, int64_t n) {
    TORCH_CHECK(fits_joined_programs(outs_in, n), "joined_softmax on a device takes floats and at most ", kMostJoined,
                " parts");
    a.parts = static_cast<int>(outs_in.size()), a.e = static_cast<int>(outs_in[0].size(3));
    a.b = outs_in[0].size(0), a.h = outs_in[0].size(1), a.n = a.rows = n;
    for (size_t p = 0; p < outs_in.size(); ++p) {
      outs.push_back(readable_heads(outs_in[p]));
      JoinedPart& part = a.part[p];
      part.out = read_floats(outs[p]), part.places = head_places(outs[p]);
      part.log_sum = read_floats(log_sums[p]), part.rows = outs[p].size(2);
    }
  }
};

// Launch takes JoinedArguments.
template <class Launch>
at::Tensor joined_forward_device(const std::vector<at::Tensor>& outs, const std::vector<at::Tensor>& log_sums,
                                 int64_t n, const Launch& launch) {
  JoinedOperands operands(outs, log_sums, n);
  JoinedArguments& a = operands.a;
  at::Tensor result = rows_of_heads(outs[0], n, a.e);
  a.result = written_floats(result);
  a.wide = a.e % kRun == 0 && reads_wide({result});
  launch(a);
  return result;
}

// Gradients of the outs, then those of the logs of their sums. The same.
template <class Launch>
std::vector<at::Tensor> joined_backward_device(const at::Tensor& gradient_in, const std::vector<at::Tensor>& outs,
                                               const std::vector<at::Tensor>& log_sums, const Launch& launch) {
  JoinedOperands operands(outs, log_sums, gradient_in.size(2));
  JoinedArguments& a = operands.a;
  const at::Tensor gradient = readable_heads(gradient_in);
  a.gradient = read_floats(gradient), a.gradient_places = head_places(gradient);
  std::vector<at::Tensor> result;
  for (const at::Tensor& out : outs) result.push_back(rows_of_heads(out, out.size(2), a.e));
  a.wide = a.e % kRun == 0 && reads_wide(result);
  for (const at::Tensor& log_sum : log_sums) result.push_back(at::empty(log_sum.sizes(), log_sum.options()));
  for (size_t p = 0; p < outs.size(); ++p) {
    JoinedPart& part = a.part[p];
    part.out_gradient = written_floats(result[p]);
    part.log_gradient = written_floats(result[outs.size() + p]);
    a.rows = std::max(a.rows, part.rows);
  }
  launch(a);
  return result;
}

}  // namespace xformer::kernels
