// Reports of intermediate tensors: names, filters, gradients, and who hears them.
#include "tensor/probe.h"

#include <ATen/Functions.h>

#include <catch2/catch.hpp>
#include <thread>

#include "core/error.h"

namespace xformer {

namespace {

using Names = std::vector<std::string>;

Names names_of(const NamedTensors& tensors) {
  Names result;
  for (const auto& [name, tensor] : tensors) result.push_back(name);
  return result;
}

}  // namespace

TEST_CASE("names are composed of the open scopes, and only wanted tensors are kept") {
  const at::Tensor one = at::ones({2}), two = at::full({3}, 2.0);
  const ProbeRecorder recorder([](const std::string& name) { return name != "layer0.scale12.q"; });
  probe("embedding", one);
  {
    const ProbeScope layer("layer", 0);
    {
      const ProbeScope scale("scale", 12);
      probe("q", one);
      probe("weights", two);
    }
    probe("q", two);
  }
  const at::Tensor result = probed("layer1", [&] {
    probe("mixer", one);
    return one + two[0];
  });
  CHECK(recorder.seen() ==
        Names{"embedding", "layer0.scale12.q", "layer0.scale12.weights", "layer0.q", "layer1.mixer", "layer1"});
  CHECK(names_of(recorder.kept()) ==
        Names{"embedding", "layer0.scale12.weights", "layer0.q", "layer1.mixer", "layer1"});
  CHECK(recorder.kept()[1].second.is_same(two));
  CHECK(recorder.kept()[4].second.is_same(result));
}

TEST_CASE("a scope closes when what runs in it throws") {
  const ProbeRecorder recorder([](const std::string&) { return true; });
  CHECK_THROWS_AS(probed("layer0", []() -> at::Tensor { throw UserError("no"); }), UserError);
  probe("after", at::ones({}));
  CHECK(recorder.seen() == Names{"after"});
}

TEST_CASE("a recorder hears its own thread, during its life, and the inner of two hears alone") {
  const auto all = [](const std::string&) { return true; };
  const at::Tensor tensor = at::ones({});
  CHECK(probe_recorder == nullptr);
  probe("before", tensor);
  {
    const ProbeRecorder outer(all);
    std::thread([&] {
      CHECK(probe_recorder == nullptr);
      probe("elsewhere", tensor);
    }).join();
    probe("first", tensor);
    {
      const ProbeScope scope("outside");
      const ProbeRecorder inner(all);
      probe("within", tensor);
      CHECK(inner.seen() == Names{"within"});
    }
    probe("last", tensor);
    CHECK(outer.seen() == Names{"first", "last"});
  }
  CHECK(probe_recorder == nullptr);
}

TEST_CASE("what is kept has its gradient after a backward pass; what is not has none") {
  const at::Tensor x = at::full({2}, 3.0, at::kDouble).set_requires_grad(true);
  const ProbeRecorder recorder([](const std::string& name) { return name == "square"; });
  const at::Tensor square = x * x, other = 2 * x;
  probe("square", square);
  probe("other", other);
  (5 * square + other).sum().backward();
  CHECK(recorder.kept().at(0).second.grad().equal(at::full({2}, 5.0, at::kDouble)));
  CHECK_FALSE(other.retains_grad());
}

TEST_CASE("one name for two tensors is a bug") {
  const ProbeRecorder recorder([](const std::string&) { return false; });
  probe("weights", at::ones({}));
  CHECK_THROWS_AS(probe("weights", at::ones({})), InternalError);
}

}  // namespace xformer
