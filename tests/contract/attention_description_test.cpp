// What every attention says about itself: traits, option keys, cost and growth, against what it does.
#include <algorithm>
#include <set>

#include "contract/claims.h"
#include "core/text.h"
#include "tensor/op_counter.h"
#include "tensor/probe.h"

namespace xformer::attention::contract {

TEST_CASE("every claim of the table belongs to a name, and traits agree with it") {
  for (const auto& [name, claims] : kClaims) {
    INFO(name);
    const auto names = all_names();
    CHECK(std::find(names.begin(), names.end(), name) != names.end());
    const Resolved attention = resolve(name);
    CHECK(attention.name == name);
    CHECK(attention.base->appended_padding.holds(full_options(attention, kSmall)) == claims.appended_padding);
    CHECK(attention.traits().causal_ok == claims.causal);
    CHECK(attention.traits().fixed_length == claims.fixed_length);
    CHECK(attention.base->complexity == claims.complexity);
    CHECK_FALSE(attention.base->title.empty());
    CHECK_FALSE(attention.base->paper.empty());
    CHECK_FALSE(attention.base->summary.empty());
    const std::set<std::string> classes = {"full", "FP", "LP", "LR", "KR", "RC", "M", "MR"};
    for (const std::string_view one : split(attention.base->method_class, '+')) {
      INFO(one);
      CHECK(classes.count(std::string(one)) == 1);
    }
  }
}

TEST_CASE("every parameter and buffer has a meaning, and every meaning a tensor") {
  std::map<std::string, std::set<std::string>> used;  // by base
  for_each_name([&](const std::string& name, const Claims& claims) {
    const Resolved attention = resolve(name);
    for (const Json& options : option_sets(attention)) {
      std::vector<std::pair<std::string, at::Tensor>> state;
      for (const bool causal : {false, true}) {
        if (causal && !claims.causal) continue;
        try {
          const auto more = make_mixer(name, options, {.causal = causal}).state();
          state.insert(state.end(), more.begin(), more.end());
        } catch (const UserError&) {  // refused: options that leave mrs- no core
        }
      }
      for (const auto& [key, tensor] : state) {
        INFO(key);
        const std::string meaning = tensor_meaning(attention, key);
        CHECK_FALSE(meaning.empty());
        used[attention.base->name].insert(meaning);
      }
    }
    CHECK(tensor_meaning(attention, "core.no_such_tensor").empty());
  });
  for (const Descriptor& variant : all_variants().all())
    for (const TensorMeaning& tensor : variant.tensors) {
      INFO(variant.name << " " << tensor.name);
      CHECK(used[variant.name].count(tensor.meaning) == 1);
    }
}

TEST_CASE("what an attention reports has one name each, and a listener changes nothing but rounding") {
  for_each_name([](const std::string& name, const Claims&) {
    const BuiltMixer mixer = make_mixer(name, kSmall);
    const at::Tensor x = tokens(2, 48);
    const SequenceMask mask = length_mask({48, 31}, 48);
    const at::Tensor alone = mixer(x, mask);
    const ProbeRecorder recorder([](const std::string&) { return true; });
    CHECK(max_difference(mixer(x, mask), alone) < 1e-11);
    std::set<std::string> names(recorder.seen().begin(), recorder.seen().end());
    const bool block = static_cast<bool>(resolve(name).base->build_block);  // which may have neither queries nor keys
    for (const char* expected : {"q", "k", "v", "mixed"})
      CHECK((names.count(expected) == 1 || (block && (*expected == 'q' || *expected == 'k'))));
    CHECK(recorder.kept().size() == names.size());
    for (const auto& [key, tensor] : recorder.kept()) CHECK(tensor.isfinite().all().item<bool>());
  });
}

int64_t counted_flops(const std::function<void()>& work) {
  const OpCounter counter;
  work();
  return counter.counts().flops;
}

TEST_CASE("counted FLOPs equal cost") {
  for_each_name([](const std::string& name, const Claims& claims) {
    for (const bool causal : {false, true}) {
      if (causal && !claims.causal) continue;
      for (const int64_t n : {1, 48, 77, 130}) {
        INFO("causal " << causal << " n " << n);
        const Setup setup{.max_len = 130, .causal = causal};
        const BuiltMixer mixer = make_mixer(name, kSmall, setup);
        const at::Tensor x = tokens(3, n);
        // All tokens are valid: padding is skipped by some and computed by others.
        const SequenceMask mask = causal ? SequenceMask{{}, true} : length_mask({n, n, n}, n);
        const Cost cost = mixer.module->cost(3, n);
        CHECK(static_cast<double>(counted_flops([&] { (void)mixer(x, mask); })) == cost.flops_executed);
        CHECK(cost.flops_pattern <= cost.flops_executed);
        CHECK(cost.peak_elements > 0);
      }
    }
  });
}

TEST_CASE("twice the length costs what the complexity says") {
  for_each_name([](const std::string& name, const Claims& claims) {
    if (!has_core(name)) return;
    // n sqrt n is that of blocks of sqrt n tokens, at lengths where these are whole.
    const bool root = claims.complexity == Complexity::kRootN;
    const int64_t small = root ? 1024 : 240, large = root ? 4096 : 480;
    const auto flops = [&](int64_t n) {
      Json options = kSmall;
      if (root) options["stride"] = options["block"] = std::lround(std::sqrt(n)), options["columns"] = 0;
      // As long as it is: what depends on the longest length belongs to a model of that length.
      const BuiltCore core = make_core(name, options, {.max_len = n});
      const Inputs in = random_inputs(1, 2, n, 5);
      return static_cast<double>(counted_flops([&] { (void)core(in.q, in.k, in.v); }));
    };
    if (flops(small) == 0) return;  // none
    const double expected = claims.growth > 0 ? claims.growth : root ? 8 : claims.complexity == kQuadratic ? 4 : 2;
    CHECK(flops(large) / flops(small) == Approx(expected).epsilon(0.05));
  });
}

TEST_CASE("an option key has one meaning over all attentions, and none belongs to a decorator and a base") {
  std::map<std::string, const OptionInfo*> known;
  std::set<std::string> of_bases;
  const auto check = [&](const std::string& owner, const std::vector<OptionInfo>& options) {
    std::set<std::string> own;
    for (const OptionInfo& info : options) {
      INFO(owner << " " << info.name);
      CHECK(own.insert(info.name).second);
      CHECK_FALSE(info.help.empty());
      CHECK(info.normalise(info.fallback) == info.fallback);  // a default keeps its own rule
      const auto [found, fresh] = known.emplace(info.name, &info);
      if (fresh) continue;
      CHECK(found->second->type == info.type);
      CHECK(found->second->help == info.help);
    }
  };
  for (const Descriptor& variant : all_variants().all()) {
    check(variant.name, variant.options);
    for (const OptionInfo& info : variant.options) of_bases.insert(info.name);
  }
  for (const Decorator& decorator : all_decorators().all()) {
    check(decorator.name, decorator.options);
    for (const OptionInfo& info : decorator.options) CHECK(of_bases.count(info.name) == 0);
  }
}

}  // namespace xformer::attention::contract
