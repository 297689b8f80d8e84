// Sequences that a model makes up: it is read place by place, and each next symbol is drawn from its scores.
#pragma once

#include <functional>

#include "inspect/sampling.h"
#include "models/decoding.h"

namespace xformer::inspect {

struct GenerationRequest {
  std::vector<int64_t> begin;     // ids of the first places, the same of all sequences; at least one
  int64_t first_id = 1;           // of class 0
  int64_t places = 0;             // that the model reads at most (N)
  int64_t count = 1, length = 1;  // sequences, and symbols of each behind those that it begins with
  SamplingOptions sampling;
  uint64_t seed = 0;
  at::Device device = at::kCPU;
  std::function<void(const std::vector<int64_t>& classes)> next;  // hears of the next symbol of each sequence
};

// Sequence i draws its numbers from stream i of the seed, so that it is the same beside fewer or more. Behind its last
// place a model that remembers nothing begins anew, with the last half of its places. UserError for a model that is not
// read place by place.
void generate(models::Model& model, const GenerationRequest& request);

}  // namespace xformer::inspect
