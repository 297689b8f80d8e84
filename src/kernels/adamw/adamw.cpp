#include "kernels/adamw/adamw.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "kernels/adamw/factors.h"
#include "kernels/cpu/vectorised.h"
#include "kernels/fused.h"
#include "kernels/policy.h"

namespace xformer::kernels {

namespace {

constexpr int64_t kGrain = 16384;  // elements; fewer are not worth another thread

// No branch and no call, so that the compiler vectorises it.
template <class Value>
[[gnu::always_inline]] inline void update_all(const AdamWFactors& f, const Value* gradient, Value* x, Value* m,
                                              Value* v, int64_t count) {
  const Value factor = static_cast<Value>(f.gradient), b1 = static_cast<Value>(f.first_keep);
  const Value a1 = static_cast<Value>(f.first_add), b2 = static_cast<Value>(f.second_keep);
  const Value a2 = static_cast<Value>(f.second_add), decay = static_cast<Value>(f.decay);
  const Value rate = static_cast<Value>(f.rate), root = static_cast<Value>(f.second_root);
  const Value epsilon = static_cast<Value>(f.epsilon);
  for (int64_t i = 0; i < count; ++i) {
    const Value g = gradient[i] * factor;
    m[i] = b1 * m[i] + a1 * g;
    v[i] = b2 * v[i] + a2 * g * g;
    x[i] = decay * x[i] - rate * m[i] / (std::sqrt(v[i]) * root + epsilon);
  }
}

XFORMER_VECTORISED
void update(const AdamWFactors& f, const float* gradient, float* x, float* m, float* v, int64_t count) {
  update_all(f, gradient, x, m, v, count);
}
XFORMER_VECTORISED
void update(const AdamWFactors& f, const double* gradient, double* x, double* m, double* v, int64_t count) {
  update_all(f, gradient, x, m, v, count);
}

void adamw_cpu(const at::Tensor& x, const at::Tensor& gradient, const at::Tensor& m, const at::Tensor& v,
               const AdamWControls& controls, const AdamWConstants& constants) {
  const auto number = [](const at::Tensor& scalar) { return *scalar.const_data_ptr<double>(); };
  if (number(controls.skip) != 0) return;
  const AdamWFactors factors =
      adamw_factors(number(controls.learning_rate), number(controls.beta1), constants.beta2, constants.epsilon,
                    constants.weight_decay, constants.rectified, number(controls.factor), number(controls.step));
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "adamw", [&] {
    const scalar_t* from = gradient.const_data_ptr<scalar_t>();
    scalar_t *into = x.mutable_data_ptr<scalar_t>(), *first = m.mutable_data_ptr<scalar_t>(),
             *second = v.mutable_data_ptr<scalar_t>();
    AdamWFactors undecayed = factors;
    undecayed.decay = 1;
    at::parallel_for(0, x.numel(), kGrain, [&](int64_t begin, int64_t end) {
      const int64_t middle = std::clamp(constants.decayed, begin, end);
      update(factors, from + begin, into + begin, first + begin, second + begin, middle - begin);
      update(undecayed, from + middle, into + middle, first + middle, second + middle, end - middle);
    });
  });
}

const Operator<adamw_cpu> adamw_operator{"adamw"};

}  // namespace

void adamw_reference(const at::Tensor& x, const at::Tensor& gradient, const at::Tensor& m, const at::Tensor& v,
                     const AdamWControls& controls, const AdamWConstants& constants) {
  const at::Tensor& b1 = controls.beta1;
  const at::Tensor skip = controls.skip != 0;
  const double b2 = constants.beta2;
  const at::Tensor g = gradient * controls.factor;
  // A selection, not a product: a skipped gradient may hold anything.
  m.copy_(at::where(skip, m, m * b1 + g * (1 - b1)));
  v.copy_(at::where(skip, v, v * b2 + g.square() * (1 - b2)));
  const at::Tensor first_share = 1 - at::pow(b1, controls.step);
  const at::Tensor second_share = 1 - at::pow(at::full({}, b2, controls.step.options()), controls.step);
  at::Tensor step;
  if (constants.rectified) {
    const double longest = 2 / (1 - b2) - 1;
    const at::Tensor length = longest - 2 * controls.step * (1 - second_share) / second_share;
    const at::Tensor root =
        (second_share * (length - 4) / (longest - 4) * (length - 2) / length * (longest / (longest - 2))).sqrt();
    step = at::where(length >= 5, m / (v.sqrt() + constants.epsilon) * root, m);
  } else {
    step = m / (v.sqrt() * second_share.rsqrt() + constants.epsilon);
  }
  at::Tensor decayed = x.clone();
  decayed.view(-1).slice(0, 0, constants.decayed).mul_(1 - controls.learning_rate * constants.weight_decay);
  const at::Tensor moved = decayed - step * (controls.learning_rate / first_share);
  x.copy_(at::where(skip, x, moved));
}

void adamw(const at::Tensor& x, const at::Tensor& gradient, const at::Tensor& m, const at::Tensor& v,
           const AdamWControls& controls, const AdamWConstants& constants) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& buffer : {x, gradient, m, v})
    XF_ASSERT(buffer.is_contiguous() && buffer.numel() == x.numel() && buffer.scalar_type() == x.scalar_type(),
              "adamw takes contiguous buffers of one size and type");
  const bool fused = adamw_operator.runs_on(x) && fit_kernels({x, gradient, m, v});
  calls_of("adamw").count(x, fused);
  if (!fused) return adamw_reference(x, gradient, m, v, controls, constants);
  if (policy() != Policy::kCheck) return adamw_operator(x, gradient, m, v, controls, constants);

  const at::Tensor meant = x.clone(), first = m.clone(), second = v.clone();
  adamw_reference(meant, gradient, first, second, controls, constants);
  adamw_operator(x, gradient, m, v, controls, constants);
  XF_CHECK(at::allclose(x, meant, 1e-4, 1e-7), InternalError, "xformer::adamw differs from its reference by up to {}",
           (x - meant).abs().max().item<double>());
}

}  // namespace xformer::kernels
