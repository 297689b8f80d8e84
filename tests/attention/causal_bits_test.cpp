// Rows of causal attentions keep every bit when later tokens change, where nothing rounds over the whole sequence.
#include "attention/support.h"

namespace xformer::attention::causal_bits_test {

using namespace support;

TEST_CASE("causal rows keep every bit when later tokens change") {
  const std::vector<std::pair<std::string, Json>> attentions{
      {"additive", {}},
      {"explicit-sparse", {}},
      {"explicit-sparse", {{"top_fraction", 0.4}}},
      {"adaptively-sparse", {}},
      {"entmax15", {}},
      {"sparsemax", {}},
      {"logsparse", {}},
      {"logsparse", {{"pattern", "bit-suffix"}}},
      {"logsparse", {{"restart", 6}, {"local", 3}}},
      {"logsparse", {{"query_kernel", 4}}},
      {"diet-cascade", {}},
      {"diet-dilated", {}},
      {"diet-dilated-memory", {}},
      {"rfa-gaussian", {}},
      {"rfa-gaussian", {{"gate", true}}},
      {"rfa-arccos", {}},
      {"rfa-arccos", {{"gate", true}}},
      {"transformer-xl", {{"memory", 20}}},
      {"transformer-xl", {{"memory", 20}, {"same_length", true}, {"clamp", 9}}},
      {"compressive", {{"memory", 20}, {"compressed_memory", 10}}},
      {"transformer-ls", {}},
      {"transformer-ls", {{"block", 5}, {"segment", 3}, {"segment_rank", 2}, {"dual_norm", false}}}};
  const int64_t n = 90;
  const at::Tensor x = random_tensor("x", {1, n, 10});
  for (const auto& [name, options] : attentions) {
    INFO(name << " " << options.dump());
    const BuiltMixer mixer = make_mixer(name, options, {.max_len = n, .layer = 1, .causal = true});
    const at::Tensor out = mixer(x, {{}, true});
    for (const int64_t seen : {1, 17, 64, 70}) {
      const at::Tensor later = at::cat({x.narrow(1, 0, seen), random_tensor("later", {1, n - seen, 10}) * 9}, 1);
      CHECK(at::equal(mixer(later, {{}, true}).narrow(1, 0, seen), out.narrow(1, 0, seen)));
    }
  }
}

}  // namespace xformer::attention::causal_bits_test
