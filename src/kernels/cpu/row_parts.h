// How kernels walk many rows: in blocks that stay in the cache, and, where sums over all rows are wanted, in parts that
// each sum into a table of their own, added in order afterwards.
#pragma once

#include <algorithm>
#include <cstdint>

namespace xformer::kernels {

constexpr int64_t kBlockElements = int64_t{1} << 16;  // of what a block of rows holds: half of a small L2
// Of all tables together, but that of large ones there are eight: so many threads find work.
constexpr int64_t kMostParts = 32, kFewestParts = 8, kTableElements = int64_t{1} << 20;

struct RowParts {
  int64_t rows, block_rows, blocks;
  int64_t part_blocks, parts;

  // `width`: elements of a row in all that a block holds; `table`: elements of a part's table.
  RowParts(int64_t all_rows, int64_t width, int64_t table = 1)
      : rows(all_rows),
        block_rows(std::clamp<int64_t>(kBlockElements / width / 64 * 64, 64, 1024)),
        blocks((rows + block_rows - 1) / block_rows),
        part_blocks((blocks + wanted(table) - 1) / wanted(table)),
        parts(part_blocks == 0 ? 0 : (blocks + part_blocks - 1) / part_blocks) {}

  // work(first row, rows) for the blocks of a part.
  template <class Work>
  void for_blocks(int64_t part, const Work& work) const {
    for (int64_t block = part * part_blocks; block < std::min(blocks, (part + 1) * part_blocks); ++block)
      work(block * block_rows, std::min(block_rows, rows - block * block_rows));
  }

 private:
  static int64_t wanted(int64_t table) { return std::clamp<int64_t>(kTableElements / table, kFewestParts, kMostParts); }
};

}  // namespace xformer::kernels
