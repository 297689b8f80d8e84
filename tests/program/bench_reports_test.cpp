// What others make of reports of `xformer bench`.
#include "program.h"

namespace xformer::program_test {
namespace {

using scratch::put;

struct BenchRow {
  int64_t length, batch;
  double ms;  // 0: no step was timed
};
// What `xformer bench --json` writes of linear, as far as others read it.
std::string bench_report(const std::vector<BenchRow>& rows) {
  Json report{{"conditions", {{"task", "listops"}}}, {"rows", Json::array()}};
  for (const BenchRow& row : rows)
    report["rows"].push_back({{"model", "linear"},
                              {"length", row.length},
                              {"batch", row.batch},
                              {"status", "ok"},
                              {"peak_bytes", 1e6},
                              {"step_ms", row.ms > 0 ? Json{{"median", row.ms}} : Json()},
                              {"examples_per_s", row.ms > 0 ? Json(1e3 / row.ms) : Json()}});
  return report.dump();
}

}  // namespace

TEST_CASE("growth has a line for each batch, of all reports that are named, and of rows that were timed", "[cli]") {
  const Place place;
  put(place / "one.json", bench_report({{64, 2, 1}, {128, 2, 2}, {64, 8, 4}, {128, 8, 16}, {256, 8, 0}}));
  put(place / "two.json", bench_report({{64, 4, 3}, {128, 4, 6}}));
  const Outcome drawn = place.run(words("plot growth one.json two.json --out growth.svg"));
  INFO(drawn.err);
  REQUIRE(drawn.code == 0);
  const std::string picture = scratch::get(place / "growth.svg");
  for (const char* line : {"linear, batch 2, n^1.00", "linear, batch 8, n^2.00", "linear, batch 4, n^1.00"})
    CHECK(contains(picture, line));
  // Of one length there is no growth to tell.
  put(place / "short.json", bench_report({{64, 2, 1}}));
  CHECK(place.run(words("plot growth short.json --out short.svg")).code == 0);
  CHECK((contains(scratch::get(place / "short.svg"), "linear") && !contains(scratch::get(place / "short.svg"), "n^n")));
  check_case(place, "plot growth one.json one.json", 2, {"linear of 64 tokens is there twice"});
  put(place / "none.json", bench_report({{64, 2, 0}}));
  check_case(place, "plot growth none.json", 3, {"none.json", "no row that was measured"});
  check_case(place, "smat none.json", 3, {"nothing to compare", "no step was timed"});
  put(place / "no-lengths.json", R"({"conditions": {}, "rows": [{"model": "linear", "status": "ok"}]})");
  for (const char* command : {"plot growth", "smat"})
    check_case(place, std::string(command) + " no-lengths.json", 3, {"no-lengths.json", "length"});
  put(place / "batches.json", bench_report({{64, 2, 1.5}, {64, 8, 3.0}}));
  check_case(place, "smat batches.json", 2, {"batches.json", "batches 2, 8"});
}

TEST_CASE("ratios have a line for each batch and precision, of rows that were measured", "[cli]") {
  const Place place;
  Json report{{"conditions", {{"task", "listops"}, {"mode", "train"}}}, {"rows", Json::array()}};
  const auto add = [&](const char* model, int64_t length, int64_t batch, const char* precision, double flops) {
    report["rows"].push_back({{"model", model},
                              {"length", length},
                              {"batch", batch},
                              {"precision", precision},
                              {"status", "ok"},
                              {"flops", {{"step_counted", flops}}}});
  };
  for (const int64_t length : {64, 128}) {
    const auto n = static_cast<double>(length);
    add("linear", length, 2, "fp32", 2 * n), add("mrs-linear", length, 2, "fp32", 3 * n);
    add("linear", length, 4, "fp32", 4 * n), add("mrs-linear", length, 4, "fp32", 8 * n);
    add("linear", length, 2, "bf16", 2 * n), add("mrs-linear", length, 2, "bf16", 5 * n);
  }
  // Memory ran out before its operations were counted.
  add("linear", 256, 2, "fp32", 512), add("mrs-linear", 256, 2, "fp32", 0);
  report["rows"].back()["status"] = "out-of-memory";
  report["rows"].back()["flops"] = {{"step_formula", 1}};
  put(place / "several.json", report.dump());
  const Outcome drawn = place.run(words("plot ratios several.json --out several.svg"));
  INFO(drawn.err);
  REQUIRE(drawn.code == 0);
  const std::string picture = scratch::get(place / "several.svg");
  for (const char* line :
       {"linear, batch 2, fp32, train", "linear, batch 4, fp32, train", "linear, batch 2, bf16, train"})
    CHECK(contains(picture, line));
  CHECK_FALSE(contains(picture, ">256<"));
  report["conditions"].erase("mode");
  put(place / "modeless.json", report.dump());
  check_case(place, "plot ratios modeless.json", 3, {"modeless.json", "mode"});
}

}  // namespace xformer::program_test
