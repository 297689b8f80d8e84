// What every attention keeps to in both passes of training, on sequences long enough that none of them falls back to
// all pairs: autocast as it was, a site of its own for every dropout, no value read back, few launches.
#include <ATen/Functions.h>
#include <ATen/record_function.h>

#include <catch2/catch.hpp>
#include <map>

#include "kernels/policy_scope.h"
#include "models/model.h"
#include "tensor/autocast.h"
#include "tensor/op_counter.h"
#include "tensor/op_profiler.h"
#include "tensor/probe.h"

namespace xformer::training::forward_pass_test {

constexpr int64_t kLength = 320;

std::shared_ptr<models::Model> model_of(const std::string& attention) {
  const models::FamilyDescriptor& family = models::all_families().get("encoder");
  models::ModelRequest request;
  request.input = {kLength, 10};
  request.outputs = 4;
  request.attention = attention::resolve(attention);
  for (const OptionInfo& option : request.attention.options()) request.attention_options[option.name] = option.fallback;
  for (const OptionInfo& option : family.options) request.model_options[option.name] = option.fallback;
  request.model_options.update({{"dim", 32},
                                {"head_dim", 16},
                                {"ff_dim", 32},
                                {"classifier_dim", 32},
                                {"dropout", 0.05},
                                {"attention_dropout", 0.05}});
  const auto model = family.build(request);
  model->train();
  model->dropout_stream()->set_step(1);
  return model;
}

at::Tensor run_forward(models::Model& model, const at::Tensor& valid) {
  return model.forward({at::arange(2 * kLength).remainder(9).add(1).view({2, kLength}), valid});
}
// With a token that does not count: without any, models have no mask.
at::Tensor run_forward(models::Model& model) {
  at::Tensor valid = at::ones({2, kLength}, at::kBool);
  valid[1][kLength - 1] = false;
  return run_forward(model, valid);
}

TEST_CASE("a batch without padding comes to the same whether or not its mask is looked through, for every attention") {
  for (const std::string& name : attention::all_names()) {
    INFO(name);
    const auto model = model_of(name);
    model->eval();
    const at::NoGradGuard no_grad;
    const at::Tensor flags = at::ones({kLength, 2}, at::kBool).t();  // of these nobody asks whether all are set
    const at::Tensor meant = run_forward(*model, flags);
    const auto wheres = [&](const at::Tensor& valid) {
      const OpProfiler profiler;
      const at::Tensor got = run_forward(*model, valid);
      CHECK((got - meant).abs().max().item<double>() < 1e-4 * std::max(1.0, meant.abs().max().item<double>()));
      int64_t calls = 0;
      for (const auto& [called, figures] : profiler.profile().operators)
        if (called == "aten::where") calls += figures.calls;
      return calls;
    };
    const int64_t with_mask = wheres(flags), without = wheres(flags.contiguous());
    if (name == "memory-compressed" || name == "set-isab") CHECK((with_mask > 0 && without == 0));
  }
}

struct Thrown : std::exception {};

TEST_CASE("autocast is as it was when an attention throws inside") {
  for (const std::string& name : attention::all_names()) {
    const auto model = model_of(name);
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
    const auto model = model_of(name);
    std::map<int64_t, int64_t> sites;
    drawn = &sites;
    run_forward(*model);
    drawn = nullptr;
    CHECK(sites.size() >= 3);
    for (const auto& [site, times] : sites) CHECK(std::pair(site, times) == std::pair(site, int64_t{1}));
  }
  at::removeCallback(handle);
}

// Of two layers, a tenth above what they took.
int64_t most_launches(const std::string& name) {
  static const std::map<std::string, int64_t> kCounted = {{"adamra", 600},
                                                          {"adamra-elu", 645},
                                                          {"adamra-rand", 605},
                                                          {"adamra-softmax", 710},
                                                          {"adaptive-span", 525},
                                                          {"adaptively-sparse", 2020},
                                                          {"additive", 305},
                                                          {"bigbird-etc", 520},
                                                          {"bigbird-itc", 570},
                                                          {"blockwise", 375},
                                                          {"bpt", 1355},
                                                          {"clustered", 895},
                                                          {"combiner-axial-horizontal", 2385},
                                                          {"combiner-axial-rowmajor", 1110},
                                                          {"combiner-axial-vertical", 2330},
                                                          {"combiner-fixed", 570},
                                                          {"combiner-learnable", 1120},
                                                          {"combiner-logsparse", 2660},
                                                          {"combiner-mixture", 4170},
                                                          {"compressive", 335},
                                                          {"diet-cascade", 345},
                                                          {"diet-dilated", 365},
                                                          {"entmax15", 1610},
                                                          {"etc", 490},
                                                          {"fmm", 480},
                                                          {"image-local-1d", 345},
                                                          {"image-local-2d", 375},
                                                          {"improved-clustered", 1080},
                                                          {"local-window", 345},
                                                          {"longformer", 505},
                                                          {"luna", 375},
                                                          {"memory-compressed", 355},
                                                          {"mra2", 590},
                                                          {"mra2-s", 510},
                                                          {"none", 150},
                                                          {"nystromformer", 1300},
                                                          {"paramixer-cdil", 2460},
                                                          {"paramixer-chord", 2680},
                                                          {"performer", 525},
                                                          {"performer-relu", 335},
                                                          {"reformer", 640},
                                                          {"rfa-arccos", 508},
                                                          {"rfa-gaussian", 545},
                                                          {"routing", 785},
                                                          {"set-induced", 325},
                                                          {"set-isab", 330},
                                                          {"sinkhorn", 1290},
                                                          {"sparse-fixed", 425},
                                                          {"sparse-strided", 640},
                                                          {"sparsemax", 1850},
                                                          {"star-transformer", 480},
                                                          {"transformer-ls", 445},
                                                          {"transformer-xl", 335}};
  const attention::Resolved resolved = attention::resolve(name);
  const bool scales = resolved.decorator != nullptr;  // two of them
  const auto found = kCounted.find(resolved.base->name);
  return (scales ? 2 : 1) * (found == kCounted.end() ? 300 : found->second);
}

TEST_CASE("without our kernels both passes read nothing back and launch little, for every attention") {
  const kernels::PolicyScope policy(kernels::Policy::kComposite);
  for (const std::string& name : attention::all_names()) {
    INFO(name);
    const auto model = model_of(name);
    const OpCounter counter;
    const OpProfiler profiler;
    at::cross_entropy_loss(run_forward(*model), at::arange(2)).backward();
    CHECK(counter.counts().reads == 0);
    int64_t launches = 0;  // calls of operators that write memory themselves
    for (const auto& [called, figures] : profiler.profile().operators)
      if (figures.written_bytes > 0) launches += figures.calls;
    CHECK(launches <= most_launches(name));
    CHECK(launches > most_launches(name) / 2);
  }
}

}  // namespace xformer::training::forward_pass_test
