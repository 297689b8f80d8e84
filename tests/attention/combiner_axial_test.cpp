// combiner-axial-vertical, combiner-axial-horizontal and combiner-mixture (attention-more 2).
#include "attention/combiner_support.h"
#include "tensor/op_counter.h"

namespace xformer::attention::combiner_axial_test {

using namespace support;

enum class Form { kVertical, kHorizontal, kJoint };

void add(std::vector<std::vector<int64_t>>& sets, const std::vector<int64_t>& set) {
  if (!set.empty()) sets.push_back(set);
}

// The sets of the paper on a grid of `wanted` columns, by the places of all tokens.
Pattern axial(int64_t n, int64_t wanted, bool causal, Form form) {
  return [=](int64_t, int64_t, int64_t i) {
    const int64_t columns = std::min(wanted, n), r = i / columns, c = i % columns;
    const auto which = [&](const std::function<bool(int64_t, int64_t)>& holds) {
      std::vector<int64_t> result;
      for (int64_t j = 0; j < n; ++j)
        if (holds(j / columns, j % columns)) result.push_back(j);
      return result;
    };
    Supports result;
    result.direct = which([&](int64_t row, int64_t column) {
      return row == r ? !causal || column <= c : column == c && (!causal || row < r);
    });
    if (form != Form::kHorizontal)
      for (int64_t other = 0; other < columns; ++other) {
        if (other == c) continue;
        add(result.sets, which([&](int64_t row, int64_t column) { return column == other && row < r; }));
        if (!causal) add(result.sets, which([&](int64_t row, int64_t column) { return column == other && row > r; }));
      }
    if (form != Form::kVertical)
      for (int64_t other = 0; other * columns < n; ++other) {
        if (other == r || (causal && other > r)) continue;
        add(result.sets, which([&](int64_t row, int64_t column) { return row == other && column < c; }));
        add(result.sets, which([&](int64_t row, int64_t column) { return row == other && column > c; }));
      }
    return result;
  };
}

at::Tensor reference(const std::string& name, const Inputs& in, const SequenceMask& mask, int64_t columns,
                     int64_t pinned, const Combined& how) {
  const int64_t n = in.q.size(2), front = std::min(pinned, n);
  const auto of = [&](Form form) {
    return combined(in, mask, behind_pinned(front, n, mask.causal, axial(n - front, columns, mask.causal, form)), how);
  };
  if (name == "combiner-axial-vertical") return of(Form::kVertical);
  if (name == "combiner-axial-horizontal") return of(Form::kHorizontal);
  return (of(Form::kVertical) + of(Form::kHorizontal)) / 2;
}

const std::vector<std::string> kNames{"combiner-axial-vertical", "combiner-axial-horizontal", "combiner-mixture"};

TEST_CASE("combiner on a grid equals its definition in loops, at any length, with holes and pinned tokens") {
  for (const std::string& name : kNames)
    for (const auto& [columns, pinned, pool, log_count] : std::vector<std::tuple<int64_t, int64_t, std::string, bool>>{
             {5, 0, "max", false}, {4, 0, "mean", true}, {6, 1, "sum", false}, {3, 2, "relu", true}})
      for (const bool causal : {false, true})
        for (const int64_t n : {25, 22, 12, 6, 2, 1}) {
          INFO(name << " columns " << columns << " pool " << pool << " causal " << causal << " n " << n);
          const BuiltCore core = make_core(name, {{"columns", columns}, {"pool", pool}, {"log_count_bias", log_count}},
                                           {.pinned = pinned, .causal = causal});
          const Inputs in = random_inputs(2, 2, n, 5);
          for (const SequenceMask& mask :
               {SequenceMask{{}, causal}, length_mask({n, (2 * n + 2) / 3}, n, causal), holes(n, causal)})
            CHECK(max_difference(valid_rows(core(in.q, in.k, in.v, mask), mask),
                                 reference(name, in, mask, columns, pinned, {pool, log_count})) < 1e-10);
        }
}

TEST_CASE("combiner's supports on a grid are disjoint and cover what a row may see, square or not, ragged or not") {
  for (const bool causal : {false, true})
    for (const int64_t n : {1, 7, 16, 23, 24, 30})
      for (const int64_t columns : {1, 3, 4, 8, 30})
        for (const Form form : {Form::kVertical, Form::kHorizontal}) {
          INFO("causal " << causal << " n " << n << " columns " << columns);
          CHECK(partitions(axial(n, columns, causal, form), n, causal));
        }
}

TEST_CASE("combiner on a grid of one row or one column is softmax attention") {
  for (const std::string& name : kNames)
    for (const int64_t columns : {int64_t{1}, int64_t{20}, int64_t{1} << 30})
      for (const bool causal : {false, true}) {
        const Inputs in = random_inputs(2, 2, 20, 5);
        const SequenceMask mask = length_mask({20, 13}, 20, causal);
        const BuiltCore core = make_core(name, {{"columns", columns}}, {.causal = causal});
        CHECK(max_difference(valid_rows(core(in.q, in.k, in.v, mask), mask),
                             valid_rows(dense_softmax(in, mask), mask)) < 1e-10);
      }
}

TEST_CASE("combiner-mixture is the mean of its two forms, or one softmax over the sets of both") {
  const Inputs in = random_inputs(2, 2, 23, 5);
  for (const bool causal : {false, true}) {
    const Setup setup{.causal = causal};
    const SequenceMask mask = length_mask({23, 17}, 23, causal);
    const auto run = [&](const std::string& name, const Json& options) {
      return valid_rows(make_core(name, options, setup)(in.q, in.k, in.v, mask), mask);
    };
    const Json grid = {{"columns", 5}};
    CHECK(max_difference(run("combiner-mixture", grid), (run(kNames[0], grid) + run(kNames[1], grid)) / 2) < 1e-12);
    CHECK(max_difference(run("combiner-mixture", {{"columns", 5}, {"mixture", "joint"}}),
                         combined(in, mask, axial(23, 5, causal, Form::kJoint))) < 1e-10);
  }
}

TEST_CASE(
    "combiner's rows on a grid weigh one in all, and a set's tokens in the same proportions for all who read it") {
  constexpr int64_t kTokens = 16;
  for (const bool causal : {false, true}) {
    const Setup setup{.heads = 1, .head_dim = kTokens, .causal = causal};
    const auto rank_one = [](const at::Tensor& part) {
      CHECK(part.min().item<double>() > 0);
      CHECK(max_difference(part, at::matmul(part.narrow(1, 0, 1), part.narrow(0, 0, 1)) / part[0][0]) < 1e-12);
    };
    for (const std::string& name : kNames) {
      const at::Tensor weights = effective_weights(make_core(name, {{"columns", 4}}, setup), kTokens, causal);
      CHECK(max_difference(weights.sum(1), at::ones({kTokens}, at::kDouble)) < 1e-12);
      const auto of = [&](const std::vector<int64_t>& rows, const std::vector<int64_t>& keys) {
        return weights.index_select(0, at::tensor(rows, at::kLong)).index_select(1, at::tensor(keys, at::kLong));
      };
      // Places (3, 1) to (3, 3) read column 0 above row 3; (2, 3) and (3, 3) read columns 0 to 2 of row 1.
      if (name == kNames[0]) rank_one(of({13, 14, 15}, {0, 4, 8}));
      if (name == kNames[1]) rank_one(of({11, 15}, {4, 5, 6}));
    }
  }
}

TEST_CASE("with one key for each set of a grid combiner weighs a set as many times less as it has tokens") {
  constexpr int64_t kTokens = 20, kColumns = 4;
  for (const bool causal : {false, true})
    for (const Form form : {Form::kVertical, Form::kHorizontal})
      for (const int64_t row : {1, 10, 19})
        check_counts(kNames[form == Form::kVertical ? 0 : 1], {{"columns", kColumns}},
                     axial(kTokens, kColumns, causal, form)(0, 0, row), row, kTokens, causal);
}

TEST_CASE("combiner's causal forms on a grid do not read later tokens, bit for bit") {
  for (const std::string& name : kNames)
    for (const int64_t n : {20, 23}) check_no_leak(make_core(name, {{"columns", 5}}, {.causal = true}), n);
}

TEST_CASE("columns=0 is the image's side, or the root of the longest length") {
  const Inputs in = random_inputs(1, 1, 30, 5);
  const auto run = [&](int64_t columns, int64_t grid, int64_t longest) {
    BuildContext context = make_context({.max_len = longest});
    context.grid = grid;
    const Resolved attention = resolve("combiner-axial-vertical");
    const auto core = build_core(attention, full_options(attention, {{"columns", columns}}), context);
    Carry carry;
    return core->forward(in.q, in.k, in.v, {}, carry);
  };
  CHECK(at::equal(run(0, 0, 30), run(6, 0, 30)));
  CHECK(at::equal(run(0, 0, 36), run(6, 0, 30)));
  CHECK(at::equal(run(0, 5, 36), run(5, 0, 30)));
  CHECK_FALSE(at::equal(run(6, 0, 30), run(5, 0, 30)));
}

TEST_CASE("combiner's products on a grid are those of the closed forms") {
  constexpr int64_t kRows = 6, kColumns = 4, kTokens = kRows * kColumns, kDim = 5;
  const auto flops = [&](const std::string& name, bool causal) {
    const BuiltCore core = make_core(name, {{"columns", kColumns}}, {.causal = causal});
    const Inputs in = random_inputs(1, 1, kTokens, kDim);
    const OpCounter counter;
    (void)core(in.q, in.k, in.v, {{}, causal});
    const auto counted = static_cast<double>(counter.counts().flops);
    CHECK(counted == core.module->cost({1, 1, kTokens, kTokens, kDim}).flops_executed);
    return counted;
  };
  // Direct keys C + R of each token; its sets, R or C, and their readers.
  const double each = 4.0 * kTokens * kDim;
  CHECK(flops(kNames[0], true) == each * (kColumns + kRows + kRows + 2 * kColumns));
  CHECK(flops(kNames[1], true) == each * (kColumns + kRows + 2 * (kColumns + kRows)));
  CHECK(flops(kNames[0], false) == each * (kColumns + 2 * kRows + 2 * (kRows + 2 * kColumns)));
  CHECK(flops(kNames[1], false) == each * (kColumns + 2 * kRows + 2 * (kColumns + 2 * kRows)));
}

}  // namespace xformer::attention::combiner_axial_test
