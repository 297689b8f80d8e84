// What cross_ok promises: keys and values of another sequence, with the mask of each, over all names of the registry.
#include "attention/multi_head.h"

#include <set>

#include "contract/claims.h"
#include "tensor/op_counter.h"

namespace xformer::attention::contract {

namespace {

struct Cross : Built<MultiHeadMixer> {
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& other, const SequenceMask& mask = {},
                        const SequenceMask& other_mask = {}) const {
    Carry carry;
    return module->cross(x, mask, other, other_mask, carry).made();
  }
};

// `longest`: of the other sequence.
Cross make_cross(const std::string& name, int64_t longest, const Setup& setup = {}, const Json& options = kSmall) {
  const Resolved attention = resolve(name);
  BuildContext context = make_context(setup);
  context.max_len = longest;
  Cross result{{build_cross(attention, full_options(attention, options), context), context.shared}};
  result.module->to(setup.type);
  result.shared->to(setup.type);
  result.module->eval();
  return result;
}

// The names that claim it are written down, so that a claim that goes missing is noticed.
const std::set<std::string> kCross{"softmax",        "softmax-fused",     "linear",         "performer",
                                   "performer-relu", "linformer",         "conv-linformer", "luna",
                                   "additive",       "explicit-sparse",   "entmax15",       "sparsemax",
                                   "rfa-gaussian",   "adaptively-sparse", "rfa-arccos",     "set-induced"};

void for_each_cross(const std::function<void(const std::string&)>& check) {
  for (const std::string& name : kCross) {
    INFO(name);
    REQUIRE(resolve(name).traits().cross_ok);
    check(name);
  }
}

}  // namespace

TEST_CASE("a name takes keys of another sequence if it says so, and is refused with the reason if not") {
  for_each_name([](const std::string& name, const Claims&) {
    const bool claims = kCross.count(name) == 1;
    CHECK(resolve(name).traits().cross_ok == claims);
    if (claims) CHECK_NOTHROW(make_cross(name, 30));
    else
      CHECK_THROWS_WITH(make_cross(name, 30),
                        Catch::Matchers::StartsWith(name) && Catch::Matchers::Contains("another sequence"));
  });
}

TEST_CASE("cross attention gives each query a row, however many keys there are") {
  for_each_cross([](const std::string& name) {
    const Cross cross = make_cross(name, 64);
    for (const auto& [queries, keys] : {std::pair{1, 1}, {1, 64}, {7, 30}, {30, 7}, {30, 30}, {64, 1}}) {
      INFO(queries << " queries, " << keys << " keys");
      const at::Tensor out = cross(tokens(2, queries), tokens(2, keys, 10, "other"), length_mask({queries, 1}, queries),
                                   length_mask({keys, 1}, keys));
      CHECK(out.sizes() == at::IntArrayRef({2, queries, 10}));
      CHECK(out.isfinite().all().item<bool>());
    }
  });
}

TEST_CASE("cross attention to the sequence itself is attention within it") {
  for_each_cross([](const std::string& name) {
    const Cross cross = make_cross(name, 48);
    const BuiltMixer own = make_mixer(name, kSmall);
    // Values that both draw under one name; parameters that layers share have one of their own.
    std::map<std::string, at::Tensor> values;
    for (const auto& [key, value] : own.state()) values[key] = value.data();
    for (const auto& [key, value] : cross.state())
      value.data().copy_(values.at(key.starts_with("shared.cross_") ? "shared." + key.substr(13) : key));
    const at::Tensor x = tokens(2, 48);
    const SequenceMask mask = length_mask({48, 31}, 48);
    CHECK(max_difference(cross(x, x, mask, mask), own(x, mask)) < 1e-12);
    CHECK(max_difference(cross(x, x), own(x)) < 1e-12);
  });
}

TEST_CASE("cross attention is dense softmax where there is a dense limit") {
  int limits = 0;
  for_each_cross([&](const std::string& name) {
    if (!resolve(name).base->dense_limit) return;
    ++limits;
    for (const auto& [queries, keys] : {std::pair{9, 20}, {20, 9}, {20, 20}}) {
      const Cross cross = make_cross(name, 20, {}, *resolve(name).base->dense_limit);
      const auto parameters = cross.module->named_parameters();
      const at::Tensor x = tokens(2, queries), other = tokens(2, keys, 10, "other");
      const SequenceMask mask = length_mask({queries, 5}, queries), other_mask = length_mask({keys, 8}, keys);
      const auto map = [&](const std::string& part, const at::Tensor& rows) {
        return at::linear(rows, parameters[part + ".weight"], parameters[part + ".bias"]);
      };
      const auto heads = [](const at::Tensor& rows) { return rows.view({2, -1, 2, 5}).transpose(1, 2).contiguous(); };
      const at::Tensor mixed =
          dense_softmax({heads(map("query", x)), heads(map("key", other)), heads(map("value", other))}, other_mask);
      const at::Tensor meant = map("out", valid_rows(mixed, mask).transpose(1, 2).reshape({2, queries, 10}));
      CHECK(max_difference(cross(x, other, mask, other_mask), meant) < 1e-10);
    }
  });
  CHECK(limits >= 2);
}

TEST_CASE("a query of cross attention is answered alone, whatever is asked beside it") {
  for_each_cross([](const std::string& name) {
    const Cross cross = make_cross(name, 20);
    const at::Tensor x = tokens(2, 30), other = tokens(2, 20, 10, "other");
    const SequenceMask other_mask = length_mask({20, 13}, 20);
    const at::Tensor out = cross(x, other, {}, other_mask);
    for (const int64_t first : {0, 10, 29})
      CHECK(max_difference(cross(x.narrow(1, first, 1), other, {}, other_mask), out.narrow(1, first, 1)) < 1e-10);
    CHECK(max_difference(cross(x.narrow(1, 5, 20), other, {}, other_mask), out.narrow(1, 5, 20)) < 1e-10);
  });
}

TEST_CASE("padding of the other sequence never leaks, and says nothing of the queries") {
  for_each_cross([](const std::string& name) {
    for (const auto& [queries, keys] : {std::pair{12, 40}, {40, 12}, {24, 24}}) {
      INFO(queries << " queries, " << keys << " keys");
      const Cross cross = make_cross(name, 40);
      const at::Tensor x = tokens(2, queries), other = tokens(2, keys, 10, "other");
      const SequenceMask mask = length_mask({queries, 9}, queries), other_mask = length_mask({keys, 5}, keys);
      const at::Tensor padded = other_mask.key_valid.logical_not().unsqueeze(-1);
      const at::Tensor out = cross(x, other, mask, other_mask);
      CHECK(at::equal(out, cross(x, other.masked_fill(padded, 1e6), mask, other_mask)));
      // Rows of valid queries are answers, those of padded ones the output map's bias.
      const at::Tensor bias = cross.module->named_parameters()["out.bias"];
      const at::Tensor plain = (out - bias).abs().amax(-1) < 1e-12;
      CHECK(at::equal(plain, mask.key_valid.logical_not()));
      // A sequence without a token answers with nothing.
      CHECK(max_difference(cross(x, other, mask, length_mask({keys, 0}, keys))[1], bias.expand({queries, 10})) < 1e-12);
    }
  });
}

TEST_CASE("gradients of cross attention agree with finite differences") {
  for_each_cross([](const std::string& name) {
    for (const auto& [queries, keys] : {std::pair{5, 12}, {12, 5}, {9, 9}}) {
      INFO(queries << " queries, " << keys << " keys");
      const Cross cross = make_cross(name, 12, {.head_dim = 3});
      const at::Tensor x = tokens(2, queries, 6).requires_grad_(true);
      const at::Tensor other = tokens(2, keys, 6, "other").requires_grad_(true);
      const SequenceMask mask = length_mask({queries, 3}, queries), other_mask = length_mask({keys, 4}, keys);
      const at::Tensor weights = random_tensor("weights", {2, queries, 6});
      auto tensors = cross.parameters();
      tensors.emplace_back("x", x);
      tensors.emplace_back("other", other);
      check_gradients([&] { return (cross(x, other, mask, other_mask) * weights).sum(); }, tensors);
      CHECK(other.grad()[1].narrow(0, 4, keys - 4).abs().sum().item<double>() == 0);
    }
  });
}

TEST_CASE("cross attention is counted: FLOPs executed equal its cost, of whichever lengths") {
  for_each_cross([](const std::string& name) {
    const Cross cross = make_cross(name, 60);
    for (const auto& [queries, keys] : {std::pair{20, 60}, {60, 20}, {20, 20}}) {
      const OpCounter counter;
      (void)cross(tokens(3, queries), tokens(3, keys, 10, "other"), {}, length_mask({keys, keys, keys}, keys));
      CHECK(static_cast<double>(counter.counts().flops) == cross.module->cross_cost(3, queries, keys).flops_executed);
    }
  });
}

TEST_CASE("cross attention sees all of the other sequence, also in a causal model") {
  for_each_cross([](const std::string& name) {
    const Cross cross = make_cross(name, 20), causal = make_cross(name, 20, {.causal = true});
    const at::Tensor x = tokens(2, 20), other = tokens(2, 20, 10, "other");
    CHECK(at::equal(cross(x, other), causal(x, other, {{}, true}, {})));
  });
}

}  // namespace xformer::attention::contract
