// Work that falls into independent pieces, in as many threads as there are processors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace xformer {

// Calls `piece` once with each of 0 .. count - 1, in any order, in `threads` threads (0: as many as the machine has) of
// which the calling one is one. The first exception stops what has not begun and is thrown here.
void for_each_piece(size_t count, int64_t threads, const std::function<void(size_t piece)>& piece);

}  // namespace xformer
