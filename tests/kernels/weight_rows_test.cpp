// The loops over rows of attention weights, by each instruction set that this processor has, against double precision;
// and those that leave rounded numbers where products take them, against the others.
#include "kernels/attention/weight_rows.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

namespace xformer::kernels {

namespace {

constexpr uint32_t kThreshold = 9000;
constexpr float kKeep = 65536.0F / (65536 - 9000), kFactor = 0.75F, kUntouched = 77;

// Numbers that repeat after no short distance.
float number(int64_t i, int64_t salt) { return static_cast<float>((i * 7919 + salt * 104729) % 1009) / 1009; }

struct RowData {
  std::vector<float> scores, gradient;
  std::vector<uint16_t> draws;
  float shift;

  RowData(int64_t count, int64_t salt) : shift(1 + number(salt, 5)) {
    for (int64_t i = 0; i < count; ++i) {
      scores.push_back(4 * number(i, salt) - 3);
      gradient.push_back(2 * number(i, salt + 1) - 1);
      draws.push_back(static_cast<uint16_t>(65535 * number(i, salt + 2)));
    }
    if (count > 2) scores[static_cast<size_t>(count / 2)] = -std::numeric_limits<float>::infinity();
  }
  [[nodiscard]] RowWeights<float> weights(bool drops) const {
    return {kFactor, shift, drops ? draws.data() : nullptr, drops ? kThreshold : 0, drops ? kKeep : 1};
  }
  // Before dropout, and what dropout multiplies it by.
  [[nodiscard]] double p(size_t i) const {
    return std::exp2(double{kFactor} * static_cast<double>(scores[i]) - static_cast<double>(shift));
  }
  [[nodiscard]] double kept(size_t i, bool drops) const {
    return !drops ? 1 : draws[i] < kThreshold ? 0 : static_cast<double>(kKeep);
  }
};

float rounded(float x) { return static_cast<float>(c10::BFloat16(x)); }

// Whatever a factor holds: its product with the matrix of ones on the diagonal.
std::vector<float> numbers_in(const PairedFactor& factor, int64_t inner, int64_t columns) {
  const int64_t even = (inner + 1) / 2 * 2;
  std::vector<c10::BFloat16> diagonal(static_cast<size_t>(inner * even), 0.0F);
  for (int64_t i = 0; i < inner; ++i) diagonal[static_cast<size_t>(i * even + i)] = 1.0F;
  std::vector<float> result(static_cast<size_t>(inner * columns));
  gemm(inner, {diagonal.data(), even}, factor, 0, result.data(), columns);
  return result;
}

}  // namespace

TEST_CASE("weights and their gradients of a row are those of double precision, whichever loop makes them") {
  const auto ways = ways_to_weigh();
  REQUIRE(!ways.empty());
  for (const WeightLoops& way : ways)
    for (const int64_t count : {1, 2, 15, 16, 17, 31, 48, 63, 64, 65, 100, 127, 256, 300})
      for (const bool drops : {false, true}) {
        const RowData row(count, 11);
        const auto size = static_cast<size_t>(count);
        std::vector<float> out(size + 16, kUntouched), scores = row.scores, gradient = row.gradient;
        scores.resize(size + 16, kUntouched);
        gradient.resize(size + 16, kUntouched);
        const float sum = way.weights(row.scores.data(), count, row.weights(drops), out.data());
        constexpr float kDelta = 0.3F, kSlope = 1.5F;
        way.gradients(scores.data(), gradient.data(), count, row.weights(drops), kDelta, kSlope);
        double total = 0, worst = 0;
        for (size_t i = 0; i < size; ++i) {
          const double p = row.p(i), weight = p * row.kept(i, drops);
          const double step = double{kSlope} * p * (double{row.gradient[i]} * row.kept(i, drops) - double{kDelta});
          total += p;
          worst = std::max({worst, std::abs(double{out[i]} - weight), std::abs(double{scores[i]} - weight),
                            std::abs(double{gradient[i]} - step)});
          if (drops && row.draws[i] < kThreshold) CHECK(out[i] == 0);
        }
        INFO("count " << count << (drops ? ", with dropout" : ""));
        CHECK(worst < 2e-6);
        CHECK(std::abs(double{sum} - total) < 2e-6 * total);
        for (size_t i = size; i < size + 16; ++i)
          CHECK((out[i] == kUntouched && scores[i] == kUntouched && gradient[i] == kUntouched));
        // In place the same, and by every way, to the bit.
        std::vector<float> in_place = row.scores, others = row.scores, others_gradient = row.gradient;
        CHECK(way.weights(in_place.data(), count, row.weights(drops), in_place.data()) == sum);
        CHECK(std::equal(in_place.begin(), in_place.end(), out.begin()));
        CHECK(ways.front().weights(row.scores.data(), count, row.weights(drops), others.data()) == sum);
        CHECK(std::equal(others.begin(), others.end(), out.begin()));
        others = row.scores;
        ways.front().gradients(others.data(), others_gradient.data(), count, row.weights(drops), kDelta, kSlope);
        CHECK(std::equal(others.begin(), others.end(), scores.begin()));
        CHECK(std::equal(others_gradient.begin(), others_gradient.end(), gradient.begin()));
      }
}

TEST_CASE("a score that is no number makes a weight and a sum that are none") {
  for (const WeightLoops& way : ways_to_weigh())
    for (const int64_t count : {3, 20, 70}) {
      RowData row(count, 3);
      row.scores.back() = NAN;
      CHECK(std::isnan(way.weights(row.scores.data(), count, row.weights(false), row.scores.data())));
      CHECK(std::isnan(row.scores.back()));
      CHECK(!std::isnan(row.scores.front()));
    }
}

TEST_CASE("weights as products of bf16 take them are those of float, rounded once") {
  for (const int64_t count : {1, 7, 16, 40, 64, 90, 256})
    for (const bool drops : {false, true}) {
      RowData row(count, 23);
      const auto size = static_cast<size_t>(count);
      std::vector<float> meant(size);
      std::vector<c10::BFloat16> got(size + 16, c10::BFloat16(kUntouched));
      std::vector<float> copy = row.scores;
      const float sum = row_weights(copy.data(), count, row.weights(drops), meant.data());
      CHECK(row_weights(row.scores.data(), count, row.weights(drops), got.data()) == sum);
      for (size_t i = 0; i < size; ++i) CHECK(static_cast<float>(got[i]) == rounded(meant[i]));
      for (size_t i = size; i < size + 16; ++i) CHECK(static_cast<float>(got[i]) == kUntouched);
    }
}

TEST_CASE("rows of a tile are weighed as rows are, behind what came before them") {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  constexpr int64_t kGap = 7;  // between rows, of scores that would be the largest
  // Largest scores so far: less than those of the row, more, or none. Rows are weighed in fours, in which all are of
  // one kind, or of several. The fourth has no score.
  const std::vector<std::vector<float>> sets{{-2, 3, kNone, kNone},
                                             {kNone, kNone, kNone, kNone, kNone},
                                             {3, 4, 3, 3, -2, 3, kNone},
                                             {kNone, 3, kNone, kNone, -2, -2, -2, kNone, 3}};
  for (const std::vector<float>& before : sets)
    for (const int64_t count : {1, 20, 64, 90})
      for (const bool drops : {false, true}) {
        const auto rows = static_cast<int64_t>(before.size());
        std::vector<float> scores, largest = before, sum, rescale(before.size(), kUntouched), meant_sum, meant_rescale;
        for (const float one : before) sum.push_back(one == kNone ? 0 : 5 + one);
        std::vector<RowData> data;
        for (int64_t r = 0; r < rows; ++r) data.emplace_back(count, r);
        std::fill_n(data[3].scores.begin(), count, kNone);
        std::vector<const uint16_t*> draws;
        std::vector<float> meant, meant_largest;
        for (size_t r = 0; r < data.size(); ++r) {
          RowData& row = data[r];
          scores.insert(scores.end(), row.scores.begin(), row.scores.begin() + count);
          scores.insert(scores.end(), kGap, 99.0F);
          draws.push_back(drops ? row.draws.data() : nullptr);
          const float now = row_largest(row.scores.data(), count, before[r]);
          row.shift = now == kNone ? 0 : kFactor * now;
          std::vector<float> weights(static_cast<size_t>(count));
          meant_rescale.push_back(before[r] == now ? 1 : std::exp2(kFactor * (before[r] - now)));
          meant_sum.push_back(sum[r] * meant_rescale[r] +
                              row_weights(row.scores.data(), count, row.weights(drops), weights.data()));
          meant_largest.push_back(now);
          meant.insert(meant.end(), weights.begin(), weights.end());
          meant.insert(meant.end(), kGap, kUntouched);
        }
        std::vector<float> rounding = scores, rounding_largest = largest, rounding_sum = sum;
        std::vector<float> got(scores.size(), kUntouched);
        std::vector<c10::BFloat16> got_rounded(scores.size(), c10::BFloat16(kUntouched));
        const auto tile = [&](std::vector<float>& of, std::vector<float>& most, std::vector<float>& total) {
          return WeightTile<float>{rows,        count,        count + kGap,           of.data(),
                                   kFactor,     draws.data(), drops ? kThreshold : 0, drops ? kKeep : 1,
                                   most.data(), total.data(), rescale.data()};
        };
        weigh_tile(tile(rounding, rounding_largest, rounding_sum), got_rounded.data());
        weigh_tile(tile(scores, largest, sum), got.data());
        INFO("count " << count << (drops ? ", with dropout" : ""));
        CHECK((got == meant && sum == meant_sum && largest == meant_largest && rescale == meant_rescale));
        CHECK((rounding_sum == meant_sum && rounding_largest == meant_largest));
        bool same = true;
        for (size_t i = 0; i < meant.size(); ++i)
          same = same && static_cast<float>(got_rounded[i]) == rounded(meant[i]);
        CHECK(same);
      }
}

TEST_CASE("a row of a tile that sees a span of its scores is weighed as if the others were closed") {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  for (const int64_t count : {16, 48, 96})
    for (const bool drops : {false, true}) {
      const std::vector<RowSpan> spans{
          {0, count},         {count / 2, count / 2},        {count / 3, count}, {0, 0}, {0, (count + 1) / 2},
          {count - 1, count}, {count / 4, count - count / 4}};
      const auto rows = static_cast<int64_t>(spans.size()), stride = count + 3;
      const auto size = static_cast<size_t>(rows * stride);
      std::vector<RowData> data;
      for (int64_t r = 0; r < rows; ++r) data.emplace_back(count, r);
      std::vector<float> scores(size, kUntouched), gradient = scores, meant = scores, meant_scores = scores,
                                                   meant_slopes = scores, shifts, deltas, meant_sums, meant_largest;
      std::vector<const uint16_t*> draws;
      for (int64_t r = 0; r < rows; ++r) {
        const RowData& row = data[static_cast<size_t>(r)];
        const auto [begin, end] = spans[static_cast<size_t>(r)];
        const auto [first, last] = spans[static_cast<size_t>(r)].steps();
        std::vector<float> own = row.scores, given = row.gradient;
        for (int64_t i = 0; i < count; ++i) {
          const bool seen = i >= begin && i < end;
          const auto at = static_cast<size_t>(r * stride + i), of = static_cast<size_t>(i);
          scores[at] = seen ? row.scores[of] : NAN, gradient[at] = row.gradient[of];
          if (!seen) own[of] = kNone;
          meant[at] = meant_scores[at] = meant_slopes[at] = 0;
        }
        std::vector<float> weights = own;
        RowWeights<float> how = row.weights(drops);
        if (drops) how.draws += first;
        draws.push_back(drops ? row.draws.data() : nullptr);
        shifts.push_back(row.shift), deltas.push_back(0.1F * static_cast<float>(r));
        row_gradients(weights.data() + first, given.data() + first, last - first, how, deltas.back());
        std::copy(weights.begin() + first, weights.begin() + last, meant_scores.begin() + r * stride + first);
        std::copy(given.begin() + first, given.begin() + last, meant_slopes.begin() + r * stride + first);
        meant_largest.push_back(row_largest(own.data() + first, last - first, kNone));
        how.shift = meant_largest.back() == kNone ? 0 : kFactor * meant_largest.back();
        meant_sums.push_back(row_weights(own.data() + first, last - first, how, own.data() + first));
        std::copy(own.begin() + first, own.begin() + last, meant.begin() + r * stride + first);
      }
      const uint32_t threshold = drops ? kThreshold : 0;
      const float keep = drops ? kKeep : 1;
      std::vector<float> sums(spans.size(), 0), largest(spans.size(), kNone), rescale = sums, got(size, kUntouched);
      std::vector<c10::BFloat16> got_rounded(size, c10::BFloat16(kUntouched));
      const auto weigh_to = [&](auto* out) {
        std::vector<float> copy = scores;
        std::fill(sums.begin(), sums.end(), 0.0F);
        std::fill(largest.begin(), largest.end(), kNone);
        weigh_tile(WeightTile<float>{rows, count, stride, copy.data(), kFactor, draws.data(), threshold, keep,
                                     largest.data(), sums.data(), rescale.data(), spans.data()},
                   out);
        CHECK((sums == meant_sums && largest == meant_largest));
      };
      INFO("count " << count << (drops ? ", with dropout" : ""));
      weigh_to(got.data());
      weigh_to(got_rounded.data());
      CHECK(got == meant);
      CHECK(std::equal(meant.begin(), meant.end(), got_rounded.begin(),
                       [](float x, c10::BFloat16 y) { return rounded(x) == static_cast<float>(y); }));
      slope_tile(SlopeTile<float>{rows, count, stride, scores.data(), gradient.data(), kFactor, draws.data(), threshold,
                                  keep, shifts.data(), deltas.data(), spans.data()});
      CHECK((scores == meant_scores && gradient == meant_slopes));
    }
}

TEST_CASE("products of rows are those of double precision, also of bf16 rows") {
  for (const int64_t width : {1, 15, 32, 50}) {
    constexpr int64_t kRows = 9;
    const int64_t x_stride = width + 3, y_stride = width + 1;
    std::vector<float> x, y;
    for (int64_t i = 0; i < kRows * x_stride; ++i) x.push_back(rounded(number(i, 1) - 0.5F));
    for (int64_t i = 0; i < kRows * y_stride; ++i) y.push_back(rounded(number(i, 2) - 0.5F));
    const std::vector<c10::BFloat16> narrow_x(x.begin(), x.end()), narrow_y(y.begin(), y.end());
    std::vector<float> sums(kRows + 1, kUntouched), narrow_sums = sums;
    row_products(kRows, width, x.data(), x_stride, y.data(), y_stride, sums.data());
    row_products(kRows, width, narrow_x.data(), x_stride, narrow_y.data(), y_stride, narrow_sums.data());
    for (int64_t r = 0; r < kRows; ++r) {
      double meant = 0;
      for (int64_t i = 0; i < width; ++i)
        meant += double{x[static_cast<size_t>(r * x_stride + i)]} * double{y[static_cast<size_t>(r * y_stride + i)]};
      CHECK(std::abs(double{sums[static_cast<size_t>(r)]} - meant) < 1e-6);
    }
    CHECK((narrow_sums == sums && sums.back() == kUntouched));
  }
}

TEST_CASE("rows of a tile leave their weights and gradients where products take them") {
  if (!pairs_possible({nullptr, 2}, 2)) {
    SUCCEED("no product takes pairs here");
    return;
  }
  for (const int64_t rows : {1, 2, 5, 31, 64, 99, 300, 613})
    for (const int64_t count : {1, 3, 16, 36, 100, 256})
      for (const bool drops : {false, true}) {
        constexpr float kSlope = 0.5F;
        PairedFactor weights, gradients;
        weights.reset(rows, count);
        gradients.reset(rows, count);
        std::vector<c10::BFloat16> first(static_cast<size_t>(rows * count + 16), c10::BFloat16(kUntouched));
        std::vector<float> meant_weights, meant_gradients;
        std::vector<RowData> data;
        std::vector<GradientTile::Row> given;
        for (int64_t r = 0; r < rows; ++r) data.emplace_back(count, r);
        for (int64_t r = 0; r < rows; ++r) {
          RowData& row = data[static_cast<size_t>(r)];
          const bool counts = r % 5 != 3;
          std::vector<float> scores = row.scores, gradient = row.gradient;
          if (counts) row_gradients(scores.data(), gradient.data(), count, row.weights(drops), 0.2F, kSlope);
          if (!counts) {
            row.scores.assign(row.scores.size(), NAN);  // nobody may look at them
            row.gradient.assign(row.gradient.size(), NAN);
          }
          given.push_back({row.scores.data(), row.gradient.data(), drops && counts ? row.draws.data() : nullptr,
                           counts ? row.shift : 0, 0.2F, counts});
          for (size_t i = 0; i < scores.size(); ++i) {
            meant_weights.push_back(counts ? rounded(scores[i]) : 0);
            meant_gradients.push_back(counts ? rounded(gradient[i]) : 0);
          }
        }
        const RowWeights<float> all = data.front().weights(drops);
        by_512::tile_gradients(
            {given.data(), rows, count, all.factor, all.keep, kSlope, all.threshold, first.data(), count}, weights,
            gradients);
        INFO(rows << " rows of " << count << (drops ? ", with dropout" : ""));
        CHECK(numbers_in(weights, rows, count) == meant_weights);
        CHECK(numbers_in(gradients, rows, count) == meant_gradients);
        bool same = true;
        for (size_t i = 0; i < meant_gradients.size(); ++i)
          same = same && static_cast<float>(first[i]) == meant_gradients[i];
        CHECK(same);
        for (size_t i = meant_gradients.size(); i < first.size(); ++i)
          CHECK(static_cast<float>(first[i]) == kUntouched);
      }
}

}  // namespace xformer::kernels
