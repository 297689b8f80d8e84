// Mixtures of tokens (token_projection.h) as device programs: products of tiles of the projection with tiles of a
// head's tokens, all made first as fp16 numbers (device/tile_planes.h), each tile with a factor of its own, so that a
// product is put right when its sums are taken up. Forwards a block has 64 mixtures of one head's x and y, side by side
// where both are narrow, else of one of them, and walks over its tokens up to the last valid one; backwards it has 64
// tokens and walks over the mixtures, or, for the projection's gradient, 64 by 64 numbers of that and walks over its
// part of the samples: these two are one launch. Parts are added afterwards, in order.
#pragma once

#include "kernels/device/joined.h"
#include "kernels/device/tile_planes.h"

namespace xformer::kernels {

inline constexpr int kProjectedWidest = 64;  // d; wider heads are left to plain operations

enum class ProjectionStage { kPlanes, kMixtures, kGradients };

struct ProjectionArguments {
  ProjectionStage stage = ProjectionStage::kPlanes;
  ProductKind product = ProductKind::kFloat;
  ElementType type = ElementType::kFloat;    // of tokens, mixtures and their gradients
  int64_t heads = 1, rows = 0, columns = 0;  // of the projection [heads,rows,columns]
  int count = 1;                             // sides: x, or x and y
  const bool* valid = nullptr;               // [b,n]; null: all are
  int64_t b = 0, h = 0, n = 0;
  int d = 0;
  // The projection in strips of 64 columns, which are its heads here, tokens of the sides, and backwards the sides'
  // gradients.
  TileSource table, sides[2], gradients[2];
  void* out = nullptr;        // [b,h,rows,count d]
  void* d_tokens = nullptr;   // [count,b,n,h,d]
  float* d_tables = nullptr;  // [parts,heads,rows,columns]
  bool wide_table = false;    // their rows begin at sixteen bytes and are whole runs
  int64_t parts = 0;

  [[nodiscard]] constexpr int width() const { return count * d; }
  // Columns of a tile of tokens, and sides that a block has next to each other.
  [[nodiscard]] constexpr int side_width() const { return d <= kTileSide / 2 ? kTileSide / 2 : kTileSide; }
  [[nodiscard]] constexpr int sides_at_once() const { return d <= kTileSide / 2 ? count : 1; }
  [[nodiscard]] constexpr int64_t units() const { return b * h * (count / sides_at_once()); }
  [[nodiscard]] constexpr int terms() const { return plane_terms(type, product); }
  // Which tile has rows 64 `down` .. and columns 64 `strip` .. of the head's projection.
  [[nodiscard]] XFORMER_DEVICE int64_t table_tile(int64_t head, int64_t strip, int64_t down) const {
    return ((heads == 1 ? 0 : head) * tiles_of(columns) + strip) * tiles_of(rows) + down;
  }
};

// Tiles of the projection's gradient, and of how many parts of the samples each is summed: three blocks for each
// multiprocessor of a large device.
[[nodiscard]] constexpr int64_t table_tiles(int64_t heads, int64_t rows, int64_t columns) {
  return heads * tiles_of(rows) * tiles_of(columns);
}
[[nodiscard]] constexpr int64_t table_parts(int64_t b, int64_t tiles) {
  return std::clamp<int64_t>(kSpreadBlocks / 2 * 3 / tiles, 1, b);
}

// What a block holds: two places for left tiles and behind them right ones.
template <int kLeftBytes, int kRightBytes>
struct ProjectionRoom {
  static constexpr int kPlace = kLeftBytes + kRightBytes;
  static constexpr int64_t kBytes = 2 * kPlace + kTileThreads / kWarp * 4;
  char* memory;

  template <class Thread>
  XFORMER_DEVICE explicit ProjectionRoom(const Thread& thread) : memory(static_cast<char*>(thread.shared())) {}

  [[nodiscard]] XFORMER_DEVICE char* left(int turn) const { return memory + turn * kPlace; }
  [[nodiscard]] XFORMER_DEVICE char* right(int turn) const { return left(turn) + kLeftBytes; }
  [[nodiscard]] XFORMER_DEVICE int* ends() const { return reinterpret_cast<int*>(memory + 2 * kPlace); }
};

// The tile of a block that has `rows` of a head's sides from one on, and the warp's own rows in it.
struct ProjectionTile {
  int64_t b, h;
  int side;
  int64_t tile, head;  // of the head; of all samples
  int warp_row;

  [[nodiscard]] XFORMER_DEVICE int64_t first() const { return tile * kTileSide; }
};
template <int kSides, class Thread>
XFORMER_DEVICE ProjectionTile projection_tile(const Thread& thread, const ProjectionArguments& a, int64_t rows) {
  const int64_t tiles = tiles_of(rows), unit = thread.block() / tiles, units = a.count / kSides;
  return {unit / units / a.h,     unit / units % a.h, static_cast<int>(unit % units),
          thread.block() % tiles, unit / units,       thread.index() / kWarp * kTileRows};
}

// sum += part / the factors of both operands' tiles.
template <int kTiles>
XFORMER_DEVICE void take_up(const float (*part)[4], float left, float right, float (*sum)[4]) {
  const float inverse = left * right;
  XFORMER_UNROLL
  for (int j = 0; j < kTiles; ++j) {
    XFORMER_UNROLL
    for (int i = 0; i < 4; ++i) sum[j][i] += part[j][i] * inverse;
  }
}

// A tile of the projection and, behind it, one of each of kSides sides of up to kWidth columns, in kTerms numbers.
template <int kTerms, int kWidth, int kSides>
using SidesRoom = ProjectionRoom<HalfTile<kTileSide, kTerms>::kBytes, kSides * HalfTile<kWidth, kTerms>::kBytes>;

// sum += rows of the projection's tiles, or, turned, columns, times those of the sides: tile table_tile(number) by tile
// `first` + number of each, so many of them.
template <bool kTurned, int kTerms, int kWidth, int kSides, class Thread, class TableTile>
XFORMER_DEVICE void sum_sides(const Thread& thread, const SidesRoom<kTerms, kWidth, kSides>& room,
                              const TileSource& table, const TableTile& table_tile, const TileSource* sides,
                              int64_t first, int64_t count, int warp_row, float (*sum)[4]) {
  constexpr int kTiles = kWidth / kTileColumns;
  using Side = HalfTile<kWidth, kTerms>;
  const auto send = [&](int64_t number, int turn) {
    send_plane<HalfTile<kTileSide, kTerms>>(thread, table.tiles, table_tile(number), room.left(turn));
    XFORMER_UNROLL
    for (int i = 0; i < kSides; ++i)
      send_plane<Side>(thread, sides[i].tiles, first + number, room.right(turn) + i * Side::kBytes);
  };
  walk_tiles(thread, count, send, [&](int64_t number, int turn) {
    const float inverse = table.inverses[table_tile(number)];
    float part[kSides * kTiles][4] = {};
    multiply_halves<kTerms, kTileSide / 16, kSides * kTiles>(
        thread, HalfLeft<kTileSide, kTerms, kTurned>{room.left(turn), warp_row},
        HalfRight<kWidth, kTerms, /*kTurned=*/true>{room.right(turn)}, part);
    XFORMER_UNROLL
    for (int i = 0; i < kSides; ++i)
      take_up<kTiles>(part + i * kTiles, inverse, sides[i].inverses[first + number], sum + i * kTiles);
  });
}

template <class Value, int kTerms, int kWidth, int kSides>
struct MixtureProgram {
  static constexpr int kThreads = kTileThreads, kResident = 3, kTiles = kWidth / kTileColumns;
  using Room = SidesRoom<kTerms, kWidth, kSides>;
  ProjectionArguments a;

  [[nodiscard]] constexpr LaunchGrid grid() const { return {a.units() * tiles_of(a.rows), Room::kBytes}; }

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const Room room(thread);
    const ProjectionTile own = projection_tile<kSides>(thread, a, a.rows);
    const int64_t end = valid_end(thread, a.valid == nullptr ? nullptr : a.valid + own.b * a.n, a.n, room.ends());
    float sum[kSides * kTiles][4] = {};
    sum_sides</*kTurned=*/false, kTerms, kWidth, kSides>(
        thread, room, a.table, [&](int64_t number) { return a.table_tile(own.h, number, own.tile); },
        a.sides + own.side, own.head * tiles_of(a.n), tiles_of(end), own.warp_row, sum);
    XFORMER_UNROLL
    for (int i = 0; i < kSides; ++i)
      store_fragment<kTiles>(thread, sum + i * kTiles, 1.0f, 1.0f,
                             static_cast<Value*>(a.out) + own.head * a.rows * a.width() + (own.side + i) * a.d,
                             a.width(), a.d, own.first() + own.warp_row, a.rows);
  }
};

template <class Value, int kTerms, int kWidth, int kSides>
struct MixedTokenProgram {
  static constexpr int kThreads = kTileThreads, kResident = 3, kTiles = kWidth / kTileColumns;
  using Room = SidesRoom<kTerms, kWidth, kSides>;
  ProjectionArguments a;

  [[nodiscard]] constexpr LaunchGrid grid() const { return {a.units() * tiles_of(a.n), Room::kBytes}; }

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const Room room(thread);
    const ProjectionTile own = projection_tile<kSides>(thread, a, a.n);
    const auto counts = [&](int64_t token) {
      return token < a.n && (a.valid == nullptr || a.valid[own.b * a.n + token]);
    };
    const int64_t token = own.first() + thread.index() % kWarp;
    const bool any = thread.ballot(counts(token) || counts(token + kWarp)) != 0;
    float sum[kSides * kTiles][4] = {};
    sum_sides</*kTurned=*/true, kTerms, kWidth, kSides>(
        thread, room, a.table, [&](int64_t number) { return a.table_tile(own.h, own.tile, number); },
        a.gradients + own.side, own.head * tiles_of(a.rows), any ? tiles_of(a.rows) : 0, own.warp_row, sum);
    const FragmentPlace place(thread);
    XFORMER_UNROLL
    for (int half = 0; half < 2; ++half) {
      if (counts(own.first() + own.warp_row + place.row + 8 * half)) continue;
      XFORMER_UNROLL
      for (int j = 0; j < kSides * kTiles; ++j) sum[j][2 * half] = sum[j][2 * half + 1] = 0;  // whatever came
    }
    XFORMER_UNROLL
    for (int i = 0; i < kSides; ++i)
      store_fragment<kTiles>(
          thread, sum + i * kTiles, 1.0f, 1.0f,
          static_cast<Value*>(a.d_tokens) + (((own.side + i) * a.b + own.b) * a.n * a.h + own.h) * a.d, a.h * a.d, a.d,
          own.first() + own.warp_row, a.n);
  }
};

template <class Value, int kTerms, int kWidth, int kSides>
struct TableGradientProgram {
  static constexpr int kThreads = kTileThreads, kResident = 3, kTiles = kTileSide / kTileColumns;
  using Operand = HalfTile<kWidth, kTerms>;
  using Room = ProjectionRoom<kSides * Operand::kBytes, kSides * Operand::kBytes>;
  static constexpr int64_t kOut = kTileFloats * 4;  // where the sums are put in order
  ProjectionArguments a;

  [[nodiscard]] constexpr LaunchGrid grid() const {
    return {a.parts * table_tiles(a.heads, a.rows, a.columns), std::max(Room::kBytes, kOut)};
  }

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    const Room room(thread);
    const int64_t tiles = table_tiles(a.heads, a.rows, a.columns), part = thread.block() / tiles;
    const int64_t tile = thread.block() % tiles, across = tiles_of(a.columns), down = tiles_of(a.rows);
    const int64_t table = tile / across / down, row_tile = tile / across % down, column_tile = tile % across;
    const int64_t first = part * a.b / a.parts, samples = (part + 1) * a.b / a.parts - first;
    const int heads = a.heads == 1 ? static_cast<int>(a.h) : 1, units = a.count / kSides;
    const int warp_row = thread.index() / kWarp * kTileRows;
    float sum[kTiles][4] = {};
    // Sides of a head, then of the sample's next head.
    const auto head_of = [&](int64_t number) {
      const int own = static_cast<int>(number) / units;
      return a.heads == 1 ? first * a.h + own : (first + own) * a.h + table;
    };
    const auto side_of = [&](int64_t number) { return static_cast<int>(number) % units; };
    const auto send = [&](int64_t number, int turn) {
      XFORMER_UNROLL
      for (int i = 0; i < kSides; ++i) {
        const int side = side_of(number) + i;
        send_plane<Operand>(thread, a.gradients[side].tiles, head_of(number) * down + row_tile,
                            room.left(turn) + i * Operand::kBytes);
        send_plane<Operand>(thread, a.sides[side].tiles, head_of(number) * tiles_of(a.n) + column_tile,
                            room.right(turn) + i * Operand::kBytes);
      }
    };
    const int64_t count = column_tile < tiles_of(a.n) ? samples * heads * units : 0;
    walk_tiles(thread, count, send, [&](int64_t number, int turn) {
      XFORMER_UNROLL
      for (int i = 0; i < kSides; ++i) {
        const int side = side_of(number) + i;
        const float tokens = a.sides[side].inverses[head_of(number) * tiles_of(a.n) + column_tile];
        if (tokens == 0) continue;  // of a sample that ends before
        float product[kTiles][4] = {};
        multiply_halves<kTerms, kWidth / 16, kTiles>(
            thread, HalfLeft<kWidth, kTerms, /*kTurned=*/false>{room.left(turn) + i * Operand::kBytes, warp_row},
            HalfRight<kWidth, kTerms, /*kTurned=*/false>{room.right(turn) + i * Operand::kBytes}, product);
        take_up<kTiles>(product, a.gradients[side].inverses[head_of(number) * down + row_tile], tokens, sum);
      }
    });
    float* const into = a.d_tables + (part * a.heads + table) * a.rows * a.columns;
    store_tile(thread, sum, nullptr, {row_tile * kTileSide, column_tile * kTileSide, a.rows, a.columns}, a.wide_table,
               SharedRows{reinterpret_cast<float*>(room.memory), shared_stride(kTileSide)}, into);
  }
};

// What becomes tiles: of all stages before those of the gradients' alone.
[[nodiscard]] inline TilePlaneArguments projection_planes(const ProjectionArguments& a) {
  TilePlaneArguments planes;
  planes.half = a.type, planes.terms = a.terms();
  planes.sources[planes.count++] = a.table;
  for (int i = 0; i < a.count; ++i) planes.sources[planes.count++] = a.sides[i];
  for (int i = 0; i < a.count && a.gradients[0].tiles != nullptr; ++i) planes.sources[planes.count++] = a.gradients[i];
  return planes;
}

// launch(grid, program) of these arguments' stage.
template <class Value, int kTerms, int kWidth, int kSides, class Launch>
void run_projection(const ProjectionArguments& a, const Launch& launch) {
  if (a.stage == ProjectionStage::kMixtures) {
    const MixtureProgram<Value, kTerms, kWidth, kSides> program{a};
    return launch(program.grid(), program);
  }
  const TableGradientProgram<Value, kTerms, kWidth, kSides> of_table{a};
  const MixedTokenProgram<Value, kTerms, kWidth, kSides> of_tokens{a};
  launch_joined(of_table.grid(), of_table, of_tokens.grid(), of_tokens, launch);
}
// `Types` has what a device calls Half and BFloat16.
template <class Types, class Launch>
void run_projection(const ProjectionArguments& a, const Launch& launch) {
  if (a.stage == ProjectionStage::kPlanes) return run_tile_planes<Types>(projection_planes(a), launch);
  with_heads<Types>(a.type, a.product,
                    [&]<class Value, ProductKind kKind>(Value, std::integral_constant<ProductKind, kKind>) {
                      constexpr int kTerms = plane_terms(kKind);
                      if (a.side_width() == kTileSide) run_projection<Value, kTerms, kTileSide, 1>(a, launch);
                      else if (a.sides_at_once() == 1) run_projection<Value, kTerms, kTileSide / 2, 1>(a, launch);
                      else run_projection<Value, kTerms, kTileSide / 2, 2>(a, launch);
                    });
}

}  // namespace xformer::kernels
