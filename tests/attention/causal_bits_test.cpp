// Rows of causal attentions keep every bit when later tokens change, where nothing rounds over the whole sequence.
#include "attention/support.h"

namespace xformer::attention::causal_bits_test {

using namespace support;

struct Case {
  std::string name;
  Json options = Json::object();
  int64_t layer = 1;
};

void check_bits(const std::vector<Case>& cases) {
  const int64_t n = 90;
  const at::Tensor x = random_tensor("x", {1, n, 10});
  for (const Case& one : cases) {
    INFO(one.name << " " << one.options.dump() << " layer " << one.layer);
    const BuiltMixer mixer = make_mixer(one.name, one.options, {.max_len = n, .layer = one.layer, .causal = true});
    const at::Tensor out = mixer(x, {{}, true});
    for (const int64_t seen : {1, 17, 64, 70}) {
      const at::Tensor later = at::cat({x.narrow(1, 0, seen), random_tensor("later", {1, n - seen, 10}) * 9}, 1);
      CHECK(at::equal(mixer(later, {{}, true}).narrow(1, 0, seen), out.narrow(1, 0, seen)));
    }
  }
}

TEST_CASE("causal rows keep every bit when later tokens change") {
  check_bits({{"additive"},
              {"explicit-sparse"},
              {"explicit-sparse", {{"top_fraction", 0.4}}},
              {"adaptively-sparse"},
              {"entmax15"},
              {"sparsemax"},
              {"logsparse"},
              {"logsparse", {{"pattern", "bit-suffix"}}},
              {"logsparse", {{"restart", 6}, {"local", 3}}},
              {"logsparse", {{"query_kernel", 4}}},
              {"diet-cascade"},
              {"diet-dilated"},
              {"diet-dilated-memory"},
              {"axial", {{"axes", "sum"}, {"columns", 7}}},
              {"axial", {{"axes", "union"}, {"columns", 7}}},
              {"memory-compressed", {{"alternate", true}, {"block", 8}}, 0},
              {"memory-compressed", {{"alternate", true}, {"block", 8}}, 1},
              {"rfa-gaussian"},
              {"rfa-gaussian", {{"gate", true}}},
              {"rfa-arccos"},
              {"rfa-arccos", {{"gate", true}}},
              {"transformer-xl", {{"memory", 20}}},
              {"transformer-xl", {{"memory", 20}, {"same_length", true}, {"clamp", 9}}},
              {"compressive", {{"memory", 20}, {"compressed_memory", 10}}},
              {"transformer-ls"},
              {"transformer-ls", {{"block", 5}, {"segment", 3}, {"segment_rank", 2}, {"dual_norm", false}}}});
}

// A set is pooled over tokens that all stand before whoever reads it, and a running sum adds them in their order.
TEST_CASE("causal rows of combiners keep every bit however sets are pooled and counted") {
  std::vector<Case> cases;
  for (const bool log_count : {false, true}) {
    for (const char* pool : {"max", "mean", "sum", "relu", "deepsets"}) {
      const Json how{{"pool", pool}, {"log_count_bias", log_count}};
      const auto add = [&](const std::string& name, Json options) {
        options.update(how);
        cases.push_back({name, options});
      };
      add("combiner-fixed", {{"block", 8}});
      add("combiner-logsparse", Json::object());
      add("combiner-axial-vertical", {{"columns", 7}});
      add("combiner-axial-horizontal", {{"columns", 7}});
      for (const char* mixture : {"average", "joint"}) add("combiner-mixture", {{"columns", 7}, {"mixture", mixture}});
    }
    for (const char* summary : {"proj", "none", "wsum"})
      cases.push_back(
          {"combiner-axial-rowmajor", {{"columns", 7}, {"row_summary", summary}, {"log_count_bias", log_count}}});
  }
  check_bits(cases);
}

}  // namespace xformer::attention::causal_bits_test
