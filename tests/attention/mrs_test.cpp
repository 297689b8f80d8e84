// The decorator mrs around every core (attention-core 3.17).
#include <algorithm>

#include "attention/support.h"

namespace xformer::attention::mrs_test {

using namespace support;

std::vector<std::string> base_names() {
  std::vector<std::string> result;
  for (const Descriptor& base : all_variants().all())
    if (base.build_core) result.push_back(base.name);
  return result;
}

// Masked means of groups of s tokens after the first `pinned`, in loops; and the mask of the groups.
at::Tensor pooled(const at::Tensor& x, const SequenceMask& mask, int64_t s, int64_t pinned = 0) {
  const int64_t n = x.size(2), groups = pooled_len(n, s, pinned);
  at::Tensor result = at::zeros({x.size(0), x.size(1), groups, x.size(3)}, at::kDouble);
  for (int64_t b = 0; b < x.size(0); ++b)
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t first = g < pinned ? g : pinned + (g - pinned) * s,
                    last = g < pinned ? g + 1 : std::min(n, first + s);
      double count = 0;
      for (int64_t t = first; t < last; ++t)
        if (mask.all_valid() || mask.key_valid[b][t].item<bool>()) {
          ++count;
          result.select(0, b).select(1, g) += x.select(0, b).select(1, t);
        }
      result.select(0, b).select(1, g) /= std::max(count, 1.0);
    }
  return result;
}

SequenceMask pooled_mask(const SequenceMask& mask, int64_t s) {
  if (mask.all_valid()) return mask;
  const int64_t n = mask.key_valid.size(1), groups = (n + s - 1) / s;
  SequenceMask result{at::zeros({mask.key_valid.size(0), groups}, at::kBool)};
  for (int64_t b = 0; b < mask.key_valid.size(0); ++b)
    for (int64_t t = 0; t < n; ++t)
      if (mask.key_valid[b][t].item<bool>()) result.key_valid[b][t / s] = true;
  return result;
}

TEST_CASE("mrs with scales of one equals its base in every bit") {
  for (const std::string& base : base_names()) {
    INFO(base);
    const Inputs in = random_inputs(2, 2, 48, 5);
    const SequenceMask mask = length_mask({48, 31}, 48);
    CHECK(at::equal(make_core("mrs-" + base, {{"scales", {1}}})(in.q, in.k, in.v, mask),
                    make_core(base)(in.q, in.k, in.v, mask)));
  }
}

TEST_CASE("mrs-softmax equals softmax on pooled tokens in loops, for ragged lengths and length 1") {
  const std::vector<int64_t> scales = {1, 2, 5, 2};  // groups that are no run and no even spacing are covered below
  for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{48, 31}, {1, 47}, {48, 48}}) {
    const Inputs in = random_inputs(2, 4, 48, 5);
    const SequenceMask mask = length_mask(lengths, 48);
    const at::Tensor out = make_core("mrs-softmax", {{"scales", scales}}, {.heads = 4})(in.q, in.k, in.v, mask);
    for (int64_t h = 0; h < 4; ++h) {
      const int64_t s = scales[static_cast<size_t>(h)];
      const auto pool = [&](const at::Tensor& x) { return pooled(x.narrow(1, h, 1), mask, s); };
      const at::Tensor wanted = dense_softmax({pool(in.q), pool(in.k), pool(in.v)}, pooled_mask(mask, s))
                                    .repeat_interleave(s, 2)
                                    .narrow(2, 0, 48);
      CHECK(max_difference(valid_rows(out.narrow(1, h, 1), mask), valid_rows(wanted, mask)) < 1e-10);
    }
  }
  const Inputs one = random_inputs(2, 2, 1, 5);
  CHECK(max_difference(make_core("mrs-softmax")(one.q, one.k, one.v), one.v) < 1e-12);
}

TEST_CASE("mrs repeats its list over the heads and puts heads back where they were") {
  const Inputs in = random_inputs(1, 6, 20, 5);
  const auto run = [&](const std::vector<int64_t>& scales) {
    return make_core("mrs-softmax", {{"scales", scales}}, {.heads = 6})(in.q, in.k, in.v);
  };
  const at::Tensor by_scale[] = {run({1}), run({2}), run({3})};
  for (const std::vector<int64_t>& scales :
       {std::vector<int64_t>{1, 2}, {1, 2, 3}, {3, 1, 2}, {1, 1, 2, 1, 3, 2}, {2, 1, 1, 2, 1, 3}}) {
    const at::Tensor out = run(scales);
    for (int64_t h = 0; h < 6; ++h) {
      const int64_t s = scales[static_cast<size_t>(h) % scales.size()];
      CHECK(max_difference(out[0][h], by_scale[s - 1][0][h]) < 1e-12);
    }
  }
}

TEST_CASE("mrs golden number") {
  // Pairs have mean keys 0 and ln 3 and mean values 0 and 4: weights 1/4 and 3/4, every row 3.
  const double a = std::log(3.0);
  const BuiltCore core = make_core("mrs-softmax", {{"scales", {2}}}, {.heads = 1, .head_dim = 1});
  const at::Tensor out = core(column({2, 0, 1, 1}), column({-1, 1, a - 2, a + 2}), column({5, -5, 3, 5}));
  for (int64_t i = 0; i < 4; ++i) CHECK(out[0][0][i][0].item<double>() == Approx(3));
}

TEST_CASE("mrs heads whose tokens are constant within groups equal the base") {
  const Inputs small = random_inputs(2, 2, 12, 5);
  const auto spread = [](const at::Tensor& x) { return x.repeat_interleave(4, 2); };
  const Inputs in{spread(small.q), spread(small.k), random_tensor("values", {2, 2, 48, 5})};
  const at::Tensor out = make_core("mrs-softmax", {{"scales", {4}}})(in.q, in.k, in.v);
  CHECK(max_difference(out, dense_softmax(in)) < 1e-10);
}

TEST_CASE("mrs keeps a constant value and gives the tokens of a group the same output") {
  const Inputs in = random_inputs(2, 2, 47, 5);
  const SequenceMask mask = length_mask({47, 30}, 47);
  for (const std::string base : {"softmax", "softmax-fused", "performer"}) {
    const BuiltCore core = make_core("mrs-" + base, {{"scales", {1, 4}}});
    const at::Tensor constant = random_tensor("constant", {1, 2, 1, 5}).expand({2, 2, 47, 5});
    CHECK(max_difference(valid_rows(core(in.q, in.k, constant, mask), mask), valid_rows(constant, mask)) < 1e-10);
    const at::Tensor out = core(in.q, in.k, in.v, mask);
    for (int64_t i = 0; i < 47; ++i)
      CHECK(at::equal(out.select(1, 1).select(1, i), out.select(1, 1).select(1, i / 4 * 4)));
  }
}

TEST_CASE("mrs commutes with a permutation that keeps groups together") {
  const Inputs in = random_inputs(1, 2, 12, 5);
  // Groups of 4: the third, the first, the second, and other orders within them.
  const at::Tensor order = at::tensor({11, 8, 9, 10, 1, 0, 3, 2, 4, 6, 5, 7}, at::kLong);
  const auto permute = [&](const at::Tensor& x) { return x.index_select(2, order); };
  const BuiltCore core = make_core("mrs-softmax", {{"scales", {1, 4}}});
  CHECK(max_difference(core(permute(in.q), permute(in.k), permute(in.v)), permute(core(in.q, in.k, in.v))) < 1e-10);
}

TEST_CASE("mrs leaves pinned tokens alone: groups of their own, not repeated") {
  const Inputs in = random_inputs(2, 2, 12, 5);
  const at::Tensor out = make_core("mrs-softmax", {{"scales", {3}}}, {.pinned = 1})(in.q, in.k, in.v);
  const auto pool = [&](const at::Tensor& x) { return pooled(x, {}, 3, 1); };
  const at::Tensor groups = dense_softmax({pool(in.q), pool(in.k), pool(in.v)});  // [2,2,1 + 4,5]
  REQUIRE(groups.size(2) == 5);
  for (int64_t i = 0; i < 12; ++i)
    CHECK(max_difference(out.select(2, i), groups.select(2, i == 0 ? 0 : 1 + (i - 1) / 3)) < 1e-10);
}

TEST_CASE("mrs-linformer has a projection per scale, of the pooled length") {
  const BuiltCore core =
      make_core("mrs-linformer", {{"scales", {1, 2, 2, 8}}, {"projected_len", 16}}, {.heads = 4, .max_len = 45});
  std::vector<std::vector<int64_t>> shapes;
  for (const at::Tensor& e : core.shared->parameters()) shapes.push_back(e.sizes().vec());
  std::sort(shapes.begin(), shapes.end());
  CHECK(shapes == std::vector<std::vector<int64_t>>{{1, 6, 6}, {1, 16, 45}, {2, 16, 23}});
}

TEST_CASE("mrs-linformer counts pinned tokens as groups of their own") {
  const BuiltCore core = make_core("mrs-linformer", {{"scales", {2}}}, {.max_len = 46, .pinned = 1});
  CHECK(core.shared->parameters()[0].sizes() == at::IntArrayRef({2, 24, 24}));  // 1 + ceil(45 / 2)
  const Inputs in = random_inputs(1, 2, 46, 5);
  CHECK(core(in.q, in.k, in.v).sizes() == in.q.sizes());
}

TEST_CASE("mrs parameters have names of their own") {
  for (const std::string sharing : {"mlpen", "none"}) {
    const BuiltCore core = make_core("mrs-linformer", {{"projected_len", 4}, {"sharing", sharing}});
    std::vector<std::string> names;
    for (const auto& [name, value] : core.state()) names.push_back(name);
    std::sort(names.begin(), names.end());
    CHECK(names.size() == (sharing == "mlpen" ? 2 : 4));
    CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
  }
}

TEST_CASE("mrs refuses scales that do not fit the heads, naming both numbers, and causality") {
  const auto message = [](const Json& options, const Setup& setup) -> std::string {
    try {
      (void)make_core("mrs-softmax", options, setup);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  const std::string wrong = message({{"scales", {1, 2, 4}}}, {.heads = 4});
  CHECK(wrong.find("3 scales") != std::string::npos);
  CHECK(wrong.find("4 heads") != std::string::npos);
  CHECK(message({{"scales", {1, 1, 2, 2}}}, {.heads = 2}).find("4 scales") != std::string::npos);
  CHECK(message({{"scales", {1, 0}}}, {}).find("at least 1") != std::string::npos);
  CHECK(message({}, {.causal = true}).find("causal") != std::string::npos);
  CHECK_THROWS_AS(resolve("mrs-mrs-softmax"), UserError);
}

TEST_CASE("mrs costs the sum over its heads at their lengths") {
  const auto share = [](const std::vector<int64_t>& scales, int64_t heads) {
    const Shape shape{2, heads, 512, 512, 8};
    const Setup setup{.heads = heads, .head_dim = 8, .max_len = 512};
    return make_core("mrs-softmax", {{"scales", scales}}, setup).module->cost(shape).flops_executed /
           make_core("softmax", {}, setup).module->cost(shape).flops_executed;
  };
  CHECK(share({1, 2}, 2) == Approx(0.625));
  CHECK(share({1, 1, 2, 2, 4, 4, 8, 8}, 8) == Approx(0.33203125));
  CHECK(share({1, 2, 2, 4}, 4) == Approx(0.390625));
}

}  // namespace xformer::attention::mrs_test
