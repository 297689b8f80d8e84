// What tests of launch plans share: shapes at the limits of what a device holds and programs number, and whether a
// launch fits a device. All of it is for constants, in which an overflow is an error.
#pragma once

#include <initializer_list>

#include "kernels/device/occupancy.h"

namespace xformer::kernels {

// As many heads as a grid has blocks, as many rows as an int numbers.
inline constexpr int64_t kPlannedHeads[] = {1, 8, 131, 513, 1 << 20, kMostBlocks};
inline constexpr int64_t kPlannedRows[] = {1, 64, 65, 2048, 1 << 20, kMostNumbered};

// Whether a tensor of this shape is 128 GiB of floats or less: more than one of those that a launch takes can be.
constexpr bool is_held(int64_t heads, int64_t rows, int64_t width) {
  return rows <= (int64_t{1} << 35) / width / heads;
}

// Whether a grid has blocks, no more than there can be, and a multiprocessor has room for one of them.
template <class Program>
constexpr bool launch_fits(const LaunchGrid& grid) {
  return grid.blocks >= 1 && grid.blocks <= kMostBlocks && grid.shared_bytes <= kMostSharedBytes &&
         resident_blocks(kSm80, Program::kThreads, 1, grid.shared_bytes) >= 1;
}

// The same for each shape that is_held(): fits(heads, rows, width).
template <class Fits>
constexpr bool all_fit(std::initializer_list<int64_t> widths, const Fits& fits) {
  for (const int64_t heads : kPlannedHeads)
    for (const int64_t rows : kPlannedRows)
      for (const int64_t width : widths)
        if (is_held(heads, rows, width) && !fits(heads, rows, width)) return false;
  return true;
}

// Whether parts of so many tiles have all of these and none is empty.
constexpr bool is_division(int64_t parts, int64_t part_tiles, int64_t tiles) {
  return parts >= 1 && part_tiles >= 1 && parts * part_tiles >= tiles && (parts - 1) * part_tiles < tiles;
}

// All that a program's place in its rows asks of a thread, by its number among all of a grid.
template <int kThreads>
struct NumberedThread {
  int64_t of_grid = 0;

  [[nodiscard]] int index() const { return static_cast<int>(of_grid % kThreads); }
  [[nodiscard]] int64_t block() const { return of_grid / kThreads; }
};

}  // namespace xformer::kernels
