// Images made larger or smaller by a filter as wide as the reduction asks for (Pillow's Image.resize).
#pragma once

#include <cstdint>
#include <vector>

#include "readers/png.h"

namespace xformer::data {

enum class Filter {
  kBicubic,  // Keys 1981, a = -1/2; reaches two pixels
  kLanczos,  // a sinc windowed by one of three lobes; reaches three
};

// What one pixel of the result is made of: weights, which sum to 1, of the pixels from `first` on.
struct Taps {
  int64_t first = 0;
  std::vector<double> weights;
};
// For `count` pixels from the stretch [begin, end) of `source` ones; what lies outside has no weight.
// Of these only those from number `from` up to `to`.
[[nodiscard]] std::vector<Taps> resampling_taps(Filter filter, int64_t source, double begin, double end, int64_t count,
                                                int64_t from, int64_t to);

struct Box {
  int64_t top = 0, left = 0, height = 0, width = 0;
};
// The box of the image as height x width pixels, rounded to whole levels between the two directions, as Pillow does.
[[nodiscard]] readers::Image resized(const readers::Image& image, const Box& box, int64_t height, int64_t width,
                                     Filter filter = Filter::kBicubic);
// The same cut down to `part` of its pixels, without the work and the memory of the others.
[[nodiscard]] readers::Image resized_part(const readers::Image& image, const Box& box, int64_t height, int64_t width,
                                          const Box& part, Filter filter = Filter::kBicubic);

}  // namespace xformer::data
