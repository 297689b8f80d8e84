// What Paramixer's two synthetic tasks share: two marked positions, the check of what the generator makes.
#pragma once

#include <functional>

#include "core/random.h"
#include "data/check.h"

namespace xformer::data {

// Two different positions below `length`, ascending; every pair is as likely as any other.
[[nodiscard]] std::array<int64_t, 2> two_positions(Stream& numbers, int64_t length);

// Reads everything; `fault` says what is wrong with an example, "" for nothing.
void check_generated(const DataSource& source, CheckReport& report, const ProgressCallback& progress,
                     const std::function<std::string(const Example&)>& fault);

}  // namespace xformer::data
