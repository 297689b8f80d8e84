// Independent pieces in several threads.
#include "core/parallel.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <stdexcept>
#include <thread>
#include <vector>

namespace xformer {

TEST_CASE("every piece is done once, whatever the number of threads") {
  for (const int64_t threads : {0, 1, 3, 1000}) {
    std::vector<std::atomic<int>> done(501);
    for_each_piece(done.size(), threads, [&](size_t piece) { ++done[piece]; });
    for (const auto& times : done) REQUIRE(times == 1);
  }
  for_each_piece(0, 4, [](size_t) { FAIL("there is no piece"); });
}

TEST_CASE("an exception ends the work and arrives where it was asked for") {
  std::atomic<int> done{0};
  CHECK_THROWS_WITH(for_each_piece(1'000'000, 4,
                                   [&](size_t piece) {
                                     if (piece == 7) throw std::runtime_error("piece 7");
                                     ++done;
                                     std::this_thread::yield();
                                   }),
                    "piece 7");
  CHECK(done < 999'999);
}

}  // namespace xformer
