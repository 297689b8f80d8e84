// What a program of before left (tests/compatibility) is read and gone on with.
#include <cstring>

#include "program.h"

namespace xformer::program_test {
namespace {

const Path kOld = Path(XFORMER_SOURCE) / "tests/compatibility";

void copy_old(const std::string& name, const Path& to) {
  std::filesystem::copy(kOld / name, to, std::filesystem::copy_options::recursive);
}

// All numbers of the tensors of a file, in its order.
std::vector<float> numbers_of(const Path& path) {
  const MappedFile file(path);
  const auto header = readers::parse_safetensors(file.bytes(), path.string());
  const auto data = file.bytes().subspan(header.data_offset);
  std::vector<float> result;
  for (const readers::TensorEntry& entry : header.tensors) {
    if (entry.type != "F32") continue;
    const size_t old = result.size();
    result.resize(old + (entry.end - entry.begin) / sizeof(float));
    std::memcpy(result.data() + old, data.data() + entry.begin, entry.end - entry.begin);
  }
  return result;
}

}  // namespace

TEST_CASE("an old run that was stopped goes on to where it would have come", "[compatibility]") {
  const Place place;
  copy_old("run", place / "run");
  const auto train = [&](const std::string& out) {
    return place.run(
        {"train", "--config", (kOld / "run/plan.json").string(), "--threads", "1", "--device", "cpu", "--out", out});
  };
  const Outcome resumed = train("run"), straight = train("straight");
  INFO(resumed.err);
  REQUIRE((resumed.code == 0 && straight.code == 0));
  CHECK(contains(resumed.err, "resumed at step 6 of 12"));
  CHECK(metrics_of(place / "run").size() == metrics_of(place / "straight").size());
  // On the machine that began the run the bits are equal; another's vector units may round otherwise.
  const auto ours = numbers_of(place / "run/model.safetensors"),
             whole = numbers_of(place / "straight/model.safetensors");
  REQUIRE((!ours.empty() && ours.size() == whole.size()));
  float apart = 0;
  for (size_t i = 0; i < ours.size(); ++i) apart = std::max(apart, std::abs(ours[i] - whole[i]));
  CHECK(apart < 1e-5F);
  const Json record = json_file(place / "run/record.json"), old = json_file(kOld / "run/record.json");
  CHECK(record["status"] == "completed");
  CHECK(record["plan_hash"] == old["plan_hash"]);
  CHECK(record["resumed_at"] == Json({6}));
  CHECK(record["dev"].size() == 3);
  CHECK(record["dev"][0] == old["dev"][0]);
}

TEST_CASE("an old sweep goes on with what is missing, and its records are read", "[compatibility]") {
  const Place place;
  copy_old("sweep", place / "sweep");
  const std::string experiment = (kOld / "sweep.json").string();
  const Outcome outcome =
      place.run({"sweep", experiment, "--out", "sweep", "--record-to", "records", "--threads", "1", "--device", "cpu"});
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK(contains(outcome.out, "2 of 2 cells completed"));
  CHECK(contains(outcome.err, "1 of 2 cells have ended before"));
  const std::string journal = scratch::get(place / "sweep/journal.jsonl");
  CHECK(journal.starts_with(scratch::get(kOld / "sweep/journal.jsonl")));
  size_t starts = 0;
  for (size_t at = 0; (at = journal.find("\"event\":\"started\"", at)) != std::string::npos; ++at) ++starts;
  CHECK(starts == 2);  // the old one, and that of the other cell
  // The copy of the old record says what the old one says.
  const std::string cell = "listops/mrs-linear/c601f8d1f1dbbcef/3/record.json";
  const Json copy = json_file(place / ("records/" + cell)), old = json_file(kOld / ("sweep/" + cell));
  for (const auto& [key, value] : old.items()) {
    INFO(key);
    // In any order of keys.
    const auto sorted = [](const Json& json) { return nlohmann::json::parse(json.dump()); };
    if (key != "schema_version" && !value.is_null()) CHECK(sorted(copy.value(key, Json())) == sorted(value));
  }
  const Outcome report = place.run({"report", experiment, "--records", "records"});
  CHECK(contains(report.out, fmt::format("| mrs-linear | {:.2f}", 100 * old["accuracy"].get<double>())));
  CHECK_FALSE(contains(report.out, "no record"));
  const Outcome curves = place.run({"plot", "curves", (kOld / ("sweep/" + cell)).string()});
  CHECK((curves.code == 0 && contains(curves.out, "dev accuracy, %")));
}

}  // namespace xformer::program_test
