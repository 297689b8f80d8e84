// `xformer bench` as its user meets it: the table, the files, what is refused, and stopping.
#include "program.h"

namespace xformer::program_test {
namespace {

const std::string kSmall =
    "bench --device cpu --threads 1 --batch 2 --set model.dim=16 model.head_dim=8 model.ff_dim=16 ";

TEST_CASE("bench prints a table and writes the same report", "[cli]") {
  const Place place;
  const Outcome outcome = place.run(words(
      kSmall +
      "--steps 2 --models softmax,mrs-linear --lengths 32,48 --interleave --json report.json --markdown table.md"));
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK(outcome.out == scratch::get(place / "table.md"));
  CHECK(contains(outcome.out, "| `mrs-linear` | 48 | 2 |"));
  CHECK(contains(outcome.err, "warm-up"));  // progress goes to stderr
  const Json report = json_file(place / "report.json");
  // The exact kernel stands in every table.
  REQUIRE(report["rows"].size() == 6);
  CHECK(report["rows"][2]["model"] == "softmax-fused");
  CHECK(report["conditions"]["threads"] == 1);
  CHECK(report["rows"][0]["peak_bytes"].get<int64_t>() > 0);
  CHECK(contains(report["command"], "--json <json> --markdown <markdown>"));
  CHECK_FALSE(std::filesystem::exists(place / "cache"));  // no data set was made
}

TEST_CASE("bench answers wrong words", "[cli]") {
  const Place place;
  const struct {
    std::string arguments;
    int code;
    Words parts;
  } cases[] = {
      {"bench", 2, {"--models", "missing", "adamra-table-2"}},
      {"bench --models linear", 2, {"--lengths", "missing"}},
      {"bench --lengths 32 --models linear,linfomer", 2, {"'linfomer'", "did you mean 'linformer'?"}},
      {"bench --models linear --lengths 32,0", 2, {"--lengths", "from 1", "'0'"}},
      {"bench --models linear --lengths 32 --batch many", 2, {"--batch", "'many'"}},
      {"bench --as adamra-tabel-2", 2, {"--as", "did you mean 'adamra-table-2'?"}},
      {"bench --as adamra-table-2 --set performer:attention.features=8 --set softmx:model.dim=8",
       2,
       {"softmx", "did you mean 'softmax'?"}},
      {"bench --models linear --lengths 32 --widths 32,x", 2, {"--widths", "from 1", "'x'"}},
      {"bench --models linear --lengths 32 --mode trian", 2, {"--mode", "'train'?"}},
      {"bench --models linear --lengths 32 --set model.dmi=3", 2, {"'model.dim'?"}},
      {"bench --models linear --lengths 32 --set attention.projected_len=3", 2, {"attention.projected_len", "linear"}},
      {"bench --models linear --lengths 32 --precision fp8", 2, {"unknown precision", "fp8"}},
      {"bench --models linear --lengths 32 --device gpu", 2, {"'gpu'"}},
      {"bench --models linear --lengths 32 --device cpu --cuda-graph on", 2, {"--cuda-graph on"}},
      {"bench --models linear,softmax --lengths 32 --paced", 2, {"--paced", "one row"}},
      {"bench --models linear --lengths 32 --data .", 2, {"--data", "--valid-from-data"}},
      {"bench --models linear --lengths 32 --data nowhere --valid-from-data", 3, {"--data", "nowhere"}},
      {"bench --models linear --lengths 32 --json nowhere/report.json", 2, {"--json", "nowhere"}},
  };
  for (const auto& entry : cases) check_case(place, entry.arguments, entry.code, entry.parts);
  const Outcome rows =
      place.run(words("bench --as adamra-table-3 --batch 2 --set performer:attention.features=8 --dry-run"));
  CHECK(rows.code == 0);
  CHECK(contains(rows.out, "performer features=8  length 4096  batch 2"));
  CHECK(contains(rows.out, "adamra rates=[2,8,32]"));
  const Outcome grid =
      place.run(words("bench --models linear --lengths 32 --widths 32,64 --precision fp32,bf16 --dry-run"));
  CHECK(grid.code == 0);
  CHECK(contains(grid.out, "linear dim=32 bf16  length 32  batch 16"));
  // Of a pattern those that can do the task; who is named by itself must be able to.
  const Outcome causal = place.run(words("bench --task bytes/text8 --models l* --lengths 32 --dry-run"));
  CHECK(causal.code == 0);
  CHECK(contains(causal.out, "linear  length 32"));
  CHECK_FALSE(contains(causal.out, "linformer"));
  CHECK(contains(causal.err, "left out, for bytes/text8"));
  CHECK(contains(causal.err, "linformer"));
  CHECK_FALSE(contains(causal.err, "linear"));
  const Outcome named = place.run(words("bench --task bytes/text8 --models linformer,l* --lengths 32 --dry-run"));
  CHECK(named.code == 2);
  CHECK(contains(named.err, "linformer has no causal form"));
  const Outcome all = place.run(words("bench --models l* --lengths 32 --dry-run"));
  CHECK(contains(all.out, "linformer  length 32"));
  CHECK(all.err.empty());
  // Options of those that the pattern stands for, which softmax has not.
  const Outcome own =
      place.run(words("bench --models linf* --no-baseline --lengths 32 --set attention.projected_len=8 --dry-run"));
  INFO(own.err);
  CHECK(own.code == 0);
  CHECK(contains(own.out, "linformer  length 32"));
  const Outcome empty = place.run({"bench", "--lengths", "32", "--models", ""});
  CHECK(empty.code == 2);
  CHECK(contains(empty.err, "--models"));
}

TEST_CASE("a paced bench answers every line with a step", "[cli]") {
  const Place place;
  const Words bench = words(kSmall + "--models linear --lengths 32 --paced --valid-from-data --json report.json " +
                            "--set data.min_length=10 data.max_length=60 data.train_examples=8 data.dev_examples=2 " +
                            "data.test_examples=2");
  const Outcome outcome = place.command(Words{"sh", "-c", R"(printf '\n\n\n' | "$0" "$@")", program_path()} + bench);
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  std::istringstream lines(outcome.out);
  std::string line;
  REQUIRE(std::getline(lines, line));
  const Json ready = Json::parse(line);
  CHECK(ready["event"] == "ready");
  CHECK(ready["row"]["valid_lengths"].size() == 2);
  for (int i = 0; i < 3; ++i) {
    REQUIRE(std::getline(lines, line));
    const Json step = Json::parse(line);
    CHECK(step["event"] == "step");
    CHECK(step["model"] == "linear");
    CHECK(step["ms"].get<double>() > 0);
  }
  REQUIRE(std::getline(lines, line));
  CHECK(line.starts_with("| model |"));
  const Json row = json_file(place / "report.json")["rows"][0];
  CHECK(row["timed_steps"] == 3);
  CHECK(row["valid_lengths"] == ready["row"]["valid_lengths"]);
}

TEST_CASE("a paced bench that waits for a line can be stopped", "[cli]") {
  const Place place;
  // Open for reading and writing, the pipe never ends.
  const std::string script = R"(mkfifo lines; exec 3<>lines; exec "$0" "$@" <&3)";
  Process process(Words{"sh", "-c", script, program_path()} + words(kSmall + "--models linear --lengths 32 --paced"),
                  place.path(), place.environment());
  REQUIRE(process.says("warm-up"));
  process.send(SIGTERM);
  CHECK(process.wait() == 6);
}

TEST_CASE("a bench that is stopped writes nothing", "[cli]") {
  const Place place;
  Process process(
      Words{program_path()} + words(kSmall + "--steps 1000000 --models linear --lengths 32 --json report.json"),
      place.path(), place.environment());
  REQUIRE(process.says("warm-up"));
  process.send(SIGINT);
  CHECK(process.wait() == 6);
  CHECK(process.out().empty());
  CHECK_FALSE(std::filesystem::exists(place / "report.json"));
}

}  // namespace
}  // namespace xformer::program_test
