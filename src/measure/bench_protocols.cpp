#include "measure/bench_protocols.h"

#include "core/error.h"
#include "core/names.h"

namespace xformer::measure {

namespace {

// AdaMRA's own runs (its Tables 2 and 3): bytes of IMDb, two layers of width 64, the mixed precision of its code base;
// the number behind a name is its features or landmarks.
std::vector<BenchModel> adamra_models(const std::vector<std::vector<int64_t>>& rates) {
  std::vector<BenchModel> models{{"softmax"},
                                 {"softmax-fused"},
                                 {"bigbird-itc"},
                                 {"reformer"},
                                 {"linformer"},
                                 {"linear"},
                                 {"performer", {{"attention.features", 32}}},
                                 {"nystromformer", {{"attention.landmarks", 32}}}};
  for (const std::vector<int64_t>& each : rates) models.push_back({"adamra", {{"attention.rates", each}}});
  return models;
}

// Long Range Arena, Table 2, with the options of its code.
std::vector<BenchModel> arena_models() {
  return {{"softmax"},
          {"softmax-fused"},
          {"local-block"},
          {"linformer", {{"attention.projected_len", 16}, {"attention.sharing", "kv"}}},
          {"reformer", {{"attention.rounds", 1}}},
          {"sinkhorn"},
          {"synth-random-dot"},
          {"bigbird-itc", {{"attention.block", 64}, {"attention.random_blocks", 3}}},
          {"linear"},
          {"performer-relu", {{"attention.kernel", "relu-identity"}}}};
}

// The model types of Reformer's tables of complexity (Kitaev et al. 2020, Tables 1 and 3).
std::vector<BenchModel> reformer_types() {
  const Json reversible{{"model.reversible", true}}, chunked{{"model.reversible", true}, {"model.ff_chunk", 64}};
  return {{"softmax"},          {"softmax-fused"}, {"softmax", reversible},
          {"softmax", chunked}, {"reformer"},      {"reformer", chunked}};
}

}  // namespace

const std::vector<BenchProtocol>& bench_protocols() {
  static const std::vector<BenchProtocol> kProtocols{
      {"lra-table-2", "Long Range Arena, Table 2", "text", "glra", arena_models(), {1024, 2048, 3072, 4096}, 32},
      {"adamra-table-2",
       "AdaMRA, Table 2",
       "text",
       "mlpen-fp16",
       adamra_models({{2, 4, 8, 16}, {4, 8, 16, 32}}),
       {1024, 2048, 4096},
       16},
      // The run behind its scores has the three resolutions of its Table 1.
      {"adamra-table-3", "AdaMRA, Table 3", "text", "mlpen-fp16", adamra_models({{2, 8, 32}}), {4096}, 8},
      {"reformer-types", "Reformer, model types", "text", "glra", reformer_types(), {1024, 2048, 4096}, 4},
  };
  return kProtocols;
}

const BenchProtocol& find_bench_protocol(const std::string& name) {
  std::vector<std::string> names;
  for (const BenchProtocol& one : bench_protocols()) {
    if (canonical_name(one.name) == canonical_name(name)) return one;
    names.push_back(one.name);
  }
  throw UserError("--as: " + unknown_name_message("bench protocol", name, names));
}

}  // namespace xformer::measure
