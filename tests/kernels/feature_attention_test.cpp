// Fused feature attention against its definition with all features: outputs and gradients, over maps, shapes and masks.
#include <ATen/Parallel.h>

#include "core/error.h"
#include "feature_attention_support.h"
#include "kernels/feature_attention/tiles.h"
#include "kernels/policy.h"
#include "tensor/memory.h"
#include "tensor/op_counter.h"
#include "tensor/probe.h"

namespace xformer::kernels {

TEST_CASE("fused feature attention equals its definition, with gradients, for any map, shape and mask") {
  const std::vector<FeatureCase> cases = {
      {1, 1, 1, 1, 1, 1, 1},
      {2, 2, 1, 1, 4, 4, 3},
      {2, 2, 7, 7, 4, 4, 12},
      {3, 2, 65, 257, 8, 5, 20, true},
      {3, 3, 301, 301, 5, 8, 33, true, true},
      {2, 2, 513, 30, 8, 8, 16, true, true},
      {3, 1, 1024, 2500, 4, 4, 40, true},
      {3, 2, 2050, 1025, 4, 3, 7, true, true},
      {1, 2, 300, 300, 8, 8, 256},
      {1, 1, 40, 40, 4, 4, 5000},
      {1, 1, 1, 1, 1, 1, 1, false, false, true},
      {2, 2, 32, 32, 4, 4, 12, false, false, true},
      {2, 3, 33, 33, 5, 8, 20, true, false, true},
      {3, 3, 301, 301, 5, 8, 33, true, true, true},
      {3, 2, 1090, 1090, 8, 3, 7, true, true, true},
      {1, 2, 300, 300, 8, 8, 256, false, false, true},
      {1, 1, 70, 70, 4, 4, 5000, false, false, true},
      {2, 1, 256, 256, 8, 4, 12, false, false, true},
      {2, 1, 257, 257, 8, 4, 12, true, true, true},
      {1, 1, 785, 785, 4, 8, 48, false, false, true},
  };
  for (const Form form : kForms)
    for (const FeatureCase& one : cases) {
      CAPTURE(static_cast<int>(form), one.n, one.m, one.f, one.masked, one.holes);
      CHECK(difference_of(form, one) < 1e-11);
      CHECK(is_near_in_float(options_of(form, one, at::kDouble), inputs_of(one, at::kDouble)));
    }
}

TEST_CASE("fused feature attention over random shapes") {
  Stream numbers(98);
  const auto below = [&](uint64_t bound) { return static_cast<int64_t>(numbers.next_below(bound)); };
  for (int turn = 0; turn < 60; ++turn) {
    const Form form = kForms[below(5)];
    FeatureCase one{1 + below(3),  1 + below(3),  1 + below(400), 2 + below(600),
                    2 + below(20), 1 + below(20), 2 + below(90)};
    if (below(2) == 0) one.m = one.n;
    one.masked = below(2) == 0;
    one.holes = below(2) == 0;
    one.causal = one.m == one.n && below(2) == 0;
    CAPTURE(static_cast<int>(form), one.b, one.h, one.n, one.m, one.d, one.e, one.f, one.masked, one.holes, one.causal);
    CHECK(difference_of(form, one) < 1e-11);
  }
}

TEST_CASE("fused feature attention without samples, heads or tokens is empty") {
  for (const Form form : kForms) {
    CHECK(difference_of(form, {0, 2, 5, 5, 4, 4, 6}) == 0);
    const FeatureAttentionOptions options = options_of(form, 4, 6, at::kFloat);
    const at::Tensor x = random_tensor("x", {2, 2, 0, 4}, at::kFloat).requires_grad_(true);
    const at::Tensor out = feature_attention(x, x, x, options);
    CHECK(out.sizes() == x.sizes());
    CHECK_NOTHROW(out.sum().backward());
  }
}

TEST_CASE("fused feature attention: keys whose scores climb far beyond exp's range, and fall again") {
  // Every tile brings a new maximum, and rescales what was summed before; then none does.
  FeatureAttentionOptions options = options_of(Form::kSoftmax, 6, 24, at::kDouble);
  const FeatureCase one{1, 1, 2500, 2500, 6, 4, 24};
  for (const auto& [causal, falls] : {std::pair(false, false), {false, true}, {true, false}, {true, true}}) {
    options.mask.causal = causal;
    Tensors inputs = inputs_of(one, at::kDouble);
    at::Tensor slope = at::linspace(0.1, 40, one.m, at::kDouble);
    if (falls) slope = slope.flip(0);
    inputs[1] = inputs[1] * slope.view({1, 1, one.m, 1});
    CHECK(worst_difference(fused(options), reference(options), inputs) < 1e-11);
  }
}

TEST_CASE("fused feature attention gives the gradient of the largest score to the first of equal keys") {
  // The winner stands four times, in several tiles and parts; in one sample its first place is a hole. A zero row ties
  // all features.
  FeatureAttentionOptions options = options_of(Form::kSoftmax, 8, 32, at::kDouble);
  options.mask.key_valid = at::ones({2, 2100}, at::kBool);
  options.mask.key_valid[1][13] = false;
  Tensors inputs = inputs_of({2, 2, 2100, 2100, 8, 8, 32}, at::kDouble);
  for (const int64_t place : {13, 700, 1300, 2090}) {
    inputs[1].select(2, place).copy_(options.omega[5] * 3);
    inputs[2].select(2, place).fill_(1);
  }
  inputs[0].select(2, 4).zero_();
  inputs[1].select(2, 4).zero_();
  CHECK(worst_difference(fused(options), reference(options), inputs) < 1e-11);
  CHECK(is_near_in_float(options, inputs));
  // Equal keys with equal values have equal gradients, but for the winner's share.
  const at::Tensor dk = run_with_gradients(fused(options), inputs)[2];
  const auto differ = [&](int64_t sample, int64_t a, int64_t b) {
    return difference(dk[sample].select(1, a), dk[sample].select(1, b));
  };
  CHECK(differ(0, 13, 700) > 1e-3);
  CHECK(differ(0, 700, 2090) < 1e-12);
  CHECK(differ(1, 700, 2090) > 1e-3);
  CHECK(differ(1, 1300, 2090) < 1e-12);
}

TEST_CASE("fused feature attention takes views as they lie, and lays its result out for an output projection") {
  const at::Tensor packed = random_tensor("packed", {2, 40, 3, 3, 8});  // [b, n, h, 3, d]
  const auto part = [&](int64_t which) { return packed.select(3, which).transpose(1, 2); };
  const at::Tensor odd = random_tensor("odd", {2, 3, 8, 40}).transpose(2, 3);
  const at::Tensor same_row = odd.narrow(2, 0, 1).expand({2, 3, 9, 8});
  for (const Form form : kForms) {
    const FeatureAttentionOptions options = options_of(form, 8, 16, at::kDouble);
    const at::Tensor got = feature_attention(part(0), part(1), part(2), options);
    CHECK(difference(got, feature_attention_reference(part(0), part(1), part(2), options)) < 1e-13);
    CHECK(got.transpose(1, 2).is_contiguous());
    CHECK(worst_difference(fused(options), reference(options), {odd, odd, odd}) < 1e-12);
    CHECK(worst_difference(fused(options), reference(options), {odd, same_row, same_row}) < 1e-9);
  }
}

TEST_CASE("fused feature attention gives the same bits with any number of threads") {
  const int before = at::get_num_threads();
  for (const Form form : kForms)
    for (const FeatureCase& one : {FeatureCase{1, 1, 3000, 3000, 8, 8, 40, true, true},
                                   {3, 3, 130, 130, 8, 8, 40, true},
                                   {3, 3, 130, 130, 8, 8, 40, true, true, true}}) {
      const FeatureAttentionOptions options = options_of(form, one, at::kFloat);
      at::set_num_threads(1);
      const Tensors alone = run_with_gradients(fused(options), inputs_of(one, at::kFloat));
      for (const int threads : {2, 5}) {
        at::set_num_threads(threads);
        const Tensors got = run_with_gradients(fused(options), inputs_of(one, at::kFloat));
        for (size_t i = 0; i < got.size(); ++i) CHECK(at::equal(got[i], alone[i]));
      }
    }
  at::set_num_threads(before);
}

TEST_CASE("fused feature attention keeps no features: its memory is that of a few activations") {
  install_caching_allocator();
  FeatureAttentionOptions options = options_of(Form::kSoftmax, 16, 256, at::kFloat);
  const auto peak = [&](int64_t n) {
    at::Tensor x = random_tensor("x", {1, 2, n, 16}, at::kFloat).requires_grad_(true);
    reset_host_peak();
    const int64_t before = host_memory().live_bytes;
    feature_attention(x, x, x, options).sum().backward();
    return host_memory().peak_bytes - before;
  };
  for (const bool causal : {false, true}) {
    options.mask.causal = causal;
    const int64_t shorter = peak(4096), longer = peak(16384);
    CHECK(longer <= 5 * shorter);
    CHECK(longer < 2 * 16384 * 256 * static_cast<int64_t>(sizeof(float)));  // one tensor of features
  }
}

TEST_CASE("fused feature attention: nothing comes out of NaN but NaN, and nothing of padding") {
  for (const Form form : kForms) {
    FeatureAttentionOptions options = options_of(form, 4, 9, at::kFloat);
    at::Tensor q = random_tensor("q", {1, 1, 5, 4}, at::kFloat), k = random_tensor("k", {1, 1, 300, 4}, at::kFloat);
    at::Tensor v = k.clone();
    q[0][0][2][1] = NAN;
    const at::Tensor rows = feature_attention(q, k, v, options).isnan().any(-1).view({5});
    CHECK(rows.sum().item<int64_t>() == 1);
    CHECK(rows[2].item<bool>());
    q[0][0][2][1] = 0;
    k[0][0][77][3] = NAN;
    CHECK(feature_attention(q, k, v, options).isnan().all().item<bool>());
    k[0][0][77][3] = 0;
    // Behind the last valid key anything may stand.
    const at::Tensor short_k = k.narrow(2, 0, 200), short_v = v.narrow(2, 0, 200);
    const at::Tensor meant = feature_attention_reference(q, short_k, short_v, options);
    k.narrow(2, 200, 100).fill_(NAN);
    v.narrow(2, 200, 100).fill_(NAN);
    options.mask.key_valid = at::arange(300).lt(200).unsqueeze(0);
    CHECK(difference(feature_attention(q, k, v, options), meant) < 1e-5);
  }
}

TEST_CASE("fused feature attention: rows of padded queries are zero and get no gradient") {
  for (const Form form : kForms) {
    const FeatureCase one{3, 2, 90, 90, 4, 4, 12, true, true};
    const FeatureAttentionOptions options = options_of(form, one, at::kDouble);
    const Tensors got = run_with_gradients(fused(options), inputs_of(one, at::kDouble));
    const at::Tensor padded = options.query_valid.logical_not().unsqueeze(1).unsqueeze(-1);
    for (const at::Tensor& each : got) CHECK(each.masked_select(padded).abs().sum().item<double>() == 0);
    CHECK(got[0][0].abs().min().item<double>() > 0);
  }
}

TEST_CASE("fused feature attention counts what it multiplied, as its definition does, and skips padding") {
  const at::Tensor x = random_tensor("x", {1, 2, 600, 8}, at::kFloat);
  const auto flops = [&](const auto& run) {
    const OpCounter counter;
    static_cast<void>(run());
    return counter.counts().flops;
  };
  for (const Form form : kForms) {
    FeatureAttentionOptions options = options_of(form, 8, 24, at::kFloat);
    const int64_t f = options.omega.defined() ? 24 : 8, columns = options.divisor > 0 ? 8 : 9;
    const int64_t row = 2 * 2 * 2 * f * (columns + (options.omega.defined() ? 8 : 0));  // keys and queries of two heads
    const int64_t all = flops([&] { return feature_attention(x, x, x, options); });
    CHECK(all == 600 * row);
    CHECK(all == flops([&] { return feature_attention_reference(x, x, x, options); }));
    options.mask.key_valid = options.query_valid = at::arange(600).lt(150).unsqueeze(0);
    CHECK(flops([&] { return feature_attention(x, x, x, options); }) == 150 * row);
  }
}

TEST_CASE("--kernels=check holds fused feature attention against its definition, --kernels=reference runs that") {
  const at::Tensor x = random_tensor("x", {1, 2, 30, 8}, at::kFloat).requires_grad_(true);
  for (const Form form : kForms) {
    FeatureAttentionOptions options = options_of(form, 8, 24, at::kFloat);
    set_policy(Policy::kCheck);
    CHECK_NOTHROW(feature_attention(x, x, x, options).sum().backward());
    set_policy(Policy::kReference);
    const at::Tensor out = feature_attention(x, x, x, options);
    set_policy(Policy::kAuto);
    CHECK(at::equal(out, feature_attention_reference(x, x, x, options)));
    // A listener hears the features, whose product with z is the denominator.
    const ProbeRecorder recorder([](const std::string&) { return true; });
    CHECK(at::equal(feature_attention(x, x, x, options), out));
    CHECK(recorder.seen().size() == (form == Form::kEluPlain ? 2 : 3));
  }
}

TEST_CASE("the largest of rows of features and the first that reaches it, by every way") {
  for (const FeatureLoops& way : ways_to_make_features())
    for (const int64_t f : {1, 5, 16, 31, 64, 150}) {
      const int64_t rows = 7;
      std::vector<float> tile(static_cast<size_t>(rows * f)), largest(static_cast<size_t>(rows));
      std::vector<int64_t> winners(static_cast<size_t>(rows));
      for (int64_t i = 0; i < rows * f; ++i) tile[static_cast<size_t>(i)] = static_cast<float>((i * 7919) % 41) - 60;
      way.largest(tile.data(), rows, f, largest.data(), winners.data());
      for (int64_t r = 0; r < rows; ++r) {
        const auto begin = tile.begin() + r * f, most = std::max_element(begin, begin + f);  // the first of equal ones
        CHECK((largest[static_cast<size_t>(r)] == *most && winners[static_cast<size_t>(r)] == most - begin));
      }
      std::fill(tile.begin(), tile.end(), NAN);
      way.largest(tile.data(), rows, f, largest.data(), winners.data());
      CHECK((std::isnan(largest[3]) && winners[3] == -1));
    }
}

TEST_CASE("features of a tile and their gradients, by every way, are those in double") {
  const auto numbers = [](const char* name, int64_t count) {
    const at::Tensor x = random_tensor(name, {count}, at::kFloat);
    return std::vector<float>(x.data_ptr<float>(), x.data_ptr<float>() + count);
  };
  const auto wide = [](const std::vector<float>& x) { return std::vector<double>(x.begin(), x.end()); };
  const auto error = [](const std::vector<float>& got, const std::vector<double>& meant) {
    double most = 0, largest = 1;
    for (size_t i = 0; i < got.size(); ++i) {
      most = std::max(most, std::abs(static_cast<double>(got[i]) - meant[i]));
      largest = std::max(largest, std::abs(meant[i]));
    }
    return most / largest;
  };
  constexpr float kFloor = 0.125F;
  for (const FeatureLoops& way : ways_to_make_features())
    for (const FeatureMap map : {FeatureMap::kElu, FeatureMap::kRelu, FeatureMap::kSoftmax})
      for (const int64_t f : {1, 16, 37, 64})
        for (const int64_t rows : {1, 4, 11})
          for (const bool ragged : {false, true}) {
            CAPTURE(static_cast<int>(map), f, rows, ragged);
            const auto y = numbers("y", rows * f), shift = numbers("shift", rows), sums = numbers("sums", f),
                       slope = numbers("slope", rows * f), factor = numbers("factor", rows);
            bool valid[11];
            for (int64_t r = 0; r < 11; ++r) valid[r] = !ragged || (r != 1 && r != 6);
            const bool* const flags = ragged ? valid : nullptr;

            auto tile = y, gained = sums;
            auto tile_meant = wide(tile), gained_meant = wide(gained);
            way.keys(map, tile.data(), rows, f, shift.data(), flags, kFloor, gained.data());
            features_of_keys(map, tile_meant.data(), rows, f, wide(shift).data(), flags, kFloor, gained_meant.data());
            CHECK(error(tile, tile_meant) < 3e-6);
            CHECK(error(gained, gained_meant) < 3e-6);

            tile = y, tile_meant = wide(y);
            std::vector<float> dots(static_cast<size_t>(rows));
            auto dots_meant = wide(dots);
            way.queries(map, tile.data(), rows, f, shift.data(), kFloor, sums.data(), dots.data());
            features_of_queries(map, tile_meant.data(), rows, f, wide(shift).data(), kFloor, wide(sums).data(),
                                dots_meant.data());
            CHECK(error(tile, tile_meant) < 3e-6);
            CHECK(error(dots, dots_meant) < 3e-6);

            for (const bool scaled : {false, true}) {  // a query's gradients, and a key's
              tile = y, tile_meant = wide(y), gained = sums, gained_meant = wide(sums);
              auto gradient = slope, totals = dots;
              auto gradient_meant = wide(slope), totals_meant = wide(dots);
              const auto factor_wide = wide(factor);
              way.gradients(map, tile.data(), gradient.data(), rows, f, shift.data(), flags, kFloor, sums.data(),
                            scaled ? factor.data() : nullptr, scaled ? gained.data() : nullptr, totals.data());
              gradients_of_features(map, tile_meant.data(), gradient_meant.data(), rows, f, wide(shift).data(), flags,
                                    static_cast<double>(kFloor), wide(sums).data(),
                                    scaled ? factor_wide.data() : nullptr, scaled ? gained_meant.data() : nullptr,
                                    totals_meant.data());
              CHECK(error(tile, tile_meant) < 3e-6);
              CHECK(error(gradient, gradient_meant) < 3e-6);
              CHECK(error(gained, gained_meant) < 3e-6);
              if (map == FeatureMap::kSoftmax) CHECK(error(totals, totals_meant) < 3e-6);
            }
          }
}

}  // namespace xformer::kernels
