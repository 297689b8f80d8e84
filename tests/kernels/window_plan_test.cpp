// Plans of attention over windows on a device: at any size every row and key has its block, and no number leaves an
// int.
#include <algorithm>
#include <catch2/catch.hpp>

#include "kernels/window_attention/device.h"
#include "plan_support.h"

namespace xformer::kernels::window_plan_test {

namespace {

// Windows of blocks of so many tokens and those beside them, as Windows makes them.
constexpr WindowPattern planned_windows(int64_t n, int64_t dilation, int64_t block, bool by_block) {
  const int64_t tokens = (n + dilation - 1) / dilation, own = std::min(block, tokens);
  const int64_t blocks = (tokens + own - 1) / own, beside = blocks > 1 ? own : 0, reach = own - 1 + beside;
  const auto whole = [](int64_t x) { return static_cast<int>(x); };
  return {whole(n),      whole(dilation), whole(own),   whole(blocks), whole(beside),
          whole(beside), whole(reach),    whole(reach), by_block};
}

constexpr WindowArguments planned_window_pass(int64_t heads, const WindowPattern& pattern, int64_t g) {
  WindowArguments a;
  a.pattern = pattern;
  a.b = heads, a.h = 1, a.g = g, a.m = g == 0 ? 0 : pattern.n;
  if (g == 0) return a;
  const RowDivision division = row_division(int64_t{kTileSide} * pattern.row_tiles(), heads * tiles_of(g));
  a.parts = pattern.by_block ? pattern.blocks : division.parts;
  a.part_tiles = pattern.by_block ? pattern.tiles_of_part() : static_cast<int>(division.part_tiles);
  return a;
}

// Whether the last rows and keys are where they should be.
constexpr bool has_all(const WindowPattern& p) {
  const WindowRows first = p.row_tile(0), last = p.row_tile(p.row_tiles() - 1);
  const int end = p.tokens(last.residue, p.n), row = p.tokens(0, p.n) - 1;
  const Span seen = p.keys(row, row + 1), seeing = p.seeing(row / kTileSide * kTileSide, row + 1);
  return first.from == 0 && first.to >= 1 && last.to == (p.by_block ? p.n : end) &&
         last.residue == (p.by_block ? 0 : p.dilation - 1) && seen.from >= 0 && seen.from <= row &&
         seen.to == row + 1 && seeing.from <= row && seeing.to == row + 1 && p.token(0, row, row + 1) < p.n &&
         p.token(0, row + kTileSide, row + 1) == -1 && p.rows() >= p.n;
}

template <int kWidth>
constexpr bool window_pass_fits(int64_t heads, const WindowPattern& pattern, int64_t g) {
  using Extra = WindowAttentionExtraProgram<float, kWidth>;
  const WindowArguments a = planned_window_pass(heads, pattern, g);
  constexpr auto kKind = ProductKind::kFloat;
  return launch_fits<WindowAttentionForwardProgram<float, kKind, kWidth>>(window_rows_grid(a, kWidth, 3)) &&
         launch_fits<WindowAttentionQueryProgram<float, kKind, kWidth>>(window_rows_grid(a, kWidth, 4)) &&
         launch_fits<WindowAttentionKeyProgram<float, kKind, kWidth>>(window_keys_grid(a, kWidth)) &&
         (g == 0 || (launch_fits<Extra>(Extra::grid(a)) && is_division(a.parts, a.part_tiles, pattern.row_tiles())));
}

template <int kWidth>
constexpr bool windows_fit() {
  for (const int64_t heads : kPlannedHeads)
    for (const int64_t n : {int64_t{1}, int64_t{65}, int64_t{1} << 20, kWindowMost})
      for (const int64_t dilation : {int64_t{1}, int64_t{70}, int64_t{1} << 26, kWindowMost})
        for (const int64_t block : {int64_t{16}, int64_t{64}, int64_t{65}, int64_t{1} << 20, kWindowMost})
          for (const bool by_block : {false, true}) {
            if ((by_block && dilation > 1) || !is_held(heads, std::max(n, dilation), kTileSide)) continue;
            const WindowPattern pattern = planned_windows(n, dilation, block, by_block);
            if (!has_all(pattern)) return false;
            for (const int64_t g : {int64_t{0}, int64_t{1}, int64_t{200}, kWindowMost}) {
              if (g == kWindowMost && (by_block || heads > 1)) continue;
              if (!window_pass_fits<kWidth>(heads, pattern, g)) return false;
            }
          }
  return true;
}

}  // namespace

TEST_CASE("plans of windows fit a device at any size, have every row and key, and leave no int") {
  // Constants, in which an overflow is an error.
  STATIC_REQUIRE(windows_fit<32>());
  STATIC_REQUIRE(windows_fit<64>());
  // Dilated so far that a tile's last places, which are none, would be beyond all ints.
  STATIC_REQUIRE(planned_windows(kWindowMost, 1 << 26, 16, false).token((1 << 26) - 1, kTileSide, 4) == -1);
  STATIC_REQUIRE(planned_windows(kWindowMost, 1 << 26, 16, false).token((1 << 26) - 1, 3, 4) == kWindowMost - 1);
  // More blocks than there can be are counted as they are, and refused by the launch.
  STATIC_REQUIRE(
      window_rows_grid(planned_window_pass(1 << 20, planned_windows(kWindowMost, 1, 1, true), 1), 32, 3).blocks ==
      int64_t{1} << 48);
  // Two blocks at a time, at their widest.
  STATIC_REQUIRE(resident_blocks(kSm80, kTileThreads, 1, window_grid(1, 64, 4).shared_bytes) == 2);
  // What is planned here is what Windows makes.
  for (const int64_t n : {1, 65, 2048})
    for (const int64_t block : {16, 65, 4096}) {
      CAPTURE(n, block);
      const WindowPattern planned = planned_windows(n, 1, block, false),
                          made = window_pattern(Windows::segments(n, block, block), false);
      CHECK((planned.block == made.block && planned.blocks == made.blocks && planned.before == made.before &&
             planned.after == made.after && planned.back == made.back && planned.ahead == made.ahead));
    }
  const WindowPattern dilated = window_pattern(Windows::own_block(kWindowMost, kWindowMost, false, 70), false);
  CHECK(dilated.row_tiles() == planned_windows(kWindowMost, 70, kWindowMost, false).row_tiles());
}

}  // namespace xformer::kernels::window_plan_test
