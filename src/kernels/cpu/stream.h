// Rows written past the caches: for what nobody reads before long, which would only push out what somebody does.
#pragma once

#include <cstddef>

namespace xformer::kernels {

void stream_zeros(void* to, std::size_t bytes);
// `from` and `to` do not overlap.
void stream_copy(const void* from, void* to, std::size_t bytes);

}  // namespace xformer::kernels
