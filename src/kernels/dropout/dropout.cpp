// The operator xformer::dropout(x, p, state, site) and the layer that uses it.
#include "kernels/dropout/dropout.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>

#include <mutex>
#include <utility>

#include "core/error.h"
#include "core/random.h"
#include "kernels/dropout/cpu.h"
#include "kernels/dropout/numbers.h"
#include "kernels/fused.h"
#include "kernels/policy.h"

namespace xformer::kernels {

namespace {

const Operator<dropout_cpu> dropout_operator{"dropout"};

// The gradient of y = m * x is m * dy: the same operator at the same place. Saving `state` as a variable
// makes LibTorch refuse a backward pass after the next step's numbers were written into it.
struct DropoutFunction : torch::autograd::Function<DropoutFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, double p,
                            const at::Tensor& state, int64_t site) {
    context->save_for_backward({state});
    context->saved_data["p"] = p;
    context->saved_data["site"] = site;
    return dropout_operator(x, p, state, site);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor state = context->get_saved_variables()[0];
    const double p = context->saved_data["p"].toDouble();
    const int64_t site = context->saved_data["site"].toInt();
    return {dropout(gradients[0], p, state, site), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

void check_p(double p) { XF_CHECK(p >= 0 && p < 1, UserError, "a dropout probability is in [0, 1), not {}", p); }

}  // namespace

DropoutStream::DropoutStream(uint64_t seed)
    : state(at::tensor({static_cast<int64_t>(derive_seed(seed, "dropout")), int64_t{0}, int64_t{0}}, at::kLong)),
      key_(derive_seed(seed, "dropout")) {
  set_step(0);
}

void DropoutStream::to(const at::Device& device) { state = state.to(device); }

void DropoutStream::set_step(int64_t step, int64_t first_row) {
  XF_ASSERT(step >= 0 && step < kMostSteps, "step {}", step);
  // Filled by the device itself: a copy from the host would wait for it.
  state.select(0, 1).fill_(step);
  set_first_row(first_row);
  seed_library(step);
}

void DropoutStream::take_step(const at::Tensor& step) {
  const at::NoGradGuard no_grad;
  state.select(0, 1).copy_(step);
}

void DropoutStream::seed_library(int64_t step) const {
  const PhiloxBlock block = philox(key_, static_cast<uint64_t>(step), 0);
  at::Generator generator = at::globalContext().defaultGenerator(state.device());
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(uint64_t{block[1]} << 32 | block[0]);
}

void DropoutStream::set_first_row(int64_t first_row) {
  XF_ASSERT(first_row >= 0, "first row {}", first_row);
  state.select(0, 2).fill_(first_row);
}

at::Tensor dropout(const at::Tensor& x, double p, const at::Tensor& state, int64_t site) {
  check_p(p);
  XF_ASSERT(site >= 0 && site < kMostSites && x.dim() >= 1, "site {}, {} dimensions", site, x.dim());
  if (dropout_threshold(p) == 0) return x;
  const bool fused = policy() != Policy::kReference && dropout_operator.runs_on(x);
  calls_of("dropout").count(x, fused);
  if (!fused) return dropout_reference(x, p, state, site);
  const at::Tensor result = DropoutFunction::apply(x, p, state, site);
  if (policy() == Policy::kCheck) {
    const at::Tensor meant = dropout_reference(x.detach(), p, state, site), got = result.detach();
    const at::Tensor same = (got == meant).logical_or(got.isnan().logical_and(meant.isnan()));
    XF_CHECK(same.all().item<bool>(), InternalError,
             "xformer::dropout on {} differs from its reference in {} of {} elements", x.device().str(),
             same.logical_not().sum().item<int64_t>(), x.numel());
  }
  return result;
}

Dropout::Dropout(double p, std::shared_ptr<DropoutStream> stream) : p_(p), stream_(std::move(stream)) {
  check_p(p);
  XF_ASSERT(stream_ != nullptr, "dropout without a stream");
  site_ = stream_->sites++;
}

DropoutPlace Dropout::place(bool training) const {
  if (!training || p_ == 0) return {};
  return {p_, stream_->state, site_};
}

}  // namespace xformer::kernels
