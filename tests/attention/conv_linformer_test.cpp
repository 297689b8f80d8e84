// conv-linformer (attention-core 3.10).
#include "attention/support.h"

namespace xformer::attention::conv_linformer_test {

using namespace support;

at::Tensor parameter(const BuiltCore& core, const std::string& name) {
  for (const auto& [key, value] : core.parameters())
    if (key == name) return value.data();
  FAIL("no parameter " << name);
  return {};
}

// Windows of `stride` tokens, channel by channel; then softmax over windows with a valid token.
at::Tensor reference(const Inputs& in, const SequenceMask& mask, const BuiltCore& core, const std::string& conv) {
  const int64_t b = in.q.size(0), h = in.q.size(1), n = in.k.size(2), d = in.q.size(3);
  const int64_t stride = parameter(core, "conv_key").size(0), rows = (n + stride - 1) / stride;
  SequenceMask windows{at::zeros({b, rows}, at::kBool)};
  const auto convolve = [&](const at::Tensor& x, const std::string& name) {
    const at::Tensor kernel = parameter(core, name), result = at::zeros({b, h, rows, d}, at::kDouble);
    for (int64_t s = 0; s < b; ++s)
      for (int64_t g = 0; g < h; ++g)
        for (int64_t i = 0; i < n; ++i) {
          if (!mask.all_valid() && !mask.key_valid[s][i].item<bool>()) continue;
          windows.key_valid[s][i / stride] = true;
          at::Tensor row = result[s][g][i / stride];
          const at::Tensor part = kernel[i % stride], token = x[s][g][i];
          for (int64_t c = 0; c < d; ++c) {
            if (conv == "scalar") row[c] += token[c] * part;
            if (conv == "depthwise") row[c] += token[c] * part[c];
            for (int64_t from = 0; conv == "full" && from < d; ++from) row[c] += token[from] * part[from][c];
          }
        }
    return conv == "scalar" ? result : result + parameter(core, name + "_bias");
  };
  return dense_softmax({in.q, convolve(in.k, "conv_key"), convolve(in.v, "conv_value")}, windows);
}

TEST_CASE("conv-linformer equals its convolution in loops for every kind, for ragged lengths and length 1") {
  for (const std::string conv : {"full", "depthwise", "scalar"})
    for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{14, 7}, {1, 13}, {14, 0}}) {
      INFO(conv);
      const BuiltCore core = make_core("conv-linformer", {{"projected_len", 4}, {"conv", conv}}, {.max_len = 15});
      CHECK(parameter(core, "conv_key").size(0) == 4);  // 15 tokens to at most 4
      const Inputs in = random_inputs(2, 2, 14, 5), one = random_inputs(2, 2, 1, 5);
      const SequenceMask mask = length_mask(lengths, 14);
      CHECK(max_difference(core(in.q, in.k, in.v, mask), valid_rows(reference(in, mask, core, conv), mask)) < 1e-10);
      CHECK(max_difference(core(in.q, in.k, in.v), reference(in, {}, core, conv)) < 1e-10);
      CHECK(max_difference(core(one.q, one.k, one.v), reference(one, {}, core, conv)) < 1e-10);
    }
}

TEST_CASE("conv-linformer brings lengths to the numbers of rows that the slides ask for") {
  const auto rows = [](int64_t length, int64_t projected) {
    const int64_t stride =
        parameter(make_core("conv-linformer", {{"projected_len", projected}}, {.max_len = length}), "conv_key").size(0);
    return std::pair{stride, pooled_len(length, stride)};
  };
  CHECK(rows(350, 128) == std::pair<int64_t, int64_t>{3, 117});
  CHECK(rows(1500, 128) == std::pair<int64_t, int64_t>{12, 125});
  CHECK(rows(1500, 256) == std::pair<int64_t, int64_t>{6, 250});
  CHECK(rows(1500, 400) == std::pair<int64_t, int64_t>{4, 375});
  CHECK(rows(50, 128) == std::pair<int64_t, int64_t>{1, 50});
  CHECK(make_core("conv-linformer", {}, {.max_len = 350}).module->backend() == "explicit, stride 3");
}

TEST_CASE("conv-linformer golden numbers") {
  // Kernel (1, 2) makes keys (0, x), (x, 0) with x = ln 3 into 2 x and x; kernel (1, 1) values into 3 and 7.
  // Queries of 1: weights 9 and 3 of 12: (9 * 3 + 3 * 7) / 12 = 4.
  const BuiltCore core = make_core("conv-linformer", {{"projected_len", 2}, {"conv", "scalar"}},
                                   {.heads = 1, .head_dim = 1, .max_len = 4});
  parameter(core, "conv_key").copy_(at::tensor({1., 2.}));
  parameter(core, "conv_value").fill_(1);
  const double x = std::log(3.0);
  const at::Tensor ones = column({1, 1, 1, 1});
  CHECK(core(ones, column({0, x, x, 0}), column({1, 2, 3, 4}))[0][0][2][0].item<double>() == Approx(4));
}

TEST_CASE("conv-linformer with stride 1 and the identity as kernel equals softmax, ragged lengths included") {
  const Inputs in = random_inputs(2, 2, 16, 5);
  for (const std::string conv : {"full", "depthwise", "scalar"}) {
    const BuiltCore core = make_core("conv-linformer", {{"projected_len", 99}, {"conv", conv}}, {.max_len = 16});
    for (const char* name : {"conv_key", "conv_value"}) {
      if (conv == "full") parameter(core, name)[0].copy_(at::eye(5, at::kDouble));
      else parameter(core, name).fill_(1);
      if (conv != "scalar") parameter(core, name + std::string("_bias")).zero_();
    }
    const SequenceMask mask = length_mask({16, 9}, 16);
    CHECK(max_difference(core(in.q, in.k, in.v), dense_softmax(in)) < 1e-10);
    CHECK(max_difference(core(in.q, in.k, in.v, mask), valid_rows(dense_softmax(in, mask), mask)) < 1e-10);
  }
}

BuiltCore averaging(int64_t projected_len, int64_t max_len) {
  const BuiltCore core =
      make_core("conv-linformer", {{"projected_len", projected_len}, {"conv", "scalar"}}, {.max_len = max_len});
  for (const char* name : {"conv_key", "conv_value"})
    parameter(core, name).fill_(1.0 / static_cast<double>(parameter(core, name).size(0)));
  return core;
}

TEST_CASE("conv-linformer that averages equals linformer with means of blocks as projection") {
  const Inputs in = random_inputs(2, 2, 16, 5);
  const BuiltCore linformer = make_core("linformer", {{"projected_len", 4}}, {.max_len = 16});
  at::Tensor e = linformer.shared->parameters()[0].data().zero_();
  for (int64_t r = 0; r < 4; ++r) e.select(1, r).narrow(1, 4 * r, 4).fill_(0.25);
  CHECK(max_difference(averaging(4, 16)(in.q, in.k, in.v), linformer(in.q, in.k, in.v)) < 1e-10);
}

TEST_CASE("conv-linformer maps a constant value to one constant over whole windows, and to itself when it averages") {
  const Inputs in = random_inputs(1, 2, 16, 5);
  const at::Tensor constant = random_tensor("constant", {1, 2, 1, 5}).expand({1, 2, 16, 5});
  const BuiltCore core = make_core("conv-linformer", {{"projected_len", 4}}, {.max_len = 16});
  const at::Tensor mapped =
      at::matmul(constant.narrow(2, 0, 1), parameter(core, "conv_value").sum(0)) + parameter(core, "conv_value_bias");
  CHECK(max_difference(core(in.q, in.k, constant), mapped.expand({1, 2, 16, 5})) < 1e-10);
  CHECK(max_difference(averaging(4, 16)(in.q, in.k, constant), constant) < 1e-10);
}

TEST_CASE("conv-linformer rolls with the sequence by whole strides, and only by them") {
  const Inputs in = random_inputs(1, 2, 16, 5);
  for (const std::string conv : {"full", "depthwise", "scalar"}) {
    const BuiltCore core = make_core("conv-linformer", {{"projected_len", 4}, {"conv", conv}}, {.max_len = 16});
    const auto error = [&](int64_t shift) {
      const auto roll = [shift](const at::Tensor& x) { return x.roll(shift, 2); };
      return max_difference(core(roll(in.q), roll(in.k), roll(in.v)), roll(core(in.q, in.k, in.v)));
    };
    CHECK(error(4) < 1e-12);
    CHECK(error(8) < 1e-12);
    CHECK(error(1) > 1e-2);
  }
}

TEST_CASE("conv-linformer has the parameters of attention-core 7, and only kernels depend on the length") {
  const Setup lra{.head_dim = 32, .max_len = 2048};
  const auto count = [](const auto& built) {
    int64_t result = 0;
    for (const auto& [key, value] : built.parameters()) result += value.numel();
    return result;
  };
  CHECK(count(make_mixer("conv-linformer", {}, lra)) == 16640 + 2 * (16 * 32 * 32 + 32));
  CHECK(count(make_core("conv-linformer", {{"conv", "depthwise"}}, lra)) == 2 * (16 * 32 + 32));
  CHECK(count(make_core("conv-linformer", {{"conv", "scalar"}}, lra)) == 2 * 16);
  // A curriculum leaves what differs to --reinit '*.conv_key,*.conv_value'.
  const BuiltMixer short_one = make_mixer("conv-linformer", {}, {.max_len = 350}),
                   long_one = make_mixer("conv-linformer", {{"projected_len", 256}}, {.max_len = 1500});
  std::vector<std::string> differ;
  for (size_t i = 0; i < short_one.parameters().size(); ++i) {
    REQUIRE(short_one.parameters()[i].first == long_one.parameters()[i].first);
    if (short_one.parameters()[i].second.sizes() != long_one.parameters()[i].second.sizes())
      differ.push_back(short_one.parameters()[i].first);
  }
  CHECK(differ == std::vector<std::string>{"core.conv_key", "core.conv_value"});
}

}  // namespace xformer::attention::conv_linformer_test
