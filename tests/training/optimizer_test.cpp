// Optimisers against their equations in double precision, and what all of them share.
#include "training/optimizer.h"

#include "plan/schedule.h"

#include <ATen/Functions.h>

#include <catch2/catch.hpp>
#include <cmath>

namespace xformer::training {

namespace {

// One parameter updated by the equations of kernels/adamw, in double.
struct Reference {
  std::vector<double> x, m, v;
  double t = 0;

  void step(const std::vector<double>& gradient, const plan::ScheduleValues& values, const UpdateOptions& options) {
    double norm = 0;
    for (const double g : gradient) norm += g * g;
    norm = std::sqrt(norm);
    const double scale = options.clip_norm > 0 ? std::min(1.0, options.clip_norm / (norm + 1e-6)) : 1;
    t += 1;
    for (size_t i = 0; i < x.size(); ++i) {
      const double g = gradient[i] * scale;
      m[i] = values.beta1 * m[i] + (1 - values.beta1) * g;
      v[i] = options.constants.beta2 * v[i] + (1 - options.constants.beta2) * g * g;
      const double first = m[i] / (1 - std::pow(values.beta1, t)),
                   second = v[i] / (1 - std::pow(options.constants.beta2, t));
      x[i] -= values.learning_rate *
              (first / (std::sqrt(second) + options.constants.epsilon) + options.constants.weight_decay * x[i]);
    }
  }
};

at::Tensor number(double value) { return at::scalar_tensor(value, at::kDouble); }

void step(Optimizer& optimizer, double learning_rate = 0.1, double beta1 = 0.9) {
  optimizer.step(number(learning_rate), number(beta1));
}

// Two parameters, of 7 and of 2 x 3 elements, as one reference of 13.
void compare(const UpdateOptions& options) {
  at::Tensor first = at::linspace(-1, 1, 7, at::kDouble).requires_grad_();
  at::Tensor second = at::linspace(3, 2, 6, at::kDouble).view({2, 3}).requires_grad_();
  Reference reference{{}, std::vector<double>(13), std::vector<double>(13)};
  const auto values = [&](int i) { return i < 7 ? first[i].item<double>() : second.flatten()[i - 7].item<double>(); };
  for (int i = 0; i < 13; ++i) reference.x.push_back(values(i));
  Optimizer optimizer({{"first", first}, {"second", second}}, options);
  for (int t = 0; t < 20; ++t) {
    optimizer.zero_gradients();
    std::vector<double> gradient;
    for (int i = 0; i < 13; ++i) gradient.push_back(std::sin(t + 3.0 * i));
    // As backward leaves them.
    const at::Tensor all = at::tensor(gradient, at::kDouble);
    const at::Tensor factor = options.loss_scaling ? optimizer.loss_scale().to(at::kDouble) : number(1);
    first.mutable_grad() = all.narrow(0, 0, 7) * factor;
    second.mutable_grad() = all.narrow(0, 7, 6).view({2, 3}) * factor;
    const plan::ScheduleValues now{0.01 + 0.001 * t, 0.95 - 0.005 * t};  // both cycle, as onecycle_linear does
    step(optimizer, now.learning_rate, now.beta1);
    reference.step(gradient, now, options);
  }
  for (int i = 0; i < 13; ++i) CHECK(values(i) == Approx(reference.x[static_cast<size_t>(i)]).epsilon(1e-12));
}

}  // namespace

TEST_CASE("AdamW follows its equations while rate and beta1 change") { compare({"adamw", {0.999, 1e-6, 0}}); }
TEST_CASE("AdamW decays every parameter by rate times weight decay") { compare({"adamw", {0.98, 1e-9, 0.1}}); }

// Five steps without the adaptive part at beta2 0.999, then with it: the authors' own loop, in double.
TEST_CASE("RAdam follows its authors' loop, before and after the variance is tractable") {
  at::Tensor x = at::linspace(-1, 1, 5, at::kDouble).requires_grad_();
  std::vector<double> meant, m(5), v(5);
  for (int i = 0; i < 5; ++i) meant.push_back(x[i].item<double>());
  Optimizer optimizer({{"x", x}}, {"radam", {0.999, 1e-8, 0.01}});
  const double b1 = 0.9, b2 = 0.999, rate = 0.02, longest = 2 / (1 - b2) - 1;
  int adaptive = 0;
  for (int t = 1; t <= 10; ++t) {
    optimizer.zero_gradients();
    std::vector<double> gradient;
    for (int i = 0; i < 5; ++i) gradient.push_back(std::cos(t + 2.0 * i));
    x.mutable_grad() = at::tensor(gradient, at::kDouble);
    step(optimizer, rate, b1);
    const double power = std::pow(b2, t), length = longest - 2 * t * power / (1 - power);
    for (size_t i = 0; i < 5; ++i) {
      m[i] = b1 * m[i] + (1 - b1) * gradient[i];
      v[i] = b2 * v[i] + (1 - b2) * gradient[i] * gradient[i];
      meant[i] -= 0.01 * rate * meant[i];
      if (length >= 5) {
        const double size =
            std::sqrt((1 - power) * (length - 4) / (longest - 4) * (length - 2) / length * longest / (longest - 2)) /
            (1 - std::pow(b1, t));
        meant[i] -= size * rate * m[i] / (std::sqrt(v[i]) + 1e-8);
      } else {
        meant[i] -= rate / (1 - std::pow(b1, t)) * m[i];
      }
    }
    adaptive += length >= 5 ? 1 : 0;
  }
  CHECK(adaptive == 5);
  for (int i = 0; i < 5; ++i) CHECK(x[i].item<double>() == Approx(meant[static_cast<size_t>(i)]).epsilon(1e-12));
}

TEST_CASE("parameters that do not decay are updated as if there were no weight decay") {
  const auto updated = [](double decay, const std::function<bool(const std::string&)>& decays) {
    at::Tensor a = at::ones({3}, at::kDouble).requires_grad_(), b = at::full({2}, 2.0, at::kDouble).requires_grad_();
    Optimizer optimizer({{"a", a}, {"b", b}}, {"adamw", {0.999, 1e-8, decay}}, decays);
    optimizer.zero_gradients();
    a.mutable_grad() = at::full_like(a, 0.5);
    b.mutable_grad() = at::full_like(b, 0.25);
    step(optimizer);
    return std::pair{a.detach().clone(), b.detach().clone()};
  };
  const auto all = [](const std::string&) { return true; };
  const auto [a, b] = updated(0.3, [](const std::string& name) { return name == "b"; });
  CHECK(a.equal(updated(0, all).first));
  CHECK(b.equal(updated(0.3, all).second));
  CHECK_FALSE(b.equal(updated(0, all).second));
}

TEST_CASE("gradients are taken from where backward leaves them, and one that is missing is zero") {
  const auto moments = [](bool missing, int64_t backwards) {
    at::Tensor a = at::arange(1, 4, at::kFloat).requires_grad_(), b = at::ones({2, 2}).requires_grad_(),
               c = at::ones({70}).requires_grad_();
    Optimizer optimizer({{"a", a}, {"b", b}, {"c", c}}, {});
    for (int64_t t = 0; t < 2; ++t) {
      optimizer.zero_gradients();
      const at::Tensor loss =
          a.square().sum() + (missing ? at::zeros({}) : (b.t() * at::arange(4).view({2, 2})).sum()) + 3 * c.sum();
      for (int64_t i = 0; i < backwards; ++i) loss.backward({}, /*retain_graph=*/true);
      step(optimizer, 0);
    }
    CHECK(a.grad().equal(2 * static_cast<double>(backwards) * a.detach()));
    CHECK(c.grad().equal(at::full({70}, 3.f * static_cast<float>(backwards))));
    return optimizer.state().at(3).second.flatten();  // exp_avg of b
  };
  CHECK(at::allclose(moments(false, 1), 0.19 * at::tensor({0.f, 2.f, 1.f, 3.f})));
  CHECK(at::allclose(moments(false, 2), 0.38 * at::tensor({0.f, 2.f, 1.f, 3.f})));
  CHECK(moments(true, 1).equal(at::zeros({4})));
}

TEST_CASE("gradients of large and of small parameters come to lie where their views are, in any order") {
  constexpr int64_t kLarge = (int64_t{1} << 18) + 3;
  for (const auto& sizes : {std::vector<int64_t>{5, kLarge, 7, 64}, {kLarge, 9}, {3, kLarge, kLarge}, {kLarge}}) {
    CAPTURE(sizes);
    std::vector<std::pair<std::string, at::Tensor>> parameters;
    for (const int64_t size : sizes)
      parameters.emplace_back(std::to_string(parameters.size()), at::ones({size}).requires_grad_());
    Optimizer optimizer(parameters, {"adamw", {0.999, 1e-8, 0}, 0});
    for (const float times : {1.0f, 2.0f}) {
      optimizer.zero_gradients();
      std::vector<at::Tensor> gradients;
      for (auto& [name, parameter] : parameters) {
        gradients.push_back(times * at::arange(1, parameter.numel() + 1, at::kFloat) +
                            static_cast<float>(gradients.size()));
        parameter.mutable_grad() = gradients.back();
      }
      step(optimizer, 0);
      double square = 0;
      for (size_t i = 0; i < gradients.size(); ++i) {
        CHECK(parameters[i].second.grad().equal(gradients[i]));
        square += gradients[i].to(at::kDouble).square().sum().item<double>();
      }
      CHECK(optimizer.gradient_norm().item<double>() == Approx(std::sqrt(square)));  // nothing lies between them
    }
  }
}

TEST_CASE("AdamW clips the norm of the whole gradient") { compare({"adamw", {0.999, 1e-8, 0}, 0.5}); }
TEST_CASE("a gradient below the clipping norm is left as it is") {
  compare({"adamw", {0.999, 1e-8, 0}, 100});
  at::Tensor x = at::ones({2}).requires_grad_();
  Optimizer optimizer({{"x", x}}, {"adamw", {}, 1});
  x.mutable_grad().fill_(0.125F);
  step(optimizer);
  // exp_avg is (1 - beta1) of the gradient.
  CHECK(at::allclose(optimizer.state().at(1).second, at::full({2}, 0.0125F)));
}

TEST_CASE("the loss scale leaves no trace in the update") { compare({"adamw", {0.999, 1e-8, 0}, 0.5, true}); }

TEST_CASE("parameters keep their values, shapes and names in the flat buffers") {
  at::Tensor first = at::arange(5, at::kFloat).requires_grad_(), second = at::full({2, 2}, 7.f).requires_grad_();
  const Optimizer optimizer({{"a", first}, {"b", second}}, {});
  CHECK(first.detach().equal(at::arange(5, at::kFloat)));
  CHECK(second.detach().equal(at::full({2, 2}, 7.f)));
  CHECK(first.requires_grad());
  CHECK(second.grad().sizes() == second.sizes());
  std::vector<std::string> names;
  for (const auto& [name, tensor] : optimizer.state()) names.push_back(name);
  CHECK(names == std::vector<std::string>{"step", "exp_avg.a", "exp_avg_sq.a", "exp_avg.b", "exp_avg_sq.b"});
}

TEST_CASE("a gradient that is not finite changes nothing and is counted") {
  at::Tensor parameter = at::ones({3}).requires_grad_();
  Optimizer optimizer({{"x", parameter}}, {});
  parameter.mutable_grad().fill_(1);
  step(optimizer);
  const at::Tensor before = parameter.detach().clone();
  std::vector<at::Tensor> state;
  for (const auto& [name, tensor] : optimizer.state()) state.push_back(tensor.clone());
  parameter.mutable_grad()[1] = std::numeric_limits<float>::quiet_NaN();
  step(optimizer);
  CHECK(optimizer.skipped().item<double>() == 1);
  CHECK(parameter.detach().equal(before));
  const NamedTensors now = optimizer.state();
  for (size_t i = 0; i < now.size(); ++i) CHECK(now[i].second.equal(state[i]));
  optimizer.zero_gradients();
  parameter.mutable_grad() = at::ones({3});
  step(optimizer);
  CHECK(optimizer.skipped().item<double>() == 0);
  CHECK_FALSE(parameter.detach().equal(before));
}

TEST_CASE("the loss scale halves when a gradient overflows and doubles after 2,000 good steps") {
  at::Tensor parameter = at::ones({3}).requires_grad_();
  UpdateOptions options;
  options.loss_scaling = true;
  Optimizer optimizer({{"x", parameter}}, options);
  const auto scale = [&] { return optimizer.loss_scale().item<float>(); };
  CHECK(scale() == 65536);
  parameter.mutable_grad()[0] = std::numeric_limits<float>::infinity();
  step(optimizer);
  step(optimizer);
  CHECK(scale() == 16384);
  CHECK(parameter.detach().equal(at::ones({3})));
  parameter.mutable_grad().fill_(1);
  for (int i = 0; i < 1999; ++i) step(optimizer, 0);
  CHECK(scale() == 16384);
  step(optimizer, 0);
  CHECK(scale() == 32768);
  CHECK(optimizer.gradient_norm().item<double>() == Approx(std::sqrt(3.0) / 16384));
}

}  // namespace xformer::training
