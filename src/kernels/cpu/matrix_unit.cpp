#include "kernels/cpu/matrix_unit.h"

#include <algorithm>
#include <cstdint>

#include "core/error.h"

#if defined(__x86_64__) && defined(__GNUC__) && defined(__linux__)
#define XFORMER_MATRIX_UNIT
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace xformer::kernels {

#ifdef XFORMER_MATRIX_UNIT

namespace {

#define XFORMER_BY_UNIT __attribute__((target("amx-tile,amx-bf16")))

// A tile has 16 rows of 64 bytes: 16 sums, or 16 pairs of factors.
constexpr int64_t kTile = 16;

// What the unit reads to know its eight tiles (Intel's manual, LDTILECFG).
struct Tiles {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(Tiles) == 64);

// Sums of a block in tiles 0 to 3, as two rows of two; a's two in 4 and 5, b's in 6 and 7.
Tiles tiles_of(int64_t rows, int64_t columns, int64_t inner) {
  Tiles result;
  const auto set = [&](int first, int last, int64_t height, int64_t bytes) {
    for (int tile = first; tile <= last; ++tile)
      result.rows[tile] = static_cast<uint8_t>(height), result.row_bytes[tile] = static_cast<uint16_t>(bytes);
  };
  set(0, 3, rows, 4 * columns);
  set(4, 5, rows, 2 * inner);
  set(6, 7, inner / 2, 4 * columns);
  return result;
}

// Where a part of a product begins. Strides in bytes: a's and c's of rows, b's of pairs of rows.
struct Place {
  const char *a, *b;
  char* c;
  int64_t a_stride, b_stride, c_stride;

  [[nodiscard]] Place at(int64_t row, int64_t column, int64_t k) const {
    return {a + row * a_stride + 2 * k,
            b + k / 2 * b_stride + 4 * column,
            c + row * c_stride + 4 * column,
            a_stride,
            b_stride,
            c_stride};
  }
};

// The sums of so many tiles one below the other and side by side.
template <int kDown, int kAcross>
XFORMER_BY_UNIT [[gnu::always_inline]] inline void multiply_block(const Place& at, int64_t inner, int64_t step,
                                                                  bool adds) {
  char *const c = at.c, *const below = at.c + kTile * at.c_stride;
  constexpr int64_t kNext = 4 * kTile;
  if (adds) {
    _tile_loadd(0, c, at.c_stride);
    if constexpr (kAcross > 1) _tile_loadd(1, c + kNext, at.c_stride);
    if constexpr (kDown > 1) _tile_loadd(2, below, at.c_stride);
    if constexpr (kDown > 1 && kAcross > 1) _tile_loadd(3, below + kNext, at.c_stride);
  } else {
    _tile_zero(0);
    if constexpr (kAcross > 1) _tile_zero(1);
    if constexpr (kDown > 1) _tile_zero(2);
    if constexpr (kDown > 1 && kAcross > 1) _tile_zero(3);
  }
  for (int64_t k = 0; k < inner; k += step) {
    const char *const a = at.a + 2 * k, *const b = at.b + k / 2 * at.b_stride;
    _tile_loadd(4, a, at.a_stride);
    _tile_loadd(6, b, at.b_stride);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kAcross > 1) {
      _tile_loadd(7, b + kNext, at.b_stride);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kDown > 1) {
      _tile_loadd(5, a + kTile * at.a_stride, at.a_stride);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kAcross > 1) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, c, at.c_stride);
  if constexpr (kAcross > 1) _tile_stored(1, c + kNext, at.c_stride);
  if constexpr (kDown > 1) _tile_stored(2, below, at.c_stride);
  if constexpr (kDown > 1 && kAcross > 1) _tile_stored(3, below + kNext, at.c_stride);
}

// A part of which every tile is alike: so many rows and columns of c, and `step` of the inner dimension.
XFORMER_BY_UNIT void multiply_part(const Place& place, int64_t rows, int64_t columns, int64_t inner, bool adds) {
  const int64_t step = std::min(2 * kTile, inner);
  const Tiles tiles = tiles_of(std::min(kTile, rows), std::min(kTile, columns), step);
  _tile_loadconfig(&tiles);
  for (int64_t i = 0; i < rows; i += 2 * kTile) {
    for (int64_t j = 0; j < columns; j += 2 * kTile) {
      const Place at = place.at(i, j, 0);
      if (const bool across = columns - j > kTile; rows - i > kTile) {
        if (across) multiply_block<2, 2>(at, inner, step, adds);
        else multiply_block<2, 1>(at, inner, step, adds);
      } else {
        if (across) multiply_block<1, 2>(at, inner, step, adds);
        else multiply_block<1, 1>(at, inner, step, adds);
      }
    }
  }
  _tile_release();  // what the unit holds need not be kept when another thread's turn comes
}

// The multiples of a tile's size, then what is left.
template <class Use>
void for_parts(int64_t size, int64_t tile, const Use& use) {
  const int64_t whole = size / tile * tile;
  if (whole > 0) use(0, whole);
  if (whole < size) use(whole, size - whole);
}

bool allowed() {
  unsigned int a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned int kUnit = 1U << 22 | 1U << 24;  // AMX-BF16, AMX-TILE
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kUnit) != kUnit) return false;
  constexpr long kAskForState = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, since Linux 5.16
  return ::syscall(SYS_arch_prctl, kAskForState, kTileData) == 0;
}

}  // namespace

bool has_matrix_unit() {
  static const bool has = allowed();
  return has;
}

void multiply_by_matrix_unit(const TileShape& shape, const c10::BFloat16* b, const c10::BFloat16* a, float* c) {
  const Place all{reinterpret_cast<const char*>(a), reinterpret_cast<const char*>(b), reinterpret_cast<char*>(c),
                  int64_t{2} * shape.a_stride,      int64_t{4} * shape.b_stride,      int64_t{4} * shape.c_stride};
  for_parts(shape.inner, 2 * kTile, [&](int64_t k, int64_t depth) {
    for_parts(shape.rows, kTile, [&](int64_t i, int64_t height) {
      for_parts(shape.columns, kTile, [&](int64_t j, int64_t width) {
        multiply_part(all.at(i, j, k), height, width, depth, shape.adds || k > 0);
      });
    });
  });
}

#else

bool has_matrix_unit() { return false; }

void multiply_by_matrix_unit(const TileShape& /*shape*/, const c10::BFloat16* /*b*/, const c10::BFloat16* /*a*/,
                             float* /*c*/) {
  XF_ASSERT(false, "a product by a matrix unit on a processor without one");
}

#endif

}  // namespace xformer::kernels
