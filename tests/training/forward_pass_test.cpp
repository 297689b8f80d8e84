// What every attention keeps to in a forward pass of training: precision between its projections, and a site of its own
// for every dropout.
#include <ATen/Functions.h>
#include <ATen/record_function.h>

#include <catch2/catch.hpp>
#include <map>

#include "inspect/tiny.h"
#include "kernels/policy_scope.h"
#include "tensor/autocast.h"
#include "tensor/probe.h"

namespace xformer::training::forward_pass_test {

void run_forward(models::Model& model) {
  at::manual_seed(1);
  model.train();
  model.dropout_stream()->set_step(1);
  static_cast<void>(model.forward({at::randint(1, 10, {4, 16}, at::kLong), at::ones({4, 16}, at::kBool)}));
}

struct Thrown : std::exception {};

TEST_CASE("autocast is as it was when an attention throws inside") {
  for (const std::string& name : attention::all_names()) {
    const auto model = inspect::build_tiny_model(name);
    std::vector<std::string> places;
    {
      const ProbeRecorder recorder([&](const std::string& place) { return places.push_back(place), false; });
      run_forward(*model);
    }
    const AutocastScope autocast(at::kCPU, at::kBFloat16);
    for (const std::string& last : places) {
      INFO(name << " throws at " << last);
      const ProbeRecorder recorder([&](const std::string& place) { return place == last ? throw Thrown() : false; });
      CHECK_THROWS_AS(run_forward(*model), Thrown);
      REQUIRE(autocast_type(at::kCPU) == at::kBFloat16);
    }
  }
}

// Sites that xformer::dropout was asked for; the policy composite leaves dropping to it.
thread_local std::map<int64_t, int64_t>* drawn = nullptr;

std::unique_ptr<at::ObserverContext> on_call(const at::RecordFunction& call) {
  if (drawn != nullptr && std::string_view(call.name()) == "xformer::dropout") ++(*drawn)[call.inputs()[3].toInt()];
  return nullptr;
}

TEST_CASE("no two dropouts of a forward pass draw the same numbers, for every attention") {
  const kernels::PolicyScope policy(kernels::Policy::kComposite);
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(on_call).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  for (const std::string& name : attention::all_names()) {
    INFO(name);
    const auto model = inspect::build_tiny_model(name);
    std::map<int64_t, int64_t> sites;
    drawn = &sites;
    run_forward(*model);
    drawn = nullptr;
    CHECK(sites.size() >= 3);
    for (const auto& [site, times] : sites) CHECK(std::pair(site, times) == std::pair(site, int64_t{1}));
  }
  at::removeCallback(handle);
}

}  // namespace xformer::training::forward_pass_test
