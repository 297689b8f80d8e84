// What tests of the bench share: models small enough for a step in no time.
#pragma once

#include <catch2/catch.hpp>

#include "measure/bench.h"
#include "scratch.h"
#include "tensor/memory.h"

namespace xformer::measure {

inline BenchOptions small_bench(std::vector<std::string> models, std::vector<int64_t> lengths) {
  BenchOptions options;
  options.models = std::move(models);
  options.lengths = std::move(lengths);
  options.batches = {2};
  options.steps = 2;
  options.layers = {{"test",
                     {{"model.dim", 8},
                      {"model.head_dim", 4},
                      {"model.ff_dim", 8},
                      {"model.classifier_dim", 8},
                      {"model.layers", 1}}}};
  return options;
}

inline Json report_of(const BenchOptions& options, const BenchRun& run = {}) {
  install_caching_allocator();  // as the program does: it counts memory
  return run_bench(options, bench_cases(options), run);
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace xformer::measure
