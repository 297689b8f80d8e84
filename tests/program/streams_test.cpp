// Standard streams that cannot be written, are closed, or lose their reader.
#include "program.h"

namespace xformer::program_test {
namespace {

TEST_CASE("output that cannot be written is an error, messages that cannot are none", "[cli]") {
  const Place place;
  const auto shell = [&](const std::string& arguments) {
    return place.command({"sh", "-c", program_path() + " " + arguments});
  };
  for (const char* arguments : {"list", "describe listops", "--help", "--version", "data list", "completion bash"}) {
    const Outcome outcome = shell(std::string(arguments) + " > /dev/full");
    INFO(arguments << ": " << outcome.err);
    CHECK(outcome.code == 4);
    CHECK(contains(outcome.err, "the standard output cannot be written: No space left on device"));
  }
  CHECK(shell("trian 2> /dev/full").code == 2);
  CHECK(shell("describe listops > /dev/full 2> /dev/full").code == 4);
}

TEST_CASE("a run outlives the reader of its output, and closed streams get nothing of its files", "[cli]") {
  const Place place;
  const auto shell = [&](const std::string& more, const std::string& streams) {
    std::string command = program_path();
    for (const std::string& word : tiny("linear", more)) command += " '" + word + "'";
    return place.command({"sh", "-c", "(" + command + " " + streams});
  };
  shell("--steps 6 --out broken", ") 2>&1 | true");
  CHECK(json_file(place / "broken/record.json")["status"] == "completed");
  CHECK(shell("--steps 6 --out closed", "0<&- 1>&- 2>&-)").code == 0);
  CHECK(shell("--steps 6 --out full", "2> /dev/full)").code == 0);
  for (const char* run : {"closed", "full"}) {
    CHECK(json_file(place / run / "record.json")["status"] == "completed");
    std::istringstream log(scratch::get(place / run / "log.jsonl"));
    for (std::string line; std::getline(log, line);) CHECK(Json::accept(line));
    CHECK(scratch::get(place / run / "lock").empty());
  }
}

}  // namespace
}  // namespace xformer::program_test
