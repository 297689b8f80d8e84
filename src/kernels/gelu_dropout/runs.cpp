// Runs of elements of gelu_dropout that lie in the cache.
#include "kernels/cpu/vector_math.h"
#include "kernels/cpu/vectorised.h"
#include "kernels/gelu_dropout/cpu.h"

namespace xformer::kernels {

namespace {

// With s(x) the normal share below x, or in the tanh form the logistic function of 2 sqrt(2/pi) (x + 0.044715 x^3):
// gelu(x) = x s(x), and its slope is s(x) + x s'(x).
template <class Value>
[[gnu::always_inline]] inline Value logistic_share(Value x, Value& slope) {
  constexpr auto kFactor = static_cast<Value>(1.59576912160573071176), kCubic = static_cast<Value>(0.044715);
  const Value share = 1 / (1 + exp_of(-kFactor * (x + kCubic * x * x * x)));
  slope = share * (1 - share) * kFactor * (1 + 3 * kCubic * x * x);
  return share;
}

template <bool kTanh, class Value>
[[gnu::always_inline]] inline Value gelu_at(Value x) {
  Value slope;
  if constexpr (kTanh) return x * logistic_share(x, slope);
  else return x * normal_at(x).share;
}

template <bool kTanh, class Value>
[[gnu::always_inline]] inline Value slope_at(Value x) {
  if constexpr (kTanh) {
    Value slope;
    const Value share = logistic_share(x, slope);
    return share + x * slope;
  } else {
    const NormalAt<Value> normal = normal_at(x);
    return normal.share + x * normal.density;
  }
}

template <bool kTanh, class Value>
[[gnu::always_inline]] inline void forward_of(const GeluRun<Value>& run, const Value* __restrict x,
                                              Value* __restrict out) {
  const int64_t count = run.count;
  for (int64_t i = 0; i < count; ++i) out[i] = gelu_at<kTanh>(x[i]);
  if (run.draws == nullptr) return;
  const uint16_t* __restrict draws = run.draws;
  const uint32_t threshold = run.threshold;
  const Value keep = run.keep;
  for (int64_t i = 0; i < count; ++i) {
    const Value kept = out[i] * keep;
    out[i] = draws[i] < threshold ? Value(0) : kept;
  }
}

template <bool kTanh, class Value>
[[gnu::always_inline]] inline void backward_of(const GeluRun<Value>& run, const Value* __restrict x,
                                               const Value* __restrict gradient, Value* __restrict x_gradient) {
  const int64_t count = run.count;
  for (int64_t i = 0; i < count; ++i) x_gradient[i] = gradient[i] * slope_at<kTanh>(x[i]);
  if (run.draws == nullptr) return;
  const uint16_t* __restrict draws = run.draws;
  const uint32_t threshold = run.threshold;
  const Value keep = run.keep;
  for (int64_t i = 0; i < count; ++i) {
    const Value kept = x_gradient[i] * keep;
    x_gradient[i] = draws[i] < threshold ? Value(0) : kept;
  }
}

template <bool kTanh, class Value>
[[gnu::always_inline]] inline void both_of(const GeluRun<Value>& run, const Value* __restrict x, Value* __restrict out,
                                           Value* __restrict gradient) {
  const int64_t count = run.count;
  for (int64_t i = 0; i < count; ++i) {
    Value share, slope;
    if constexpr (kTanh) {
      share = logistic_share(x[i], slope);
    } else {
      const NormalAt<Value> normal = normal_at(x[i]);
      share = normal.share;
      slope = normal.density;
    }
    out[i] = x[i] * share;
    gradient[i] *= share + x[i] * slope;
  }
  if (run.draws == nullptr) return;
  const uint16_t* __restrict draws = run.draws;
  const uint32_t threshold = run.threshold;
  const Value keep = run.keep;
  for (int64_t i = 0; i < count; ++i) {
    const Value kept = out[i] * keep, kept_gradient = gradient[i] * keep;
    out[i] = draws[i] < threshold ? Value(0) : kept;
    gradient[i] = draws[i] < threshold ? Value(0) : kept_gradient;
  }
}

}  // namespace

XFORMER_VECTORISED
void gelu_run(const GeluRun<float>& run, const float* x, float* out) {
  if (run.tanh) forward_of<true>(run, x, out);
  else forward_of<false>(run, x, out);
}
void gelu_run(const GeluRun<double>& run, const double* x, double* out) {
  if (run.tanh) forward_of<true>(run, x, out);
  else forward_of<false>(run, x, out);
}

XFORMER_VECTORISED
void gelu_gradient_run(const GeluRun<float>& run, const float* x, const float* gradient, float* x_gradient) {
  if (run.tanh) backward_of<true>(run, x, gradient, x_gradient);
  else backward_of<false>(run, x, gradient, x_gradient);
}
void gelu_gradient_run(const GeluRun<double>& run, const double* x, const double* gradient, double* x_gradient) {
  if (run.tanh) backward_of<true>(run, x, gradient, x_gradient);
  else backward_of<false>(run, x, gradient, x_gradient);
}

XFORMER_VECTORISED
void gelu_both_run(const GeluRun<float>& run, const float* x, float* out, float* gradient) {
  if (run.tanh) both_of<true>(run, x, out, gradient);
  else both_of<false>(run, x, out, gradient);
}
void gelu_both_run(const GeluRun<double>& run, const double* x, double* out, double* gradient) {
  if (run.tanh) both_of<true>(run, x, out, gradient);
  else both_of<false>(run, x, out, gradient);
}

}  // namespace xformer::kernels
