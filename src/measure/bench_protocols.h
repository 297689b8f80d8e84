// Published comparisons of speed and memory, by name: which models, at which sizes.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"

namespace xformer::measure {

struct BenchModel {
  std::string name;
  Json own = Json::object();  // option values of this entry alone
};

struct BenchProtocol {
  std::string name, title, task, protocol;
  std::vector<BenchModel> models;  // softmax-fused among them: what an exact kernel takes
  std::vector<int64_t> lengths;
  int64_t batch = 0;
};

[[nodiscard]] const std::vector<BenchProtocol>& bench_protocols();
// UserError with the nearest name.
[[nodiscard]] const BenchProtocol& find_bench_protocol(const std::string& name);

}  // namespace xformer::measure
