// One token at a time: what every causal attention gives then is what its parallel form gives (attention/decoding.h).
#include "attention/decoding.h"

#include "contract/claims.h"

namespace xformer::attention::contract {

namespace {

constexpr int64_t kLength = 29;

// Rows of x [b,n,m]: those of the first `prompt` tokens at once, then one by one.
at::Tensor decoded(const BuiltMixer& mixer, const at::Tensor& x, int64_t prompt, int64_t length, State& kept) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> rows;
  for (int64_t first = 0; first < x.size(1); first += rows.size() == 1 ? prompt : 1) {
    Carry carry = init_state(*mixer.module, x.size(0));
    rows.push_back(decode(*mixer.module, x.narrow(1, first, first == 0 ? prompt : 1), {first, length}, carry, kept));
  }
  return at::cat(rows, 1);
}

// The attention under these options; none where they are refused.
BuiltMixer causal_mixer(const std::string& name, const Json& options) {
  try {
    BuiltMixer mixer = make_mixer(name, options, {.max_len = kLength, .causal = true});
    // Weights that begin at zero would hide what depends on the length.
    for (const auto& [key, tensor] : mixer.parameters()) tensor.data().add_(random_tensor(key, tensor.sizes()), 0.1);
    return mixer;
  } catch (const UserError&) {
    return {};
  }
}

std::vector<std::string> names_kept(const std::string& name, const Json& options) {
  State kept;
  decoded(causal_mixer(name, options), tokens(2, kLength), 3, 0, kept);
  std::vector<std::string> names;
  for (const auto& [key, tensor] : kept) names.push_back(key);
  return names;
}

}  // namespace

TEST_CASE("one token at a time gives the rows of the causal form, behind any prefix and under all options",
          "[decoding]") {
  const at::Tensor x = tokens(2, kLength);
  int64_t names = 0;
  for_each_name([&](const std::string& name, const Claims& claims) {
    if (!claims.causal) return;
    ++names;
    const Resolved attention = resolve(name);
    std::vector<Json> sets = option_sets(attention);
    sets.push_back(Json::object());  // the defaults
    for (const Json& options : sets) {
      const BuiltMixer mixer = causal_mixer(name, options);
      if (!mixer.module) continue;
      const int64_t length = decoding_length(attention, full_options(attention, options), kLength);
      const at::Tensor whole = mixer(x, {{}, true});
      for (const int64_t prompt : {1, 2, 11}) {
        INFO(options.dump() << " prompt " << prompt);
        State kept;
        CHECK(max_difference(decoded(mixer, x, prompt, length, kept), whole) < 1e-10);
      }
      // No sequence is too short to be the whole one, but for sinkhorn: block 0 of a short one has fewer null keys.
      if (length > 0 || name == "sinkhorn") continue;
      State kept;
      CHECK(max_difference(mixer(x.narrow(1, 0, 13), {{}, true}), decoded(mixer, x.narrow(1, 0, 13), 5, length, kept)) <
            1e-10);
    }
  });
  CHECK(names >= 30);
}

TEST_CASE("rows that depend on the length are those of the length that was trained", "[decoding]") {
  // A block is a half of the sequence: of 29 tokens one of 15, which the first eight tokens would not have.
  const Resolved attention = resolve("blockwise");
  const BuiltMixer mixer = causal_mixer("blockwise", Json::object());
  const at::Tensor x = tokens(2, kLength), whole = mixer(x, {{}, true});
  CHECK(decoding_length(attention, full_options(attention), kLength) == kLength);
  State kept, other;
  CHECK(max_difference(decoded(mixer, x, 4, kLength, kept), whole) < 1e-10);
  CHECK(max_difference(decoded(mixer, x, 4, 0, other), whole) > 1e-3);
}

TEST_CASE("kept are sums where they say all, keys where a row reads them, and all of q, k and v elsewhere",
          "[decoding]") {
  using Names = std::vector<std::string>;
  CHECK(names_kept("linear", kSmall) == Names{"sums"});
  CHECK(names_kept("performer", kSmall) == Names{"largest", "sums", "values"});
  CHECK(names_kept("rfa-gaussian", kSmall) == Names{"sums"});
  CHECK(names_kept("rfa-arccos", {{"gate", true}}) == Names{"sums"});
  CHECK(names_kept("softmax-fused", kSmall) == Names{"keys", "values"});
  CHECK(names_kept("local-window", kSmall) == Names{"keys", "queries", "values"});
  CHECK(names_kept("transformer-ls", kSmall) == Names{"inputs"});
  State kept;
  decoded(causal_mixer("linear", kSmall), tokens(2, kLength), 3, 0, kept);
  CHECK(kept.at("sums").sizes() == at::IntArrayRef({2, 2, 5, 6}));  // S and z of a head of 5, whatever the length
}

TEST_CASE("kept rows lie one behind the other, and are copied no more than twice as they grow", "[decoding]") {
  State kept;
  const at::Tensor rows = random_tensor("rows", {2, 3, 40, 4});
  int64_t moved = 0;
  const void* place = nullptr;
  for (int64_t first = 0; first < 40; first += first == 0 ? 3 : 1) {
    const at::Tensor all = keep(kept, "rows", rows.narrow(2, first, first == 0 ? 3 : 1), {first});
    REQUIRE(at::equal(all, rows.narrow(2, 0, first == 0 ? 3 : first + 1)));
    if (place != nullptr && place != all.const_data_ptr()) moved += first;
    place = all.const_data_ptr();
  }
  CHECK(moved <= 2 * 40);
  CHECK_THROWS_AS(keep(kept, "rows", rows.narrow(2, 0, 2), {40}), InternalError);
}

}  // namespace xformer::attention::contract
