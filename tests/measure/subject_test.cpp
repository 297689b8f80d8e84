// How many steps are timed at once on a device.
#include "measure/subject.h"

#include <catch2/catch.hpp>

namespace xformer::measure {

TEST_CASE("as many steps are timed at once as take 50 ms, though one alone takes longer than one of many") {
  struct Speed {
    double alone, each;  // milliseconds; of several, besides what the first waits for
    std::vector<int64_t> tried;
  };
  const Speed speed = GENERATE(Speed{60, 1, {1}}, Speed{50, 50, {1}}, Speed{49, 49, {1, 2}}, Speed{7, 7, {1, 8}},
                               Speed{10, 2, {1, 5, 14, 20, 21}}, Speed{0, 0, {1}});
  std::vector<int64_t> tried;
  const auto milliseconds = [&](int64_t count) {
    tried.push_back(count);
    return speed.alone + speed.each * static_cast<double>(count - 1);
  };
  const int64_t found = steps_to_time(milliseconds);
  CAPTURE(speed.alone, speed.each);
  if (speed.alone == 0) CHECK(found == 1000);  // of a clock that stands still
  else CHECK((found == tried.back() && milliseconds(found) >= 50));
  tried.resize(speed.tried.size());
  CHECK(tried == speed.tried);
}

}  // namespace xformer::measure
