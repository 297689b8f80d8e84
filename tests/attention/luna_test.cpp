// luna (attention-core 3.14).
#include "attention/support.h"

namespace xformer::attention::luna_test {

using namespace support;

at::Tensor parameter(const BuiltCore& core, const std::string& name) {
  for (const auto& [key, value] : core.parameters())
    if (key == name) return value.data();
  FAIL("no parameter " << name);
  return {};
}

// [b,l,c] <-> [b,h,l,d]
at::Tensor by_heads(const at::Tensor& x, int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, -1}).transpose(1, 2).contiguous();
}
at::Tensor side_by_side(const at::Tensor& x) { return x.transpose(1, 2).flatten(2); }

struct Result {
  at::Tensor out, packed;  // [b,h,n,d], [b,l,c]
};

// Two softmaxes in loops over tokens and rows, between maps written out; packed [b,l,c].
Result reference(const Inputs& in, const SequenceMask& mask, const BuiltCore& core, const at::Tensor& packed) {
  const int64_t h = in.q.size(1), c = packed.size(2);
  const auto map = [&](const std::string& name, const at::Tensor& x) {
    return at::matmul(x, parameter(core, name + ".weight").t()) + parameter(core, name + ".bias");
  };
  const at::Tensor centred = packed - packed.mean(-1, true);
  const at::Tensor normed = centred / (centred.square().mean(-1, true) + 1e-5).sqrt() * parameter(core, "norm_weight") +
                            parameter(core, "norm_bias");
  const at::Tensor update = side_by_side(dense_softmax({by_heads(map("pack_query", normed), h), in.k, in.v}, mask));
  REQUIRE(update.size(2) == c);
  return {dense_softmax({in.q, by_heads(map("packed_key", update), h), by_heads(map("packed_value", update), h)}),
          packed + update};
}

BuiltCore make(const Setup& setup = {}) {
  const BuiltCore core = make_core("luna", {{"packed_len", 4}}, setup);
  // Norms and biases that show.
  for (const char* name : {"norm_weight", "norm_bias"}) parameter(core, name).add_(random_tensor(name, {10}));
  return core;
}

TEST_CASE("luna equals two softmaxes in loops, for ragged lengths and length 1, and hands P on") {
  for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{13, 7}, {1, 13}}) {
    const BuiltCore core = make();
    const Inputs in = random_inputs(2, 2, 13, 5), one = random_inputs(2, 2, 1, 5);
    const SequenceMask mask = length_mask(lengths, 13);
    const at::Tensor first = parameter(core, "shared.luna_first").expand({2, 4, 10});
    Carry carry;
    const Result wanted = reference(in, mask, core, first);
    CHECK(max_difference(core.module->forward(in.q, in.k, in.v, mask, carry), valid_rows(wanted.out, mask)) < 1e-10);
    REQUIRE(carry.size() == 1);
    CHECK(max_difference(carry.at("luna/packed"), wanted.packed) < 1e-10);
    // What it finds in Carry takes the place of the learned rows.
    const Result next = reference(in, mask, core, wanted.packed);
    CHECK(max_difference(core.module->forward(in.q, in.k, in.v, mask, carry), valid_rows(next.out, mask)) < 1e-10);
    CHECK(max_difference(carry.at("luna/packed"), next.packed) < 1e-10);
    CHECK(max_difference(core(one.q, one.k, one.v), reference(one, {}, core, first).out) < 1e-10);
  }
}

TEST_CASE("luna takes queries and keys of different lengths") {
  const BuiltCore core = make();
  const Inputs long_ones = random_inputs(2, 2, 9, 5), short_ones = random_inputs(2, 2, 4, 5, "other");
  const Inputs in{short_ones.q, long_ones.k, long_ones.v};
  const SequenceMask mask = length_mask({9, 6}, 9);
  const at::Tensor first = parameter(core, "shared.luna_first").expand({2, 4, 10});
  CHECK(max_difference(core(in.q, in.k, in.v, mask), reference(in, mask, core, first).out) < 1e-10);
}

TEST_CASE("luna's output does not depend on the order of packed rows, and P keeps that order") {
  const BuiltCore core = make();
  const Inputs in = random_inputs(2, 2, 13, 5);
  const at::Tensor order = at::tensor({2, 0, 3, 1}, at::kLong), rows = random_tensor("rows", {2, 4, 10});
  Carry carry{{"luna/packed", rows}}, permuted{{"luna/packed", rows.index_select(1, order)}};
  const at::Tensor out = core.module->forward(in.q, in.k, in.v, {}, carry);
  CHECK(max_difference(core.module->forward(in.q, in.k, in.v, {}, permuted), out) < 1e-12);
  CHECK(max_difference(permuted.at("luna/packed"), carry.at("luna/packed").index_select(1, order)) < 1e-12);
}

TEST_CASE("luna with as many packed rows as tokens, each packing one of them, is softmax") {
  // d = c = 8 and keys that are unit vectors: row i of P asks for token i with a large logit.
  const BuiltCore core = make_core("luna", {{"packed_len", 8}}, {.heads = 1, .head_dim = 8});
  const Inputs in = random_inputs(1, 1, 8, 8);
  const at::Tensor one = at::eye(8, at::kDouble), keys = one.view({1, 1, 8, 8});
  for (const char* name : {"pack_query", "packed_key", "packed_value"}) {
    parameter(core, name + std::string(".weight")).copy_(one);
    parameter(core, name + std::string(".bias")).zero_();
  }
  parameter(core, "norm_weight").fill_(100);
  Carry carry{{"luna/packed", one.view({1, 8, 8})}};
  const at::Tensor out = core.module->forward(in.q, keys, in.v, {}, carry);
  CHECK(max_difference(out, dense_softmax({in.q, in.v, in.v})) < 1e-6);
}

TEST_CASE("luna maps a constant value to one constant") {
  const BuiltCore core = make();
  const Inputs in = random_inputs(1, 2, 13, 5);
  const at::Tensor row = random_tensor("constant", {1, 1, 10}), constant = by_heads(row, 2).expand({1, 2, 13, 5});
  const at::Tensor mapped =
      at::matmul(row, parameter(core, "packed_value.weight").t()) + parameter(core, "packed_value.bias");
  CHECK(max_difference(core(in.q, in.k, constant), by_heads(mapped, 2).expand({1, 2, 13, 5})) < 1e-10);
}

TEST_CASE("luna golden number") {
  // One row, d = 1, normed to 0, so packing is the mean of values 2 and 4; twice that plus 1 is read by every token.
  const BuiltCore core = make_core("luna", {{"packed_len", 1}}, {.heads = 1, .head_dim = 1});
  parameter(core, "pack_query.bias").zero_();
  parameter(core, "packed_value.weight").fill_(2);
  parameter(core, "packed_value.bias").fill_(1);
  const at::Tensor out = core(column({5, -1}), column({3, 8}), column({2, 4}));
  for (int64_t i = 0; i < 2; ++i) CHECK(out[0][0][i][0].item<double>() == Approx(7));
}

TEST_CASE("mrs-luna gives each scale rows of its own, which do not meet in Carry") {
  const Json options = {{"scales", {1, 2, 2}}, {"packed_len", 4}};
  const Setup setup{.heads = 3};
  const BuiltCore core = make_core("mrs-luna", options, setup);
  CHECK(parameter(core, "shared.scale1_luna_first").sizes() == at::IntArrayRef({4, 5}));
  CHECK(parameter(core, "shared.scale2_luna_first").sizes() == at::IntArrayRef({4, 10}));
  CHECK(parameter(core, "scale2.packed_key.weight").sizes() == at::IntArrayRef({10, 10}));
  const Inputs in = random_inputs(2, 3, 13, 5);
  const SequenceMask mask = length_mask({13, 7}, 13);
  Carry carry;
  (void)core.module->forward(in.q, in.k, in.v, mask, carry);
  const at::Tensor out = core.module->forward(in.q, in.k, in.v, mask, carry);  // a second layer with the same maps
  REQUIRE(carry.size() == 2);
  CHECK(carry.at("scale1/luna/packed").sizes() == at::IntArrayRef({2, 4, 5}));
  CHECK(carry.at("scale2/luna/packed").sizes() == at::IntArrayRef({2, 4, 10}));
  // Another value of scale 2's rows leaves the head of scale 1 alone, bit by bit.
  Carry again;
  (void)core.module->forward(in.q, in.k, in.v, mask, again);
  again["scale2/luna/packed"] = random_tensor("other", {2, 4, 10}) * 3;
  const at::Tensor other = core.module->forward(in.q, in.k, in.v, mask, again);
  CHECK(at::equal(out.narrow(1, 0, 1), other.narrow(1, 0, 1)));
  CHECK(max_difference(out, other) > 1e-3);
}

TEST_CASE("two layers of luna hand P on, and the first layer's share of it reaches the second layer's output") {
  const Json options = {{"packed_len", 4}};
  const BuiltMixer first = make_mixer("luna", options),
                   second = make_mixer("luna", options, {.layer = 1, .shared = first.shared});
  CHECK(first.shared->parameters().size() == 1);
  const at::Tensor x = random_tensor("x", {2, 13, 10});
  const SequenceMask mask = length_mask({13, 7}, 13);
  Carry carry;
  (void)first.module->forward(x, mask, carry);
  const at::Tensor handed_on = second.module->forward(x, mask, carry);
  CHECK(max_difference(handed_on, second(x, mask)) > 1e-3);
  // Only through P can the first layer's maps matter to the second layer.
  handed_on.square().sum().backward();
  for (const auto& item : first.module->named_parameters()) {
    INFO(item.key());
    const bool packs = item.key() == "value.weight" || item.key() == "core.pack_query.weight";
    if (packs) CHECK(item.value().grad().abs().max().item<double>() > 1e-6);
    if (item.key() == "out.weight") CHECK_FALSE(item.value().grad().defined());
  }
}

TEST_CASE("luna has the parameters of attention-core 7, and its own initial values") {
  const Setup lra{.head_dim = 32, .max_len = 2048};
  const BuiltMixer mixer = make_mixer("luna", {}, lra);
  int64_t own = 0;
  for (const at::Tensor& value : mixer.module->parameters()) own += value.numel();
  CHECK(own == 7 * (64 * 64 + 64) + 2 * 64);
  const BuiltCore core = make_core("luna", {{"packed_len", 256}}, lra);
  const at::Tensor first = parameter(core, "shared.luna_first");
  CHECK(first.sizes() == at::IntArrayRef({256, 64}));
  CHECK(first.var().item<double>() == Approx(1.0 / 64).epsilon(0.04));  // 16384 numbers: 3 deviations are 3.3 %
  // Xavier with gain 1/sqrt(2): variance 1/2 * 2 / (64 + 64).
  CHECK(parameter(core, "packed_key.weight").var().item<double>() == Approx(1.0 / 128).epsilon(0.05));
}

}  // namespace xformer::attention::luna_test
