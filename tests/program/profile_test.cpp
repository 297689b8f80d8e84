// `xformer profile` as its user meets it: the tables, the report, what is refused, and stopping.
#include "program.h"

namespace xformer::program_test {
namespace {

const std::string kSmall =
    "profile --threads 1 --length 32 --batch 2 --set model.dim=16 model.head_dim=8 model.ff_dim=16 ";

TEST_CASE("profile prints tables", "[cli]") {
  const Place place;
  const Outcome outcome = place.run(words(kSmall + "--steps 2 --model softmax --out tables.md"));
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK(outcome.out == scratch::get(place / "tables.md"));
  for (const char* part :
       {"`softmax` on listops (mlpen): training steps of 2 x 32 tokens", "- step: ", "- peak in fp32: ",
        "- arithmetic floor: ", "- floor with memory: ", "- outside parallel regions: not measured (one thread)",
        "- memory: ", "| `aten::bmm` | products |", "| outside operators | |", "\n| products | ",
        "\n| product | calls |", "\nConditions: "})
    CHECK(contains(outcome.out, part));
  CHECK(contains(outcome.err, "peak of products"));       // progress goes to stderr
  CHECK_FALSE(std::filesystem::exists(place / "cache"));  // no data set was made
}

TEST_CASE("profile prints its report as JSON", "[cli]") {
  const Place place;
  const Outcome outcome =
      place.run(words(kSmall + "--steps 2 --model softmax-fused --mode inference --json --out report.json"));
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK(outcome.out == scratch::get(place / "report.json"));
  const Json report = Json::parse(outcome.out);
  CHECK(report["schema_version"] == 4);
  CHECK(contains(report["command"], "--out <out>"));
  CHECK(report["conditions"]["threads"] == 1);
  CHECK(report["conditions"]["mode"] == "inference");
  CHECK(report["conditions"]["length"] == 32);
  CHECK(report["memory"]["peak_bytes"].get<int64_t>() > 0);
  CHECK(report["floor"]["flops"].get<double>() > 0);
  double share = report["outside_operators"]["share"];
  for (const Json& row : report["operators"]) share += row["share"].get<double>();
  CHECK(share == Approx(1));
}

TEST_CASE("profile answers wrong words", "[cli]") {
  const Place place;
  const struct {
    std::string arguments;
    int code;
    Words parts;
  } cases[] = {
      {"profile", 2, {"--model", "required"}},
      {"profile --model linfomer", 2, {"'linfomer'", "did you mean 'linformer'?"}},
      {"profile --model linear --task lisops", 2, {"'listops'?"}},
      {"profile --model linear --length 0", 2, {"--length", "from 1", "'0'"}},
      {"profile --model linear --batch many", 2, {"--batch", "'many'"}},
      {"profile --model linear --steps 0", 2, {"--steps", "from 1"}},
      {"profile --model linear --mode trian", 2, {"--mode", "'train'?"}},
      {"profile --model linear --set model.dmi=3", 2, {"'model.dim'?"}},
      {"profile --model linear --precision fp8", 2, {"unknown precision", "fp8"}},
      {"profile --model linear --device gpu", 2, {"'gpu'"}},
      {"profile --model linear --cuda-graph on", 2, {"--cuda-graph on", "not on cpu"}},
      {"profile --model linear --lenght 5", 2, {"--length"}},
      {"profile --model linear --out nowhere/report.json", 2, {"--out", "nowhere"}},
  };
  for (const auto& entry : cases) check_case(place, entry.arguments, entry.code, entry.parts);
}

TEST_CASE("a profile that is stopped writes nothing", "[cli]") {
  const Place place;
  Process process(Words{program_path()} + words(kSmall + "--steps 1000000 --model linear --json --out report.json"),
                  place.path(), place.environment());
  REQUIRE(process.says("peak of products"));
  process.send(SIGINT);
  CHECK(process.wait() == 6);
  CHECK(process.out().empty());
  CHECK_FALSE(std::filesystem::exists(place / "report.json"));
}

}  // namespace
}  // namespace xformer::program_test
