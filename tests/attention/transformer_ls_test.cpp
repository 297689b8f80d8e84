// transformer-ls (attention-third 11).
#include "attention/support.h"
#include "tensor/probe.h"

namespace xformer::attention::transformer_ls_test {

using namespace support;

struct Sizes {
  int64_t block = 3, projected_len = 4, segment = 3, segment_rank = 1;
  bool dual_norm = true;
  [[nodiscard]] Json options() const {
    return {{"block", block},
            {"projected_len", projected_len},
            {"segment", segment},
            {"segment_rank", segment_rank},
            {"dual_norm", dual_norm}};
  }
};

at::Tensor norm(const BuiltMixer& mixer, const std::string& name, const at::Tensor& x) {
  const auto parameters = mixer.module->named_parameters();
  if (!parameters.contains(name + "_weight")) return x;
  const at::Tensor centred = x - x.mean(-1, true);
  return centred / (centred.square().mean(-1, true) + 1e-5).sqrt() * parameters[name + "_weight"] +
         parameters[name + "_bias"];
}

// The equations row by row, for one sample x [n,m] whose tokens are all valid.
at::Tensor reference(const at::Tensor& x, const BuiltMixer& mixer, const Sizes& sizes, bool causal) {
  const auto parameters = mixer.module->named_parameters();
  const auto map = [&](const std::string& name) {
    return at::linear(x, parameters[name + ".weight"], parameters[name + ".bias"]);
  };
  const int64_t n = x.size(0), r = causal ? sizes.segment_rank : sizes.projected_len, d = 5;
  const at::Tensor q = map("query"), plain_k = map("key"), plain_v = map("value");
  const at::Tensor k = norm(mixer, "near_norm", plain_k), v = norm(mixer, "near_norm", plain_v);
  at::Tensor columns;  // [n, 2 r]
  if (r > 0) columns = at::matmul(x, parameters["projection.weight"].t());
  // Mixtures of tokens first .. end - 1, heads side by side [r, 2 d].
  const auto mixtures = [&](const at::Tensor& rows, int64_t first, int64_t end) {
    std::vector<at::Tensor> heads;
    for (int64_t h = 0; h < 2; ++h) {
      const at::Tensor weights = at::softmax(columns.narrow(0, first, end - first).narrow(1, h * r, r), 0);
      heads.push_back(at::matmul(weights.t(), rows.narrow(0, first, end - first).narrow(1, h * d, d)));
    }
    return norm(mixer, "far_norm", at::cat(heads, 1));
  };
  at::Tensor mixed = at::zeros({n, 2 * d}, at::kDouble);
  for (int64_t i = 0; i < n; ++i) {
    std::vector<at::Tensor> keys, values;
    const int64_t beside = std::max<int64_t>(sizes.block / 2, 1), start = i / sizes.block * sizes.block;
    const int64_t from = causal ? i - sizes.block + 1 : start - beside;
    const int64_t to = causal ? i + 1 : start + sizes.block + beside;
    for (int64_t j = std::max<int64_t>(0, from); j < std::min(n, to); ++j)
      keys.push_back(k[j].unsqueeze(0)), values.push_back(v[j].unsqueeze(0));
    if (!causal && r > 0) keys.push_back(mixtures(k, 0, n)), values.push_back(mixtures(v, 0, n));
    for (int64_t s = 0; causal && s < i / sizes.segment; ++s) {
      keys.push_back(mixtures(plain_k, s * sizes.segment, (s + 1) * sizes.segment));
      values.push_back(mixtures(plain_v, s * sizes.segment, (s + 1) * sizes.segment));
    }
    const at::Tensor all_k = at::cat(keys), all_v = at::cat(values);
    for (int64_t h = 0; h < 2; ++h) {
      const auto head = [&](const at::Tensor& rows) { return rows.narrow(-1, h * d, d); };
      const at::Tensor scores = at::mv(head(all_k), head(q)[i]) / std::sqrt(static_cast<double>(d));
      mixed[i].narrow(0, h * d, d).copy_(at::matmul(at::softmax(scores, 0), head(all_v)));
    }
  }
  return at::linear(mixed, parameters["out.weight"], parameters["out.bias"]);
}

TEST_CASE("transformer-ls equals its equations row by row, for ragged lengths, any length and length 1") {
  for (const bool causal : {false, true})
    for (const Sizes& sizes : {Sizes{}, Sizes{1, 2, 1, 2}, Sizes{4, 3, 3, 2, false}, Sizes{8, 0, 5, 1}})
      for (const int64_t n : {1, 2, 10, 37}) {
        INFO(sizes.options().dump() << " causal " << causal << " n " << n);
        const BuiltMixer mixer = make_mixer("transformer-ls", sizes.options(), {.causal = causal});
        for (const auto& [key, tensor] : mixer.parameters())
          if (key.find("norm") != std::string::npos) tensor.data().add_(random_tensor(key, tensor.sizes()), 0.2);
        const at::Tensor x = random_tensor("x", {2, n, 10});
        const int64_t shorter = (2 * n + 2) / 3;
        const at::Tensor out = mixer(x, length_mask({n, shorter}, n, causal));
        CHECK(max_difference(out[0], reference(x[0], mixer, sizes, causal)) < 1e-10);
        CHECK(max_difference(out[1].narrow(0, 0, shorter),
                             reference(x[1].narrow(0, 0, shorter), mixer, sizes, causal)) < 1e-10);
        CHECK(max_difference(mixer(x, {{}, causal})[1], reference(x[1], mixer, sizes, causal)) < 1e-10);
      }
}

TEST_CASE("without mixtures and norms a segment over all tokens is softmax, and over few a window") {
  const Sizes dense{int64_t{1} << 30, 0, 3, 1, false};
  const at::Tensor x = random_tensor("x", {2, 30, 10});
  const SequenceMask mask = length_mask({30, 17}, 30);
  const BuiltMixer mixer = make_mixer("transformer-ls", dense.options()), softmax = make_mixer("softmax");
  for (const auto& [key, tensor] : softmax.parameters()) tensor.data().copy_(mixer.module->named_parameters()[key]);
  CHECK(max_difference(valid_rows(mixer(x, mask), mask), valid_rows(softmax(x, mask), mask)) < 1e-10);

  const Sizes near{6, 0, 3, 1, false};
  const BuiltMixer window = make_mixer("transformer-ls", near.options());
  const at::Tensor given = random_tensor("x", {1, 30, 10}).requires_grad_(true);
  window(given).select(1, 13).square().sum().backward();
  const at::Tensor moved = given.grad()[0].abs().amax(-1);
  for (int64_t j = 0; j < 30; ++j)  // row 13 is in segment 12 to 17, widened by 3
    CHECK((moved[j].item<double>() > 1e-9) == (j >= 9 && j <= 20));
}

TEST_CASE("mixtures weigh valid tokens and nothing else") {
  const BuiltMixer mixer = make_mixer("transformer-ls", Sizes{}.options());
  const SequenceMask mask = length_mask({20, 11, 0}, 20);
  const ProbeRecorder recorder([](const std::string& name) { return name == "projection"; });
  (void)mixer(random_tensor("x", {3, 20, 10}), mask);
  const at::Tensor weights = recorder.kept().front().second.detach();
  CHECK(weights.sizes() == at::IntArrayRef({3, 2, 4, 20}));
  const at::Tensor sums = weights.sum(-1);
  CHECK(max_difference(sums.narrow(0, 0, 2), at::ones({2, 2, 4}, at::kDouble)) < 1e-12);
  CHECK(sums[2].abs().max().item<double>() == 0);
  CHECK(weights[1].narrow(-1, 11, 9).abs().max().item<double>() == 0);
}

TEST_CASE("causal rows see no later token bit for bit, all of their past, and a gap is refused") {
  const BuiltMixer mixer = make_mixer("transformer-ls", Sizes{}.options(), {.causal = true});
  const at::Tensor x = random_tensor("x", {1, 50, 10});
  for (const int64_t seen : {1, 17, 30}) {
    const at::Tensor later = at::cat({x.narrow(1, 0, seen), random_tensor("later", {1, 50 - seen, 10}) * 9}, 1);
    CHECK(at::equal(mixer(x, {{}, true}).narrow(1, 0, seen), mixer(later, {{}, true}).narrow(1, 0, seen)));
  }
  const at::Tensor given = random_tensor("x", {1, 50, 10}).requires_grad_(true);
  mixer(given, {{}, true}).select(1, 49).square().sum().backward();
  CHECK(given.grad()[0].abs().amax(-1).min().item<double>() > 0);
  CHECK_THROWS_WITH(make_mixer("transformer-ls", {{"block", 8}, {"segment", 16}}, {.causal = true}),
                    Catch::Matchers::Contains("attention.segment = 16"));
}

TEST_CASE("transformer-ls has the parameters and the pairs that it states") {
  CHECK(parameters_of("transformer-ls") == 20992);
  CHECK(parameters_of("transformer-ls", {{"dual_norm", false}}) == 16640 + 4096);
  const int64_t n = 48, w = 8, e = 4, d = 5, r = 32;
  const double pairs = static_cast<double>(n * (w + 2 * e) - 2 * w * e);
  const double rest = 3 * n * (8.0 * 10 * 10 + 2.0 * 10 * 2 * r) + 8.0 * 6 * n * r * d;
  CHECK(make_mixer("transformer-ls").module->cost(3, n).flops_pattern == rest + 4 * 6 * d * pairs);
}

}  // namespace xformer::attention::transformer_ls_test
