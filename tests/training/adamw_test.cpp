// AdamW against its equations in double precision.
#include "training/adamw.h"

#include <ATen/Functions.h>

#include <catch2/catch.hpp>
#include <cmath>

namespace xformer::training {

namespace {

// One parameter updated by the equations of adamw.h, in double.
struct Reference {
  std::vector<double> x, m, v;
  double t = 0;

  void step(const std::vector<double>& gradient, const ScheduleValues& values, const AdamWOptions& options) {
    double norm = 0;
    for (const double g : gradient) norm += g * g;
    norm = std::sqrt(norm);
    const double scale = options.clip_norm > 0 ? std::min(1.0, options.clip_norm / (norm + 1e-6)) : 1;
    t += 1;
    for (size_t i = 0; i < x.size(); ++i) {
      const double g = gradient[i] * scale;
      m[i] = values.beta1 * m[i] + (1 - values.beta1) * g;
      v[i] = options.beta2 * v[i] + (1 - options.beta2) * g * g;
      const double first = m[i] / (1 - std::pow(values.beta1, t)), second = v[i] / (1 - std::pow(options.beta2, t));
      x[i] -= values.learning_rate * (first / (std::sqrt(second) + options.epsilon) + options.weight_decay * x[i]);
    }
  }
};

void compare(const AdamWOptions& options) {
  at::Tensor parameter = at::linspace(-1, 1, 7, at::kDouble).requires_grad_();
  Reference reference{{}, std::vector<double>(7), std::vector<double>(7)};
  for (int i = 0; i < 7; ++i) reference.x.push_back(parameter[i].item<double>());
  AdamW optimizer({{"x", parameter}}, options);
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_gradients();
    std::vector<double> gradient;
    for (int i = 0; i < 7; ++i) gradient.push_back(std::sin(step + 3.0 * i));
    parameter.mutable_grad().copy_(at::tensor(gradient, at::kDouble));
    const ScheduleValues values{0.01 + 0.001 * step, 0.95 - 0.005 * step};  // both cycle, as onecycle_linear does
    optimizer.step(values);
    reference.step(gradient, values, options);
  }
  for (int i = 0; i < 7; ++i) CHECK(parameter[i].item<double>() == Approx(reference.x[i]).epsilon(1e-6));
}

}  // namespace

TEST_CASE("AdamW follows its equations while rate and beta1 change") { compare({0.999, 1e-6, 0, 0}); }
TEST_CASE("AdamW decays every parameter by rate times weight decay") { compare({0.98, 1e-9, 0.1, 0}); }
TEST_CASE("AdamW clips the norm of the whole gradient") { compare({0.999, 1e-8, 0, 0.5}); }

TEST_CASE("a gradient that is not finite changes nothing and is counted") {
  at::Tensor parameter = at::ones({3}).requires_grad_();
  AdamW optimizer({{"x", parameter}}, {});
  parameter.mutable_grad().fill_(1);
  optimizer.step({0.1, 0.9});
  const at::Tensor before = parameter.detach().clone();
  std::vector<at::Tensor> state;
  for (const auto& [name, tensor] : optimizer.state()) state.push_back(tensor.clone());
  parameter.mutable_grad()[1] = std::numeric_limits<float>::quiet_NaN();
  optimizer.step({0.1, 0.9});
  CHECK(optimizer.skipped().item<float>() == 1);
  CHECK(parameter.detach().equal(before));
  const NamedTensors now = optimizer.state();
  for (size_t i = 0; i < now.size(); ++i) CHECK(now[i].second.equal(state[i]));
  optimizer.zero_gradients();
  parameter.mutable_grad().fill_(1);
  optimizer.step({0.1, 0.9});
  CHECK(optimizer.skipped().item<float>() == 0);
  CHECK_FALSE(parameter.detach().equal(before));
}

}  // namespace xformer::training
