// ListOps files for tests: the bracketed form that the benchmark's own script writes.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "readers/listops.h"
#include "scratch.h"

namespace xformer::listops_text {

// "( ( ( [MAX 4 ) 3 ) ] )": every operator is applied to its arguments one by one, then to its bracket.
inline std::string bracketed(std::span<const uint8_t> ids) {
  using namespace readers::listops;
  size_t at = 0;
  const std::function<std::string()> node = [&]() -> std::string {
    const std::string symbol(kSymbols[ids[at++]]);
    if (ids[at - 1] < kMin) return symbol;
    std::string text = symbol;
    while (ids[at] != kClose) text = "( " + text + " " + node() + " )";
    ++at;
    return "( " + text + " ] )";
  };
  return node();
}

// A folder of the arena's layout with a few correct rows per split.
inline void put_splits(const Path& folder) {
  scratch::put(folder / "basic_train.tsv", "Source\tTarget\n[SM 1 2 ]\t3\n[MAX 4 [MIN 2 3 ] ]\t4\n7\t7\n");
  scratch::put(folder / "basic_val.tsv", "Source\tTarget\n[MED 1 4 ]\t2\n");
  scratch::put(folder / "basic_test.tsv", "Source\tTarget\n[SM 5 5 ]\t0\n1\t1\n");
}

}  // namespace xformer::listops_text
