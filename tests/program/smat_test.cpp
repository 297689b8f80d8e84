// `xformer smat` on tables and on records.
#include "program.h"

#include <cmath>

namespace xformer::program_test {
namespace {

using scratch::put;

std::string record(const std::string& model, int64_t seed, double speed, double bytes, double accuracy,
                   const std::string& task = "text") {
  return Json{{"schema_version", 1},
              {"status", "completed"},
              {"task", task},
              {"model", model},
              {"seed", seed},
              {"accuracy", accuracy},
              {"examples_per_s", speed},
              {"peak_device_bytes", bytes}}
      .dump();
}

}  // namespace

TEST_CASE("SMAT of a table, and of records with their seeds", "[cli]") {
  const Place place;
  const std::string table = put(place / "table3.csv",
                                "model,examples_per_s,peak_memory_mb,accuracy\nTransformer,14.5,6645,58.77\n"
                                "Linear,200,1353,58.20\nPerformer,142.9,1439,53.63\nAdaMRA,160,1475,63.09\n")
                                .string();
  const auto answer = place.run({"smat", table, "--rounding", "terms"});
  CHECK(answer.code == 0);
  CHECK(contains(answer.out, "2.48"));
  CHECK(contains(answer.out, "table3.csv"));
  std::filesystem::create_directory(place / "records");
  for (const int64_t seed : {0, 1}) {
    const auto s = static_cast<double>(seed);
    put(place / ("records/a" + std::to_string(seed) + ".json"), record("a", seed, 10, 4e6, 0.5 + 0.1 * s));
    put(place / ("records/b" + std::to_string(seed) + ".json"), record("b", seed, 20, 2e6, 0.6));
  }
  put(place / "records/other.json", "{\"name\": \"no record\"}");
  put(place / "accuracy.csv", "model,accuracy\na,70\nb,60\n");
  const std::string records = (place / "records").string(), accuracy = (place / "accuracy.csv").string();
  const Json exact = Json::parse(place.run({"smat", records, "--json"}).out);
  REQUIRE(exact["rows"].size() == 2);
  CHECK(exact["rows"][1]["smat"] == 3.0);
  CHECK(exact["rows"][0]["accuracy"].get<double>() == Approx(55));
  // With seed 1 both have 60 %: a term is 0 for both then.
  CHECK(exact["rows"][1]["deviation"].get<double>() == Approx(std::sqrt(0.5)));
  const Json published = Json::parse(place.run({"smat", records, "--accuracy", accuracy, "--json"}).out);
  CHECK(published["rows"][0]["smat"] == 1.0);
  CHECK(contains(published["sources"].dump(), "accuracy from accuracy.csv"));
}

TEST_CASE("what SMAT cannot be made of is said", "[cli]") {
  const Place place;
  put(place / "a.json", record("a", 0, 1, 1, 0.5));
  put(place / "b.json", record("b", 0, 1, 1, 0.5, "listops"));
  put(place / "text.csv", "model,examples_per_s,peak_memory_mb,accuracy\na,fast,1,1\n");
  put(place / "less.csv", "model,accuracy\na,1\n");
  const auto refuses = [&](const Words& arguments, int code, const std::string& part) {
    const auto answer = place.run(arguments);
    CAPTURE(answer.err);
    CHECK(answer.code == code);
    CHECK(contains(answer.err, part));
  };
  const auto at = [&](const char* name) { return (place / name).string(); };
  refuses({"smat", at("a.json")}, 2, "two or more");
  refuses({"smat", at("a.json"), at("b.json")}, 2, "record of listops");
  refuses({"smat", at("a.json"), at("a.json")}, 2, "twice");
  refuses({"smat", at("text.csv")}, 3, "expected a number, got 'fast'");
  refuses({"smat", at("less.csv")}, 3, "examples_per_s is missing");
  refuses({"smat", at("none.csv")}, 3, "No such file");
  refuses({"smat", at("a.json"), "--rounding", "term"}, 2, "'terms'?");
}

}  // namespace xformer::program_test
