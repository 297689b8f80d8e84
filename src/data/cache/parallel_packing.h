// Examples that take long to make, made in all threads and packed in order.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "core/progress_callback.h"
#include "data/cache/cache.h"

namespace xformer::data {

struct MadeExample {
  Split split = Split::kTrain;
  std::vector<uint8_t> ids;
  int64_t label = 0;
};

// Adds make(0), make(1), ... make(total - 1) but those that are nullopt; a limited number of them is in memory.
void add_in_order(int64_t total, const std::function<std::optional<MadeExample>(int64_t index)>& make,
                  const AddExample& add, std::string_view what, const ProgressCallback& progress);

}  // namespace xformer::data
