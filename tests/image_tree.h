// A tree of small PNGs by class, for tests of what reads one.
#pragma once

#include "core/random.h"
#include "readers/png.h"
#include "scratch.h"

namespace xformer::image_tree {

inline std::string noise_png(uint64_t number, int64_t side = 20) {
  readers::Image image{side, side, 3, {}};
  Stream numbers(11, number);
  for (int64_t i = 0; i < side * side * 3; ++i) image.pixels.push_back(static_cast<uint8_t>(numbers.next_below(256)));
  return readers::encode_png(image);
}

// train/<class>/<i>.png and val/<class>/<i>.png, so many of each.
inline void make(const Path& root, const std::vector<std::string>& classes, int64_t train, int64_t val) {
  uint64_t number = 0;
  for (const auto& [split, count] : {std::pair{"train", train}, std::pair{"val", val}})
    for (const std::string& name : classes) {
      std::filesystem::create_directories(root / split / name);
      for (int64_t i = 0; i < count; ++i)
        scratch::put(root / split / name / (std::to_string(i) + ".png"), noise_png(number++));
    }
}

}  // namespace xformer::image_tree
