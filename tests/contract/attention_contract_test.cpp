// What every attention promises (attention-core 0.5, 0.14 and 10), over all names of the registry.
#include <algorithm>

#include "contract/claims.h"
#include "tensor/op_counter.h"

namespace xformer::attention::contract {

TEST_CASE("output has the shape of the input at any length, also with one valid token") {
  for_each_name([](const std::string& name, const Claims&) {
    const BuiltMixer mixer = make_mixer(name, kSmall, {.max_len = 1751});
    for (const int64_t n : {1, 2, 7, 29, 93, 144, 315, 405, 1024, 1751}) {
      const at::Tensor x = tokens(2, n);
      const at::Tensor out = mixer(x, length_mask({n, 1}, n));
      REQUIRE(out.sizes() == x.sizes());
      CHECK(out.isfinite().all().item<bool>());
      CHECK(mixer(x).isfinite().all().item<bool>());
    }
  });
}

TEST_CASE("a training pass of any length reads nothing back, stays finite, and gives padding no gradient") {
  for_each_name([](const std::string& name, const Claims&) {
    const BuiltMixer mixer = make_mixer(name, kSmall, {.max_len = 1751, .dropout = 0.1, .type = at::kFloat});
    mixer.module->train();
    for (const int64_t n : {1, 2, 7, 29, 93, 144, 315, 405, 1024, 1751}) {
      const at::Tensor x = tokens(2, n).to(at::kFloat).requires_grad_(true);
      const SequenceMask mask = length_mask({n, 1}, n);
      at::Tensor out;
      {
        const OpCounter counter;
        out = mixer(x, mask);
        out.square().sum().backward();
        CHECK(counter.counts().reads == 0);
      }
      CHECK(out.isfinite().all().item<bool>());
      CHECK(x.grad().isfinite().all().item<bool>());
      CHECK(x.grad()[1].narrow(0, 1, n - 1).abs().sum().item<double>() == 0);
    }
  });
}

TEST_CASE("padding never leaks: content at padded positions changes no valid output bit") {
  for_each_name([](const std::string& name, const Claims& claims) {
    for (const bool causal : {false, true}) {
      if (causal && !claims.causal) continue;
      for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
        const BuiltMixer mixer = make_mixer(name, kSmall, {.causal = causal, .type = type});
        const SequenceMask mask = length_mask({48, 31}, 48, causal);
        const at::Tensor x = tokens(2, 48).to(type), padded = mask.key_valid.logical_not().unsqueeze(-1);
        const at::Tensor out = valid_rows(mixer(x, mask), mask);
        CHECK(at::equal(out, valid_rows(mixer(x.masked_fill(padded, 1e6), mask), mask)));
        const at::Tensor noise = at::where(padded, tokens(2, 48, 10, "noise").to(type) * 30, x);
        CHECK(at::equal(out, valid_rows(mixer(noise, mask), mask)));
      }
    }
  });
}

TEST_CASE("appended padding changes no valid output where that is claimed") {
  for_each_name([](const std::string& name, const Claims& claims) {
    for (const bool causal : {false, true}) {
      if (causal && !claims.causal) continue;
      const BuiltMixer mixer = make_mixer(name, kSmall, {.max_len = 70, .causal = causal});
      const at::Tensor x = tokens(2, 48), longer = at::cat({x, tokens(2, 17, 10, "appended")}, 1);
      const SequenceMask mask = length_mask({48, 31}, 48, causal);
      const at::Tensor out = valid_rows(mixer(x, mask), mask);
      const double change =
          max_difference(out, valid_rows(mixer(longer, length_mask({48, 31}, 65, causal)).narrow(1, 0, 48), mask));
      if (claims.appended_padding) CHECK(change < 1e-10);
      else CHECK(change > 1e-6);
      // A mask that is all true says the same as none.
      CHECK(max_difference(mixer(x, {{}, causal}), mixer(x, length_mask({48, 48}, 48, causal))) < 1e-12);
    }
  });
}

TEST_CASE("appended padding changes no valid output under the options that say so, and only there") {
  for_each_name([](const std::string& name, const Claims&) {
    const Resolved attention = resolve(name);
    std::vector<Json> sets = option_sets(attention);
    for (const auto& [key, value] : std::map<std::string, Json>{{"random_blocks", 0}, {"budget", 1}}) {
      sets.push_back(kSmall);
      sets.back()[key] = value;
    }
    for (const Json& options : sets) {
      INFO(options.dump());
      const BuiltMixer mixer = [&] {
        try {
          return make_mixer(name, options, {.max_len = 70});
        } catch (const UserError&) {  // refused: options that leave mrs- no core
          return BuiltMixer{};
        }
      }();
      if (!mixer.module) continue;
      // Weights that begin at zero would hide what depends on the length.
      for (const auto& [key, tensor] : mixer.parameters()) tensor.data().add_(random_tensor(key, tensor.sizes()), 0.1);
      const at::Tensor x = tokens(2, 48), longer = at::cat({x, tokens(2, 17, 10, "appended")}, 1);
      const SequenceMask mask = length_mask({48, 31}, 48);
      const double change = max_difference(valid_rows(mixer(x, mask), mask),
                                           valid_rows(mixer(longer, length_mask({48, 31}, 65)).narrow(1, 0, 48), mask));
      if (attention.base->appended_padding.holds(full_options(attention, options))) CHECK(change < 1e-9);
      else CHECK(change > 1e-6);
    }
  });
}

TEST_CASE("batch mates do not matter") {
  for_each_name([](const std::string& name, const Claims&) {
    const BuiltMixer mixer = make_mixer(name, kSmall);
    const at::Tensor x = tokens(2, 48), other = at::cat({x.narrow(0, 0, 1), tokens(1, 48, 10, "mate") * 5}, 0);
    const at::Tensor out = mixer(x, length_mask({31, 48}, 48))[0].narrow(0, 0, 31);
    CHECK(at::equal(out, mixer(other, length_mask({31, 20}, 48))[0].narrow(0, 0, 31)));
  });
}

TEST_CASE("a batch equals its samples and heads one at a time") {
  for_each_name([](const std::string& name, const Claims&) {
    const BuiltMixer mixer = make_mixer(name, kSmall);
    const at::Tensor x = tokens(3, 29);
    const SequenceMask mask = length_mask({29, 12, 5}, 29);
    const at::Tensor out = valid_rows(mixer(x, mask), mask);
    for (int64_t b = 0; b < 3; ++b) {
      const SequenceMask one{mask.key_valid.narrow(0, b, 1)};
      CHECK(max_difference(valid_rows(mixer(x.narrow(0, b, 1), one), one)[0], out[b]) < 1e-10);
    }
  });
}

TEST_CASE("the future is invisible to causal attention, and causality is refused where it has no form") {
  for_each_name([](const std::string& name, const Claims& claims) {
    if (!claims.causal) {
      CHECK_THROWS_AS(make_mixer(name, kSmall, {.causal = true}), UserError);
      return;
    }
    const BuiltMixer mixer = make_mixer(name, kSmall, {.max_len = 150, .causal = true});
    const int64_t n = 150;
    const at::Tensor x = tokens(1, n);
    const at::Tensor out = mixer(x, {{}, true});
    for (const int64_t seen : {1, 63, 64, 100}) {
      const at::Tensor changed = at::cat({x.narrow(1, 0, seen), tokens(1, n - seen, 10, "future") * 9}, 1);
      CHECK(max_difference(mixer(changed, {{}, true}).narrow(1, 0, seen), out.narrow(1, 0, seen)) < 1e-12);
      if (!claims.prefix_rows) continue;
      // The last row of a prefix is what the bidirectional form gives it (attention-core 3.12 for the performer).
      const BuiltMixer both = make_mixer(name, kSmall, {.max_len = 150});
      CHECK(max_difference(both(x.narrow(1, 0, seen))[0][seen - 1], out[0][seen - 1]) < 1e-10);
    }
  });
}

TEST_CASE("a constant value comes out as it is where that is claimed") {
  for_each_name([](const std::string& name, const Claims& claims) {
    if (!has_core(name)) return;
    const BuiltCore core = make_core(name, kSmall);
    const Inputs in = random_inputs(2, 2, 48, 5);
    const SequenceMask mask = length_mask({48, 31}, 48);
    const at::Tensor constant = random_tensor("constant", {1, 2, 1, 5}).expand({2, 2, 48, 5});
    const double change =
        max_difference(valid_rows(core(in.q, in.k, constant, mask), mask), valid_rows(constant, mask));
    if (claims.constant_v == Constant::kExact) CHECK(change < 1e-10);
    if (claims.constant_v == Constant::kNearly) CHECK(change < 1e-6);
    if (claims.constant_v == Constant::kNo) CHECK(change > 1e-3);
  });
}

TEST_CASE("permuting valid tokens permutes outputs where that is claimed, and only there") {
  for_each_name([](const std::string& name, const Claims& claims) {
    const BuiltMixer mixer = make_mixer(name, kSmall);
    const at::Tensor x = tokens(1, 20);
    const SequenceMask mask = length_mask({12}, 20);
    const at::Tensor order =
        at::cat({at::tensor({5, 3, 11, 0, 8, 1, 10, 2, 7, 4, 9, 6}, at::kLong), at::arange(12, 20, at::kLong)});
    const double change = max_difference(valid_rows(mixer(x.index_select(1, order), mask), mask),
                                         valid_rows(mixer(x, mask), mask).index_select(1, order));
    if (claims.permutation) CHECK(change < 1e-10);
    else CHECK(change > 1e-4);
  });
}

TEST_CASE("every parameter gets a gradient") {
  for_each_name([](const std::string& name, const Claims& claims) {
    const BuiltMixer mixer = make_mixer(name, kSmall);
    const SequenceMask mask = length_mask({48, 31}, 48);
    const at::Tensor out = valid_rows(mixer(tokens(2, 48), mask), mask);
    (out * random_tensor("weights", {2, 48, 10})).sum().backward();
    for (const auto& [key, parameter] : mixer.parameters()) {
      INFO(key);
      const double largest = gradient_of(parameter).abs().max().item<double>();
      const auto& blind = claims.without_gradient;
      if (std::find(blind.begin(), blind.end(), key) != blind.end()) CHECK(largest < 1e-10);
      else CHECK(largest > 1e-6);
    }
  });
}

TEST_CASE("gradients agree with finite differences in double precision") {
  for_each_name([](const std::string& name, const Claims& claims) {
    for (const bool causal : {false, true}) {
      if (causal && !claims.causal) continue;
      INFO("causal " << causal);
      const BuiltMixer mixer = make_mixer(name, kSmall, {.head_dim = 3, .max_len = 12, .causal = causal});
      const SequenceMask mask = length_mask({12, 7}, 12, causal);
      const at::Tensor x = tokens(2, 12, 6).requires_grad_(true), weights = random_tensor("weights", {2, 12, 6});
      auto tensors = mixer.parameters();
      tensors.emplace_back("x", x);
      check_gradients([&] { return (valid_rows(mixer(x, mask), mask) * weights).sum(); }, tensors);
    }
  });
}

TEST_CASE("a sample of one valid token and one of none give no NaN, forward or backward") {
  for_each_name([](const std::string& name, const Claims& claims) {
    for (const bool causal : {false, true}) {
      if (causal && !claims.causal) continue;
      for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
        const BuiltMixer mixer = make_mixer(name, kSmall, {.causal = causal, .type = type});
        const SequenceMask mask = length_mask({1, 0, 20}, 20, causal);
        const at::Tensor x = (tokens(3, 20) * 4).to(type).requires_grad_(true);
        const at::Tensor out = mixer(x, mask);
        CHECK(out.isfinite().all().item<bool>());
        out.square().sum().backward();
        CHECK(x.grad().isfinite().all().item<bool>());
        CHECK(x.grad()[1].abs().max().item<double>() == 0);
        for (const auto& [key, parameter] : mixer.parameters()) {
          INFO(key);
          CHECK(gradient_of(parameter).isfinite().all().item<bool>());
        }
        if (!has_core(name)) continue;
        // The core itself gives zero for the sample without a token, and passes no gradient.
        const BuiltCore core = make_core(name, kSmall, {.causal = causal, .type = type});
        Inputs in = random_inputs(3, 2, 20, 5);
        for (at::Tensor* part : {&in.q, &in.k, &in.v}) *part = part->to(type).requires_grad_(true);
        const at::Tensor mixed = core(in.q, in.k, in.v, mask);
        CHECK(mixed[1].abs().max().item<double>() == 0);
        mixed[1].sum().backward();
        for (const at::Tensor& part : {in.q, in.k, in.v}) CHECK(gradient_of(part).abs().max().item<double>() == 0);
      }
    }
  });
}

TEST_CASE("the same seed gives the same bits, in values and gradients; another seed others") {
  for_each_name([](const std::string& name, const Claims&) {
    const auto run = [&](uint64_t seed, double dropout) {
      const BuiltMixer mixer = make_mixer(name, kSmall, {.dropout = dropout, .seed = seed});
      mixer.module->train();
      const at::Tensor out = mixer(tokens(2, 48), length_mask({48, 31}, 48));
      out.square().sum().backward();
      return std::pair{out.detach(), gradient_of(mixer.parameters()[0].second).clone()};
    };
    for (const double dropout : {0.0, 0.3}) {
      const auto first = run(3, dropout), second = run(3, dropout), other = run(4, dropout);
      CHECK(at::equal(first.first, second.first));
      CHECK(at::equal(first.second, second.second));
      CHECK_FALSE(at::equal(first.first, other.first));
    }
  });
}

TEST_CASE("dropout runs in training only") {
  for_each_name([](const std::string& name, const Claims&) {
    const BuiltMixer with = make_mixer(name, kSmall, {.dropout = 0.5}), without = make_mixer(name, kSmall);
    CHECK(at::equal(with(tokens(2, 48)), without(tokens(2, 48))));
  });
}

TEST_CASE("parameters and buffers copied to another instance give the same outputs, and names are unique") {
  for_each_name([](const std::string& name, const Claims&) {
    const BuiltMixer saved = make_mixer(name, kSmall, {.seed = 3}), loaded = make_mixer(name, kSmall, {.seed = 4});
    const at::Tensor x = tokens(2, 48);
    CHECK_FALSE(at::equal(saved(x), loaded(x)));
    std::map<std::string, at::Tensor> file;
    for (const auto& [key, value] : saved.state()) CHECK(file.emplace(key, value.data()).second);
    for (const auto& [key, value] : loaded.state()) {
      REQUIRE(file.count(key) == 1);
      value.data().copy_(file.at(key));
      file.erase(key);
    }
    CHECK(file.empty());
    CHECK(at::equal(saved(x), loaded(x)));
  });
}

TEST_CASE("the dense limit equals softmax") {
  int limits = 0;
  for_each_name([&](const std::string& name, const Claims&) {
    const Resolved attention = resolve(name);
    if (!attention.base->dense_limit || !has_core(name)) return;
    ++limits;
    Json options = *attention.base->dense_limit;
    if (attention.decorator != nullptr) options["scales"] = {1};
    const Inputs in = random_inputs(2, 2, 48, 5);
    const SequenceMask mask = length_mask({48, 31}, 48);
    const at::Tensor out = make_core(name, options)(in.q, in.k, in.v, mask);
    CHECK(max_difference(valid_rows(out, mask), valid_rows(dense_softmax(in, mask), mask)) < 1e-10);
  });
  CHECK(limits > 0);
}

}  // namespace xformer::attention::contract
