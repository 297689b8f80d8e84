// What an attention keeps and takes of memory, by the counting allocator, against its formula and its paper's promise.
#include <set>

#include "contract/claims.h"
#include "tensor/memory.h"

namespace xformer::attention::contract {

namespace {

BuiltMixer training_mixer(const std::string& name, int64_t heads, int64_t head_dim, int64_t n) {
  BuiltMixer mixer = make_mixer(
      name, Json::object(), {.heads = heads, .head_dim = head_dim, .max_len = n, .dropout = 0.1, .type = at::kFloat});
  mixer.module->train();
  return mixer;
}

}  // namespace

TEST_CASE("what lives between forward and backward is at most the formula and twenty times the input") {
  install_caching_allocator();
  constexpr int64_t kBatch = 2, kLength = 1024, kHeads = 2, kHeadDim = 32;
  for_each_name([](const std::string& name, const Claims&) {
    const BuiltMixer mixer = training_mixer(name, kHeads, kHeadDim, kLength);
    const at::Tensor x = tokens(kBatch, kLength, kHeads * kHeadDim).to(at::kFloat).requires_grad_(true);
    const SequenceMask mask = length_mask({kLength, 700}, kLength);
    const int64_t before = host_memory().live_bytes;
    const at::Tensor out = mixer(x, mask);
    const auto alive = static_cast<double>(host_memory().live_bytes - before);
    const double formula = mixer.module->cost(kBatch, kLength).peak_elements;
    const auto frame = static_cast<double>(20 * kBatch * kLength * kHeads * kHeadDim);
    CHECK(alive <= 4 * (formula + frame));
    // A formula that promises anything is no formula.
    CHECK(4 * formula <= alive * 1.5);
    out.sum().backward();
  });
}

// Whose papers form all pairs. What others form of them is blocks, a tile of rows, or a few mixtures; mra2's and
// sinkhorn's pairs of blocks are n^2 / block^2; of softmax-fused, the three by entmax, explicit-sparse, blockwise,
// memory-compressed and adaptive-span, whose spans may be the length, the time alone is quadratic.
bool forms_all_pairs(const std::string& name) {
  static const std::set<std::string> kNames{"softmax", "adamra-softmax", "transformer-xl", "compressive"};
  const std::string& base = resolve(name).base->name;
  return kNames.contains(base) || base.starts_with("synth-");
}

TEST_CASE("what promises less than n^2 never takes the memory of half an [n, n] tensor, at n = 8192") {
  install_caching_allocator();
  constexpr int64_t kLength = 8192, kHeads = 2;
  int quadratic = 0;
  for_each_name([&](const std::string& name, const Claims& claims) {
    if (forms_all_pairs(name)) return;
    quadratic += claims.complexity == Complexity::kQuadratic;
    const BuiltMixer mixer = training_mixer(name, kHeads, 4, kLength);
    const at::Tensor x = tokens(1, kLength, 8).to(at::kFloat).requires_grad_(true);
    const SequenceMask mask = length_mask({8000}, kLength);
    release_cached_memory();
    reset_host_peak();
    const int64_t before = host_memory().live_bytes;
    mixer(x, mask).sum().backward();
    CHECK(host_memory().peak_bytes - before < kLength * kLength * static_cast<int64_t>(sizeof(float)) / 2);
  });
  // sinkhorn, mra2, mra2-s, softmax-fused, blockwise, memory-compressed, additive, adaptive-span, adaptively-sparse,
  // entmax15, sparsemax, explicit-sparse, and each under mrs-
  CHECK(quadratic == 24);
}

}  // namespace xformer::attention::contract
