#include "reporting/bench_comparison.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "core/error.h"
#include "reporting/bench_growth.h"
#include "scratch.h"

namespace xformer::reporting {

TEST_CASE("a bench stands beside published ratios to softmax") {
  const scratch::Folder folder;
  const Path published = scratch::put(folder / "published.json", R"([
    {"experiment": "t", "model": "softmax", "metric": "train_time_per_step", "value": 100, "length": 64},
    {"experiment": "t", "model": "softmax", "metric": "peak_memory", "value": 900, "length": 64},
    {"experiment": "t", "model": "adamra", "metric": "train_time_per_step", "value": 50, "length": 64, "attention.rates": [2]},
    {"experiment": "t", "model": "adamra", "metric": "train_time_per_step", "value": 25, "length": 64, "attention.rates": [4]},
    {"experiment": "t", "model": "adamra", "metric": "peak_memory", "value": 300, "length": 64, "attention.rates": [4]},
    {"experiment": "t", "model": "adamra", "metric": "accuracy", "value": 63, "length": 64, "attention.rates": [4]},
    {"experiment": "u", "model": "linear", "metric": "steps_per_second", "value": 8, "length": 64}])");
  const auto row = [](const char* model, const Json& own, int64_t length, double rate, double bytes) {
    return Json{{"model", model}, {"own", own},     {"length", length},       {"batch", 2},
                {"status", "ok"}, {"label", model}, {"examples_per_s", rate}, {"peak_bytes", bytes}};
  };
  Json large = row("linear", Json::object(), 64, 0, 0);
  large["status"] = "too-large";
  large["examples_per_s"] = nullptr;
  const Json report{{"rows",
                     {row("softmax", Json::object(), 64, 10, 80), row("adamra", {{"attention.rates", {4}}}, 64, 30, 20),
                      row("adamra", {{"attention.rates", {8}}}, 64, 20, 20), large}}};
  const std::vector<BenchRow> rows = compare_bench(report, published, "t");
  REQUIRE(rows.size() == 4);
  CHECK(rows[0].speed == 1.0);
  CHECK(rows[1].speed == 3.0);
  CHECK(rows[1].saving == 4.0);
  CHECK(rows[1].published_speed == 4.0);  // 100 ms over 25 ms
  CHECK(rows[1].published_saving == 3.0);
  CHECK_FALSE(rows[2].published_speed);  // other rates
  CHECK_FALSE(rows[3].speed);
  CHECK_FALSE(rows[3].published_speed);  // of another experiment
  CHECK(as_markdown(shown(rows)).find("| linear | 64 | 2 | - <sup>a</sup> | - |") != std::string::npos);
  CHECK(as_markdown(shown(rows)).find("<sup>a</sup> too-large") != std::string::npos);
  CHECK_THROWS_AS(compare_bench(Json::array(), published, "t"), DataError);
  // Other forms of softmax stand beside the first one.
  const Json forms{
      {"rows", {row("softmax", Json::object(), 64, 10, 80), row("softmax", {{"model.reversible", true}}, 64, 5, 40)}}};
  CHECK(compare_bench(forms, published, "t")[0].speed == 1.0);
  CHECK(compare_bench(forms, published, "t")[1].speed == 0.5);
  CHECK(compare_bench(forms, published, "t")[1].saving == 2.0);
  // Rates are better the larger they are.
  CHECK(compare_bench(report, scratch::put(folder / "rates.json", R"([
    {"experiment": "u", "model": "softmax", "metric": "steps_per_second", "value": 2, "length": 64},
    {"experiment": "u", "model": "linear", "metric": "steps_per_second", "value": 8, "length": 64}])"),
                      "u")[3]
            .published_speed == 4.0);
}

TEST_CASE("mrs-X stands beside X of the same sizes") {
  const auto row = [](const char* model, int64_t width, double flops, const Json& bytes) {
    return Json{{"model", model},     {"length", 64},        {"batch", 1},
                {"width", width},     {"precision", "fp32"}, {"flops", {{"step_counted", flops}}},
                {"peak_bytes", bytes}};
  };
  const Json report{{"rows",
                     {row("fmm", 8, 10, 40), row("mrs-fmm", 8, 8, 10), row("softmax-fused", 8, 1, 1),
                      row("fmm", 16, 30, 80), row("mrs-fmm", 16, 15, nullptr)}}};
  const std::vector<ScalesRow> rows = compare_scales(report);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].operations == 0.8);
  CHECK(rows[0].memory == 0.25);
  CHECK(rows[1].operations == 0.5);
  CHECK_FALSE(rows[1].memory);  // it did not fit
  const std::string table = as_markdown(shown(rows));
  CHECK(table.find("| mrs-fmm | 8 | 64 | 1 | 80.0 | 25.0 |") != std::string::npos);
  CHECK(table.find("| mrs-fmm | 16 | 64 | 1 | 50.0 | - |") != std::string::npos);
}

TEST_CASE("growth with the length is a slope of logarithms, of models measured at three lengths or more") {
  const Json facts{{"class", "LR+LP"}, {"growth", "n^2"}, {"causal", true}};
  const auto row = [&](const char* model, int64_t batch, double length, const Json& ms, double bytes) {
    return Json{{"model", model},
                {"label", model},
                {"length", static_cast<int64_t>(length)},
                {"batch", batch},
                {"status", ms.is_null() ? "too-large" : "ok"},
                {"step_ms", ms.is_null() ? ms : Json{{"median", ms}}},
                {"peak_bytes", bytes},
                {"attention", std::string(model) == "square" ? facts : Json()}};
  };
  Json rows = Json::array();
  for (const double length : {64.0, 128.0, 256.0}) {  // 3 n^2 and 1e6 n; another at two lengths alone
    rows.push_back(row("square", 2, length, 3 * length * length, 1e6 * length));
    if (length > 64) rows.push_back(row("short", 2, length, 5.0, 1));
  }
  rows.push_back(row("square", 2, 512, nullptr, 1));  // was not measured
  rows.push_back(row("square", 4, 64, 1.0, 1));       // of another batch
  // Flat up to 128, then twice as long: 1 between the last two, and by least squares 0.5 over all three.
  for (const auto& [length, ms] : {std::pair(64.0, 7.0), {128.0, 7.0}, {256.0, 14.0}})
    rows.push_back(row("late", 1, length, ms, 8));
  const std::vector<GrowthRow> growth = growth_of({{"rows", rows}});
  REQUIRE(growth.size() == 2);
  CHECK((growth[0].label == "square" && growth[0].batch == 2 && growth[0].longest == 256));
  CHECK(growth[0].time == Approx(2));
  CHECK(growth[0].time_at_last == Approx(2));
  CHECK(growth[0].memory == Approx(1));
  CHECK((growth[0].step_ms == 3.0 * 256 * 256 && growth[0].peak_bytes == 256e6));
  CHECK(growth[1].time == Approx(0.5));
  CHECK(growth[1].time_at_last == Approx(1));
  CHECK(std::abs(growth[1].memory) < 1e-12);
  const std::string table = as_markdown(shown(growth));
  CHECK(table.find("| square | LR+LP | yes | n^2 | 2 | 2.00 | 2.00 | 1.00 | 1.00 | 256 | 196608.0 | 256.0 |") !=
        std::string::npos);
  CHECK(table.find("| late | - | - | - | 1 |") != std::string::npos);
}

TEST_CASE("a bench without published values stands alone, its columns too") {
  const auto row = [](const char* model, double rate) {
    return Json{{"model", model}, {"length", 64},           {"batch", 2},
                {"status", "ok"}, {"examples_per_s", rate}, {"peak_bytes", 8}};
  };
  const Json report{{"rows", {row("softmax", 10), row("linear", 30)}}};
  const std::vector<BenchRow> rows = compare_bench(report, "", "any");
  CHECK(rows[1].speed == 3.0);
  CHECK_FALSE(rows[1].published_speed);
  CHECK(as_markdown(shown(rows)).find("| linear | 64 | 2 | 3.00 | 1.00 |") != std::string::npos);
  CHECK(as_markdown(shown(rows)).find("published") == std::string::npos);
}

}  // namespace xformer::reporting
