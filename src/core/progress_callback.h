// How long work tells how far it is, without knowing who listens.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace xformer {

// (what is being done, done, total); called often, from one thread; must return quickly.
using ProgressCallback = std::function<void(std::string_view what, uint64_t done, uint64_t total)>;

}  // namespace xformer
