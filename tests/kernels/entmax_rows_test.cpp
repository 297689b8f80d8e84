// The loops over rows of alpha-entmax, by each instruction set that this processor has, against double precision:
// weights and thresholds, and for any power gradients and alpha's part of them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "core/random.h"
#include "kernels/entmax_attention/weight_rows.h"

namespace xformer::kernels::entmax_rows_test {

constexpr float kInfinite = std::numeric_limits<float>::infinity();
constexpr uint32_t kThreshold = 13000;
constexpr float kKeep = 65536.0F / (65536 - 13000);

struct RowData {
  std::vector<float> y, gradient;
  std::vector<uint16_t> draws;

  // Numbers `spread` apart, some of closed keys.
  RowData(int64_t count, double spread, uint64_t seed) {
    Stream numbers(seed);
    for (int64_t j = 0; j < count; ++j) {
      y.push_back(j % 7 == 3 ? -kInfinite : static_cast<float>(spread * (2 * numbers.next_unit() - 1)));
      gradient.push_back(static_cast<float>(2 * numbers.next_unit() - 1));
      draws.push_back(static_cast<uint16_t>(numbers.next_below(65536)));
    }
  }
  template <class Value>
  [[nodiscard]] EntmaxRow<Value> row(float b, bool drops) const {
    return {b == 1      ? EntmaxPower::kOne
            : b == 0.5F ? EntmaxPower::kTwo
                        : EntmaxPower::kAny,
            static_cast<Value>(b), drops ? draws.data() : nullptr, drops ? kThreshold : 0,
            static_cast<Value>(drops ? kKeep : 1.0F)};
  }
};

std::vector<double> wide(const std::vector<float>& x) { return {x.begin(), x.end()}; }

template <class Got>
double worst(const Got& got, const std::vector<double>& meant) {
  double most = 0, size = 0;
  for (size_t i = 0; i < meant.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(got[i]) - meant[i]));
    size = std::max(size, std::abs(meant[i]));
  }
  return most / size;
}

// What weights are made in: numbers that are in its way.
template <class Value>
std::vector<Value> room_for(int64_t count) {
  return std::vector<Value>(static_cast<size_t>(count + kEntmaxLanes), std::numeric_limits<Value>::quiet_NaN());
}

TEST_CASE("rows of entmax are those of double precision, whichever loop makes them") {
  for (const float b : {0.02F, 0.25F, 0.499F, 0.5F, 0.6F, 0.9F, 1.0F, 1.2F})
    for (const int64_t count : {32, 64, 96, 2048})
      for (const double spread : {0.01, 0.5, 3.0})
        for (const bool drops : {false, true}) {
          // Of a great many that are nearly equal, which ones have a weight at all is a matter of the last bit.
          if (b > 0.8F && spread < 0.1) continue;
          const RowData data(count, spread, static_cast<uint64_t>(count));
          std::vector<double> p = wide(data.y), slope = wide(data.gradient), y = p, room = room_for<double>(count);
          const double t = entmax_weights(p.data(), count, data.row<double>(b, drops), room.data());
          const double of_alpha =
              entmax_gradients(y.data(), slope.data(), count, data.row<double>(b, drops), t, room.data());
          for (const EntmaxLoops& way : ways_to_entmax()) {
            INFO("b " << b << " count " << count << " spread " << spread << (drops ? ", with dropout" : ""));
            std::vector<float> got = data.y, got_slope = data.gradient, again = data.y,
                               got_room = room_for<float>(count);
            const float threshold = way.weights(got.data(), count, data.row<float>(b, drops), got_room.data());
            CHECK(std::abs(double{threshold} - t) < 2e-6);
            CHECK(worst(got, p) < 1e-5);
            if (!drops) {
              double sum = 0;
              for (const float one : got) sum += double{one};
              CHECK(std::abs(sum - 1) < 2e-5);
            }
            if (b == 0.5F || b == 1) continue;  // gradients of any power are what there are two loops for
            const float part = way.gradients(again.data(), got_slope.data(), count, data.row<float>(b, drops),
                                             threshold, got_room.data());
            CHECK(worst(again, p) < 1e-5);
            // Where one key has nearly all of the weight, its slope is what is left of two numbers that are nearly
            // equal.
            CHECK(worst(got_slope, slope) < (b < 0.1F ? 1e-3 : 2e-5));
            CHECK(std::abs(double{part} - of_alpha) < 1e-4);
          }
        }
}

TEST_CASE("rows of entmax without a key, of one key, and with a number that is none") {
  for (const EntmaxLoops& way : ways_to_entmax()) {
    const RowData data(64, 1, 5);
    const EntmaxRow<float> row = data.row<float>(0.4F, false);
    std::vector<float> y(64, -kInfinite), room = room_for<float>(64);
    CHECK(way.weights(y.data(), 64, row, room.data()) == kInfinite);
    CHECK(y == std::vector<float>(64, 0.0F));
    std::fill(y.begin(), y.end(), -kInfinite);
    y[40] = -2.5F;
    CHECK(way.weights(y.data(), 64, row, room.data()) == Approx(-2.5));
    for (size_t j = 0; j < 64; ++j) CHECK(y[j] == Approx(j == 40 ? 1 : 0));
    for (const size_t place : {size_t{0}, size_t{63}}) {
      y = data.y;
      y[place] = NAN;
      CHECK(std::isnan(way.weights(y.data(), 64, row, room.data())));
    }
  }
}

}  // namespace xformer::kernels::entmax_rows_test
