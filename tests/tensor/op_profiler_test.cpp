// Own times, bytes and FLOPs of operators against sums and counts by hand.
#include "tensor/op_profiler.h"

#include <ATen/Functions.h>
#include <ATen/record_function.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <thread>

#include "core/error.h"
#include "tensor/op_counter.h"

namespace xformer::op_profiler_test {

OpProfile profiled(const std::function<void()>& action) {
  const OpProfiler profiler;
  action();
  return profiler.profile();
}

int64_t flops_of(const OpProfile& profile) {
  int64_t sum = 0;
  for (const auto& [name, figures] : profile.operators) sum += figures.flops;
  return sum;
}

using Bytes = std::pair<int64_t, int64_t>;  // read and written

Bytes bytes_of(const OpProfile& profile) {
  Bytes sum;
  for (const auto& [name, figures] : profile.operators) {
    sum.first += figures.read_bytes;
    sum.second += figures.written_bytes;
  }
  return sum;
}

// A training step of a small network; every operator in it has operands.
void small_step() {
  const at::Tensor x = at::ones({10, 6});
  const at::Tensor first = at::ones({12, 6}).requires_grad_(true), second = at::ones({4, 12}).requires_grad_(true);
  const at::Tensor bias = at::ones({12}).requires_grad_(true);
  at::linear(at::gelu(at::linear(x, first, bias)), second).softmax(-1).square().sum().backward();
}

void sleep(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

void inner_operator() {
  RECORD_FUNCTION("xformer::inner", c10::ArrayRef<const c10::IValue>());
  sleep(60);
}

// An operator of our own that sleeps, calls LibTorch, and calls another that sleeps.
void outer_operator() {
  RECORD_FUNCTION("xformer::outer", c10::ArrayRef<const c10::IValue>());
  sleep(20);
  at::ones({3, 4});
  inner_operator();
}

TEST_CASE("own times add up to the time in outermost operators") {
  const auto start = std::chrono::steady_clock::now();
  const OpProfile profile = profiled(small_step);
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  CHECK(profile.seconds() > 0);
  CHECK(profile.seconds() <= wall);
  double sum = 0;
  for (const auto& [name, figures] : profile.operators) {
    INFO(name);
    CHECK(figures.calls >= 1);
    CHECK(figures.seconds >= 0);
    sum += figures.seconds;
  }
  CHECK(sum == Approx(profile.seconds()));
}

TEST_CASE("the time of a nested operator is its own, not its caller's") {
  const auto start = std::chrono::steady_clock::now();
  const OpProfile profile = profiled([] {
    outer_operator();
    sleep(5);  // outside
    outer_operator();
  });
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const OpFigures &outer = profile.operators.at("xformer::outer"), &inner = profile.operators.at("xformer::inner");
  CHECK(outer.calls == 2);
  CHECK(inner.calls == 2);
  CHECK(outer.seconds >= 0.04);
  CHECK(inner.seconds >= 0.12);
  // Were the inner one's time in the outer one's as well, the sum would be more than passed.
  CHECK(profile.seconds() <= wall - 0.005);
}

TEST_CASE("FLOPs are those of the operator counter, each at the operator that multiplied") {
  const OpCounter counter;
  const OpProfile step = profiled(small_step);
  CHECK(flops_of(step) == counter.counts().flops);
  CHECK(flops_of(step) == 2 * (10 * 6 * 12 + 10 * 12 * 4) + 2 * (10 * 6 * 12 + 2 * 10 * 12 * 4));

  const at::Tensor a = at::ones({3, 4}), b = at::ones({4, 5}), bias = at::ones({5});
  const OpProfile linear = profiled([&] { at::linear(a, b.t(), bias); });
  CHECK(linear.operators.at("aten::linear").flops == 0);
  CHECK(linear.operators.at("aten::addmm").flops == 120);

  // Nested products, and what tiles of an operator of our own multiply on any thread.
  const OpProfile own = profiled([&] {
    RECORD_FUNCTION("xformer::own", c10::ArrayRef<const c10::IValue>());
    at::mm(a, b);
    std::thread([] { add_executed_flops(1000); }).join();
  });
  CHECK(own.operators.at("xformer::own").flops == 1000);
  CHECK(own.operators.at("aten::mm").flops == 120);

  const at::Tensor image = at::ones({1, 2, 8, 8}), filter = at::ones({3, 2, 3, 3});
  const OpProfile convolution = profiled([&] { at::conv2d(image, filter); });
  CHECK(convolution.operators.at("aten::convolution").flops == 2 * 3 * 6 * 6 * 2 * 3 * 3);
  CHECK_FALSE(convolution.operators.contains("aten::_convolution"));
}

TEST_CASE("bytes are those of arguments and results, counted where they moved") {
  const at::Tensor x = at::ones({4, 8}), y = at::ones({4, 8});
  const int64_t size = 4 * 8 * 4;
  const auto bytes = [&](const std::function<void()>& action) { return bytes_of(profiled(action)); };
  CHECK(bytes([&] { at::add(x, y); }) == Bytes(2 * size, size));
  CHECK(bytes([&] { y.add_(x); }) == Bytes(2 * size, size));
  CHECK(bytes([&] { y.copy_(x); }) == Bytes(size, size));
  CHECK(bytes([&] { y.zero_(); }) == Bytes(0, size));
  at::Tensor target = at::empty({4, 8});
  CHECK(bytes([&] { at::mul_out(target, x, y); }) == Bytes(2 * size, size));
  CHECK(bytes([&] { at::mul_out(target, target, y); }) == Bytes(2 * size, size));  // an operand and the target
  // Wrappers move what the operator inside moves.
  CHECK(bytes([&] { x.t().contiguous(); }) == Bytes(size, size));
  CHECK(bytes([&] { at::zeros({4, 8}); }) == Bytes(0, size));
  CHECK(bytes([&] { at::zeros_like(x); }) == Bytes(0, size));
  CHECK(bytes([&] { at::softmax(x, -1); }) == Bytes(size, size));
  CHECK(bytes([&] { at::cat({x, y}); }) == Bytes(2 * size, 2 * size));
  // Nothing moves.
  CHECK(bytes([&] { x.view({8, 4}).t().expand({2, 4, 8}).select(0, 1).t().contiguous(); }) == Bytes(0, 0));
  CHECK(bytes([&] { at::empty_like(x); }) == Bytes(0, 0));
  CHECK(bytes([&] { x.contiguous(); }) == Bytes(0, 0));
  CHECK(bytes([&] { x.chunk(2); }) == Bytes(0, 0));
  // An expanded row is read once.
  const at::Tensor row = at::ones({1, 8});
  CHECK(bytes([&] { at::add(x, row.expand({4, 8})); }) == Bytes(size + 8 * 4, size));
  CHECK(bytes([&] { at::mm(x, y.t()); }) == Bytes(2 * size, 4 * 4 * 4));
}

TEST_CASE(
    "of picked rows those that are picked are read, each time, and lists of our own operators are counted apart") {
  const at::Tensor table = at::ones({100, 8}), places = at::tensor({3, 3, 7, 99, 0}, at::kLong);
  const auto bytes = [&](const std::function<void()>& action) { return bytes_of(profiled(action)); };
  const int64_t rows = 5 * 8 * 4, list = 5 * 8;
  CHECK(bytes([&] { table.index_select(0, places); }) == Bytes(rows + list, rows));
  CHECK(bytes([&] { at::embedding(table, places); }) == Bytes(rows + list, rows));
  CHECK(bytes([&] { table.gather(0, places.unsqueeze(1).expand({5, 8})); }) == Bytes(rows + list, rows));
  const OpProfile own = profiled([&] {
    RECORD_FUNCTION("xformer::outer", c10::ArrayRef<const c10::IValue>());
    {
      RECORD_FUNCTION("xformer::inner", c10::ArrayRef<const c10::IValue>());
      std::thread([] { add_gathered_bytes(700); }).join();
    }
    add_gathered_bytes(30);
  });
  CHECK(own.operators.at("xformer::inner").gathered_bytes == 700);
  CHECK(own.operators.at("xformer::outer").gathered_bytes == 30);
}

TEST_CASE("an operator of our own without a result reads its operands and writes what it allocates") {
  const at::Tensor x = at::ones({4, 8});
  const auto own = [](const OpProfile& profile) { return profile.operators.at("xformer::own"); };
  const OpFigures told = own(profiled([&] {
    const c10::IValue operands[] = {x, 3.0, x};
    RECORD_FUNCTION("xformer::own", c10::ArrayRef<const c10::IValue>(operands));
    at::empty({16}, at::kDouble);
    at::empty_like(x);
  }));
  CHECK(told.read_bytes == 2 * 128);
  CHECK(told.written_bytes == 128 + 128);
}

TEST_CASE("products are told apart by shape, layout and type") {
  const at::Tensor a = at::ones({3, 4}), b = at::ones({4, 5}), c = at::ones({2, 3, 4}), d = at::ones({2, 4, 5});
  const OpProfile profile = profiled([&] {
    at::mm(a, b);
    at::addmm(at::ones({5}), a, b);
    at::mm(a, at::ones({5, 4}).t());
    at::mm(a.to(at::kDouble), b.to(at::kDouble));
    at::bmm(c, d);
  });
  std::map<Product, std::pair<int64_t, int64_t>> got;
  for (const auto& [product, figures] : profile.products) got[product] = {figures.calls, figures.flops};
  const std::map<Product, std::pair<int64_t, int64_t>> meant = {{{1, 3, 4, 5, false, false, at::kFloat}, {2, 240}},
                                                                {{1, 3, 4, 5, false, true, at::kFloat}, {1, 120}},
                                                                {{1, 3, 4, 5, false, false, at::kDouble}, {1, 120}},
                                                                {{2, 3, 4, 5, false, false, at::kFloat}, {1, 240}}};
  CHECK((got == meant));
  CHECK(profile.operators.at("aten::addmm").product);
  CHECK_FALSE(profile.operators.at("aten::ones").product);
}

TEST_CASE("LibTorch's tags say what is elementwise and what reduces") {
  const OpProfile profile = profiled([] { at::ones({3, 4}).exp().sum(); });
  CHECK(profile.operators.at("aten::exp").pointwise);
  CHECK(profile.operators.at("aten::sum").reduces);
  CHECK_FALSE(profile.operators.at("aten::exp").reduces);
}

TEST_CASE("one profiler at a time, for the thread that made it") {
  OpProfiler profiler;
  CHECK_THROWS_AS(OpProfiler(), InternalError);
  std::thread([] { at::ones({3}); }).join();
  CHECK(profiler.profile().operators.empty());
  // An operator that fails ends all the same.
  CHECK_THROWS(at::mm(at::ones({2, 3}), at::ones({2, 3})));
  at::exp(at::ones({3}));
  CHECK(profiler.profile().operators.at("aten::mm").calls == 1);
  CHECK(profiler.profile().operators.at("aten::exp").calls == 1);
}

}  // namespace xformer::op_profiler_test
