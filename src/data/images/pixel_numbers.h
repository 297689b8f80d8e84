// Images whose places are pixels that hold numbers: the bytes of a packed source, x / 255 by channel standardised, in
// any fixed order of the pixels.
#pragma once

#include "data/source.h"

namespace xformer::data {

struct PixelNumbers {
  std::vector<float> mean{0}, deviation{1};  // by channel, of x / 255
  std::string order = "none";                // which pixel each place holds (pixel_order)
};

// `packed` has the bytes as ids, the channels of a pixel side by side; everything else is as it has it. Another order
// than row by row is told in the details, as "permutation".
[[nodiscard]] std::unique_ptr<DataSource> pixel_numbers(std::unique_ptr<DataSource> packed, PixelNumbers numbers);
// The bytes of an example of it, row by row.
[[nodiscard]] std::vector<uint8_t> pixel_bytes(const Example& example, const PixelNumbers& numbers);

// Orders of `count` pixels, by name:
//   none           row by row
//   bitreverse     the numbers of the next power of two with their bits reversed, those below `count` (Gu et al., S4)
//   random-92916   what NumPy's RandomState(92916).permutation(count) gives
// Empty for none.
[[nodiscard]] std::vector<int64_t> pixel_order(const std::string& name, int64_t count);
inline const std::vector<std::string> kPixelOrders{"none", "bitreverse", "random-92916"};

}  // namespace xformer::data
