// What dropout draws for a tile of attention's weights on the CPU.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/attention/score_tiles.h"
#include "kernels/dropout/place.h"

namespace xformer::kernels {

// The place of weights [b,h,n,m] with memory for what the forward pass keeps of them (remembering()), where keys or
// queries are few.
[[nodiscard]] DropoutPlace remembering_weights(const DropoutPlace& place, const HeadSizes& sizes);

// The draws of a tile of weights, which lie in memory as if all [b,h,n,m] of them did.
class WeightDraws {
 public:
  WeightDraws(const DropoutPlace& place, const HeadSizes& sizes, DrawnBy pass = DrawnBy::kForward);

  [[nodiscard]] bool any() const { return threshold_ > 0; }
  [[nodiscard]] uint32_t threshold() const { return threshold_; }
  [[nodiscard]] double keep() const;
  // Room for the draws of so many rows and keys.
  [[nodiscard]] size_t room(int64_t rows, int64_t count) const;

  // Draws of rows `row` .. and keys `first` ..; afterwards row r's stand at starts[r]. Of a place that remembers,
  // `first` is a multiple of 8.
  void draw(int64_t b, int64_t h, int64_t row, int64_t rows, int64_t first, int64_t count,
            std::vector<uint16_t>& memory, std::vector<const uint16_t*>& starts) const;

 private:
  // How many of its keys a row's draws are made for, from `first` on.
  [[nodiscard]] int64_t drawn(int64_t first, int64_t count) const;

  uint32_t threshold_;
  int64_t h_, n_, m_, first_row_ = 0;
  uint64_t key_ = 0, high_ = 0;
  uint8_t* kept_ = nullptr;
  bool again_ = false;  // what is kept is read, not written
};

}  // namespace xformer::kernels
