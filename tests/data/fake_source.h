// A source of examples in memory, for tests of what uses one.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "data/source.h"

namespace xformer::fake {

// Train holds one example per length given, filled with tokens 1, 2, ...; dev and test are empty.
class Source : public data::DataSource {
 public:
  explicit Source(const std::vector<int64_t>& lengths) {
    info_.shape = {.max_len = 1, .vocabulary = 16, .target = data::class_target(10)};
    for (const int64_t length : lengths) info_.shape.max_len = std::max(info_.shape.max_len, length);
    for (size_t i = 0; i < lengths.size(); ++i) {
      std::vector<uint8_t>& tokens = tokens_.emplace_back(static_cast<size_t>(lengths[i]));
      for (size_t place = 0; place < tokens.size(); ++place) tokens[place] = static_cast<uint8_t>(1 + place % 15);
    }
  }
  int64_t size(data::Split split) const override {
    return split == data::Split::kTrain ? static_cast<int64_t>(tokens_.size()) : 0;
  }
  data::Example read(data::Split, int64_t index) const override {
    if (index == fails_at) throw DataError("the example cannot be read");
    return {{tokens_.at(static_cast<size_t>(index))}, {}, index % 10};
  }
  const data::DataInfo& info() const override { return info_; }

  int64_t fails_at = -1;

 private:
  std::vector<std::vector<uint8_t>> tokens_;
  data::DataInfo info_;
};

}  // namespace xformer::fake
