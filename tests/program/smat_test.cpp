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
  // The mean of 3 and 2: with seed 1 both have 60 %, a term is 0 for both then. What is spread is what is averaged.
  CHECK(exact["rows"][1]["smat"] == 2.5);
  CHECK(exact["rows"][0]["accuracy"].get<double>() == Approx(55));
  CHECK(exact["rows"][1]["deviation"].get<double>() == Approx(std::sqrt(0.5)));
  const Json published = Json::parse(place.run({"smat", records, "--accuracy", accuracy, "--json"}).out);
  CHECK(published["rows"][0]["smat"] == 1.0);
  CHECK(contains(published["sources"].dump(), "accuracy from accuracy.csv"));
  put(place / "records/c0.json", record("c", 0, 0, 1e6, 0.9));
  const Json without = Json::parse(place.run({"smat", records, "--json"}).out);
  CHECK(without["rows"] == exact["rows"]);
  CHECK(contains(without["sources"].dump(), "c with seed 0 left out: its record has no speed"));
}

TEST_CASE("SMAT of a bench, with published accuracies", "[cli]") {
  const Place place;
  const auto row = [](const char* model, const char* label, int64_t length, double speed, double bytes) {
    return Json{{"model", model}, {"label", label},          {"length", length},
                {"status", "ok"}, {"examples_per_s", speed}, {"peak_bytes", bytes}};
  };
  Json large = row("mra2", "mra2", 64, 1, 1);
  large["status"] = "too-large";
  const Json report{
      {"conditions", {{"mode", "train"}, {"task", "text"}, {"precision", "fp32"}, {"device", "cpu"}}},
      {"hardware", {{"processor", "P"}}},
      {"rows",
       {row("softmax", "softmax", 32, 1, 1), row("softmax", "softmax", 64, 10, 4e6),
        row("softmax-fused", "softmax-fused", 64, 20, 2e6), row("adamra", "adamra rates=[2]", 64, 30, 3e6), large}}};
  put(place / "bench.json", report.dump());
  put(place / "published.json", R"([
    {"experiment": "table-1", "task": "average", "model": "softmax", "metric": "accuracy", "value": 50, "source": "S"},
    {"experiment": "table-1", "task": "average", "model": "adamra", "metric": "accuracy", "value": 60, "source": "S"},
    {"experiment": "table-2", "task": "average", "model": "adamra", "metric": "accuracy", "value": 61, "source": "S"}])");
  const Words command = words("smat bench.json --accuracy published.json#table-1 --json");
  const Outcome outcome = place.run(command + "--length 64");
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  const Json scores = Json::parse(outcome.out);
  REQUIRE(scores["rows"].size() == 3);
  CHECK(scores["rows"][0]["smat"] == 0.0);
  CHECK(scores["rows"][1]["smat"] == 1.5);  // speed 0.5, memory 1, softmax's accuracy 0
  CHECK(scores["rows"][2]["smat"] == 2.5);
  CHECK(scores["models"][2] == "adamra rates=[2]");
  CHECK(contains(scores["sources"].dump(), "mra2 left out: too-large"));
  CHECK(contains(scores["sources"].dump(), "accuracy from published.json#table-1"));
  CHECK(contains(place.run(command).err, "it has the lengths 32, 64"));
  CHECK(contains(place.run(words("smat bench.json --length 64")).err, "has no accuracy"));
  CHECK(contains(place.run(words("smat bench.json --length 64 --accuracy published.json")).err, "several averages"));
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
  refuses({"smat", at("a.json"), at("b.json")}, 2, "--task NAME says which");
  refuses({"smat", at("a.json"), at("a.json"), "--duplicates", "refuse"}, 2, "is there twice");
  // Seeds of one model at two lengths, or under two protocols, are not averaged.
  Json longer = Json::parse(record("a", 1, 2, 2, 0.75));
  longer["plan"] = {{"data.max_length", 250}};
  Json shorter = Json::parse(record("b", 0, 1, 1, 0.5));
  shorter["plan"] = {{"data.max_length", 77}};
  put(place / "longer.json", longer.dump());
  put(place / "shorter.json", shorter.dump());
  const std::string columns =
      "one task under one protocol and options; these are records of text, max_length=250 and text, max_length=77";
  refuses({"smat", at("longer.json"), at("shorter.json")}, 2, columns);
  refuses({"plot", "tradeoff", at("longer.json"), at("shorter.json")}, 2, columns);
  longer["protocol"] = "clean", shorter["protocol"] = "mlpen";
  shorter["plan"] = longer["plan"];
  put(place / "longer.json", longer.dump());
  put(place / "shorter.json", shorter.dump());
  refuses({"smat", at("longer.json"), at("shorter.json")}, 2, "records of text (clean) and text (mlpen)");
  put(place / "still.json", record("a", 0, 0, 1, 0.5));
  refuses({"smat", at("still.json")}, 3, "nothing to compare: a with seed 0 left out");
  refuses({"smat", at("text.csv")}, 3, "expected a number, got 'fast'");
  refuses({"smat", at("less.csv")}, 3, "examples_per_s is missing");
  refuses({"smat", at("none.csv")}, 3, "No such file");
  refuses({"smat", at("a.json"), "--rounding", "term"}, 2, "'terms'?");
}

TEST_CASE("ratios of mrs-X to X are drawn from benches, and ranks from an experiment's records", "[cli]") {
  const Place place;
  const auto row = [](const char* model, int64_t length, double flops, double bytes) {
    return Json{{"model", model},
                {"length", length},
                {"width", 64},
                {"flops", {{"step_counted", flops}}},
                {"peak_bytes", bytes}};
  };
  const Json report{{"conditions", {{"mode", "train"}}},
                    {"rows",
                     {row("fmm", 512, 10, 8), row("mrs-fmm", 512, 8, 4), row("fmm", 1024, 20, 16),
                      row("mrs-fmm", 1024, 12, 6), row("softmax-fused", 512, 1, 1)}}};
  put(place / "bench.json", report.dump());
  const Outcome flops = place.run(words("plot ratios bench.json"));
  CHECK(flops.code == 0);
  CHECK(contains(flops.out, "fmm, width 64, train"));
  Json older = report;  // rows without a width
  for (Json& one : older["rows"]) one.erase("width");
  put(place / "older.json", older.dump());
  CHECK(contains(place.run(words("plot ratios older.json")).out, ">fmm, train<"));
  Json inference = report;
  inference["conditions"]["mode"] = "inference";
  put(place / "inference.json", inference.dump());
  CHECK(
      contains(place.run(words("plot ratios bench.json inference.json")).out, ">fmm, width 64, train and inference<"));
  CHECK(contains(place.run(words("plot ratios bench.json --of memory")).out, "ratio of peak memory"));
  CHECK(contains(place.run(words("plot ratios bench.json --models fmm")).out, "fmm, width 64, train"));
  CHECK(place.run(words("plot ratios bench.json --models luna")).code == 2);
  CHECK(contains(place.run(words("plot ratios bench.json --of time")).err, "known: flops, memory"));
  put(place / "none.json", Json{{"conditions", {{"mode", "train"}}}, {"rows", {row("fmm", 512, 1, 1)}}}.dump());
  CHECK(contains(place.run(words("plot ratios none.json")).err, "some model X and mrs-X"));
  std::filesystem::create_directory(place / "records");
  for (const char* model : {"a", "b"})
    for (int task = 0; task < 6; ++task)
      put(place / fmt::format("records/{}{}.json", model, task),
          record(model, 0, 1, 1, 0.5 + 0.01 * task + (*model == 'a' ? 0.1 : 0), fmt::format("t{}", task)));
  const Outcome ranks = place.run(words("plot ranks records"));
  CHECK(ranks.code == 0);
  CHECK(contains(ranks.out, "a 1.00"));
}

}  // namespace xformer::program_test
