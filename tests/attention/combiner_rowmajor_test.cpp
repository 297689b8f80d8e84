// combiner-axial-rowmajor (attention-more 2).
#include "attention/combiner_support.h"
#include "tensor/op_counter.h"

namespace xformer::attention::combiner_rowmajor_test {

using namespace support;

struct Case {
  int64_t columns = 5, pinned = 0;
  std::string summary = "proj";
  bool log_count = false, causal = false;
};

BuiltMixer make(const Case& c, int64_t max_len = 48) {
  BuiltMixer result = make_mixer("combiner-axial-rowmajor",
                                 {{"columns", c.columns}, {"row_summary", c.summary}, {"log_count_bias", c.log_count}},
                                 {.max_len = max_len, .pinned = c.pinned, .causal = c.causal});
  // The norm of a summary's key begins as one that changes nothing more.
  for (const auto& item : result.module->named_parameters())
    if (item.key().starts_with("summary_norm")) item.value().data().add_(random_tensor(item.key(), {10}), 0.3);
  return result;
}

// One sample x [n,m], row by row and head by head.
at::Tensor reference(const BuiltMixer& mixer, const at::Tensor& x, const std::vector<bool>& valid, const Case& c) {
  const int64_t n = x.size(0), heads = 2, d = 5, p = std::min(c.pinned, n), rest = n - p;
  const auto parameters = mixer.module->named_parameters();
  const auto map = [&](const std::string& name, const at::Tensor& rows) {
    const at::Tensor* bias = parameters.find(name + ".bias");
    const at::Tensor product = at::matmul(rows, parameters[name + ".weight"].t());
    return bias == nullptr ? product : product + *bias;
  };
  const double scale = 1 / std::sqrt(static_cast<double>(d));
  const at::Tensor q = map("query", x), k = map("key", x), v = map("value", x);
  const int64_t columns = std::min(c.columns, std::max<int64_t>(rest, 1)), rows = (rest + columns - 1) / columns;
  const auto head = [&](const at::Tensor& all, int64_t i, int64_t h) { return all[i].narrow(0, h * d, d); };
  const auto tokens_of = [&](int64_t row) {  // valid tokens of a row
    std::vector<int64_t> result;
    for (int64_t j = row * columns; j < std::min(rest, (row + 1) * columns); ++j)
      if (valid[static_cast<size_t>(p + j)]) result.push_back(p + j);
    return result;
  };
  const auto mean_of = [&](const std::vector<double>& logits, const std::vector<at::Tensor>& values) {
    return at::mv(at::stack(values, 1), at::softmax(at::tensor(logits, at::kDouble), 0));
  };
  // What attention in a row gives the query at (row, column), of the rows of `all`.
  const auto within = [&](int64_t row, int64_t column, int64_t h, const at::Tensor& all) {
    const int64_t i = p + row * columns + column;
    const bool asks = i < n && valid[static_cast<size_t>(i)];
    const at::Tensor query = asks ? head(q, i, h) : at::zeros({d}, at::kDouble);
    std::vector<double> logits;
    std::vector<at::Tensor> values;
    for (const int64_t j : tokens_of(row)) {
      logits.push_back(at::dot(query, head(k, j, h)).item<double>() * scale);
      values.push_back(head(all, j, h));
    }
    return mean_of(logits, values);
  };
  const auto key_of = [&](int64_t row, int64_t column, int64_t h) {
    const int64_t i = p + row * columns + column;
    const bool there = i < n && valid[static_cast<size_t>(i)];
    if (c.summary == "none") return there ? head(k, i, h) : at::zeros({d}, at::kDouble);
    if (c.summary == "wsum") return within(row, column, h, k);
    const at::Tensor value = at::cat({within(row, column, 0, v), within(row, column, 1, v)});
    const at::Tensor sum = (there ? x[i] : at::zeros({x.size(1)}, at::kDouble)) + map("summary_out", value);
    const at::Tensor centred = sum - sum.mean();
    const at::Tensor normed = centred / (centred.square().mean() + 1e-5).sqrt() * parameters["summary_norm_weight"] +
                              parameters["summary_norm_bias"];
    return map("summary_key", normed).narrow(0, h * d, d);
  };
  at::Tensor mixed = at::zeros({n, heads * d}, at::kDouble);
  for (int64_t i = 0; i < n; ++i) {
    if (!valid[static_cast<size_t>(i)]) continue;
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t r = (i - p) / columns, column = (i - p) % columns;
      std::vector<double> logits;
      std::vector<at::Tensor> values;
      for (int64_t j = 0; j < n; ++j) {
        const bool same_row = j >= p && i >= p && (j - p) / columns == r;
        if (!valid[static_cast<size_t>(j)] || (c.causal && j > i) || !(i < p || j < p || same_row)) continue;
        logits.push_back(at::dot(head(q, i, h), head(k, j, h)).item<double>() * scale);
        values.push_back(head(v, j, h));
      }
      for (int64_t other = 0; i >= p && other < rows; ++other) {
        if (other == r || (c.causal && other > r) || tokens_of(other).empty()) continue;
        const double more = c.log_count ? std::log(static_cast<double>(tokens_of(other).size())) : 0;
        logits.push_back(at::dot(head(q, i, h), key_of(other, column, h)).item<double>() * scale + more);
        values.push_back(within(other, column, h, v));
      }
      mixed[i].narrow(0, h * d, d).copy_(mean_of(logits, values));
    }
  }
  return map("out", mixed);
}

TEST_CASE("combiner-axial-rowmajor equals its definition in loops, at any length, with holes and pinned tokens") {
  const at::NoGradGuard no_grad;
  for (const char* summary : {"proj", "none", "wsum"})
    for (const bool causal : {false, true})
      for (const auto& [columns, pinned, log_count] :
           std::vector<std::tuple<int64_t, int64_t, bool>>{{5, 0, false}, {4, 1, true}})
        for (const int64_t n : {13, 10, 2, 1}) {
          const Case c{columns, pinned, summary, log_count, causal};
          INFO(summary << " causal " << causal << " columns " << columns << " n " << n);
          const BuiltMixer mixer = make(c);
          const at::Tensor x = random_tensor("x", {2, n, 10});
          for (const SequenceMask& mask :
               {SequenceMask{{}, causal}, length_mask({n, (2 * n + 2) / 3}, n, causal), holes(n, causal)}) {
            const at::Tensor out = valid_rows(mixer(x, mask), mask);
            for (int64_t b = 0; b < 2; ++b) {
              const at::Tensor meant = reference(mixer, x[b], valid_tokens(mask, b, n), c);
              CHECK(max_difference(
                        out[b], valid_rows(meant.unsqueeze(0),
                                           mask.all_valid() ? mask : SequenceMask{mask.key_valid.narrow(0, b, 1)})[0]) <
                    1e-10);
            }
          }
        }
}

TEST_CASE("combiner-axial-rowmajor of one row is softmax attention, and of the alias combiner-axial") {
  const at::Tensor x = random_tensor("x", {2, 20, 10});
  const SequenceMask mask = length_mask({20, 13}, 20);
  CHECK(max_difference(valid_rows(make_mixer("combiner-axial", {{"columns", 20}})(x, mask), mask),
                       valid_rows(make_mixer("softmax")(x, mask), mask)) < 1e-10);
  CHECK(resolve("combiner-axial").name == "combiner-axial-rowmajor");
  CHECK_THROWS_WITH(resolve("mrs-combiner-axial-rowmajor"), Catch::Matchers::Contains("owns its projections"));
}

TEST_CASE(
    "combiner-axial-rowmajor of one column sees all keys: with its own keys as summaries it is softmax attention") {
  const at::Tensor x = random_tensor("x", {2, 20, 10});
  for (const bool causal : {false, true}) {
    const SequenceMask mask = length_mask({20, 13}, 20, causal);
    const Setup setup{.causal = causal};
    for (const char* summary : {"none", "wsum"})
      CHECK(max_difference(
                valid_rows(make_mixer("combiner-axial", {{"columns", 1}, {"row_summary", summary}}, setup)(x, mask),
                           mask),
                valid_rows(make_mixer("softmax", {}, setup)(x, mask), mask)) < 1e-10);
  }
}

TEST_CASE("a causal combiner-axial-rowmajor does not read later tokens, bit for bit") {
  const at::Tensor x = random_tensor("x", {1, 23, 10}), other = random_tensor("other", {1, 23, 10}) * 100;
  for (const char* summary : {"proj", "none", "wsum"}) {
    const BuiltMixer mixer = make({5, 0, summary, false, true});
    const at::Tensor out = mixer(x, {{}, true});
    for (int64_t seen = 1; seen < 23; ++seen) {
      const at::Tensor changed = at::cat({x.narrow(1, 0, seen), other.narrow(1, seen, 23 - seen)}, 1);
      CHECK(at::equal(mixer(changed, {{}, true}).narrow(1, 0, seen), out.narrow(1, 0, seen)));
    }
  }
}

TEST_CASE("combiner-axial-rowmajor has two maps and a norm more than attention, and the products of the closed form") {
  const auto numbers = [](const BuiltMixer& mixer) {
    int64_t result = 0;
    for (const auto& [name, tensor] : mixer.parameters()) result += tensor.numel();
    return result;
  };
  CHECK(numbers(make({})) == 4 * 110 + 2 * 100 + 2 * 10);
  CHECK(numbers(make({.summary = "none"})) == 4 * 110);
  constexpr double kTokens = 24, kColumns = 4, kRows = 6, kWidth = 10, kHeads = 2, kDim = 5;
  const BuiltMixer mixer = make({.columns = 4, .causal = true});
  const OpCounter counter;
  (void)mixer(random_tensor("x", {1, 24, 10}), {{}, true});
  const auto counted = static_cast<double>(counter.counts().flops);
  CHECK(counted == mixer.module->cost(1, 24).flops_executed);
  CHECK(counted == 12 * kTokens * kWidth * kWidth + kHeads * kTokens * 4 * kDim * (kColumns + kColumns + kRows));
}

}  // namespace xformer::attention::combiner_rowmajor_test
