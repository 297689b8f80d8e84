// Experiments that measure: which report is of which command, and what becomes of a command that ends before it is
// done.
#include "program.h"

namespace xformer::program_test {
namespace {

const std::string kTinyBench = R"("--steps", "1", "--set", "model.dim=16", "model.head_dim=8")";

// An experiment of `xformer bench` at these lengths.
void put_measuring(const Place& place, const std::vector<std::string>& lengths, const std::string& more = kTinyBench) {
  std::string commands;
  for (const std::string& length : lengths)
    commands += (commands.empty() ? "" : ", ") + (R"(["--lengths", ")" + length) +
                R"(", "--models", "none", "--no-baseline", "--batch", "1", )" + more + "]";
  std::filesystem::create_directories(place / "small");
  scratch::put(place / "small/measured.json", R"({"title": "Measured", "bench": [)" + commands + "]}");
}

const std::string kMeasure = "sweep small/measured.json --threads 1 --record-to kept --out ";

// Whether a process has a handler for a signal.
bool handles(pid_t process, int signal) {
  std::istringstream status(scratch::get(fmt::format("/proc/{}/status", process)));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("SigCgt:")) return (std::stoull(line.substr(7), nullptr, 16) >> (signal - 1) & 1) != 0;
  return false;
}

}  // namespace

TEST_CASE("what has its report is not measured again, in whatever folder and under whatever number", "[sweep]") {
  const Place place;
  put_measuring(place, {"16"});
  REQUIRE(place.run(words(kMeasure + "first")).code == 0);
  const std::string report = scratch::get(place / "kept/bench-1.json"), table = scratch::get(place / "kept/bench-1.md");
  const Outcome clone = place.run(words(kMeasure + "second"));
  CHECK(clone.code == 0);
  CHECK(contains(clone.err, "Measured, 1 of 1: measured before (second/bench-1.json)"));
  CHECK((scratch::get(place / "kept/bench-1.json") == report && scratch::get(place / "second/bench-1.json") == report));

  // A command that was put in front takes the number, and nothing else.
  put_measuring(place, {"32", "16"});
  const auto shown = [&] { return place.run(words("report small/measured.json --records kept")).out; };
  CHECK(contains(shown(), "Measurement 1 of 2 is not made yet: bench-1.json among its records is of another command."));
  CHECK(contains(shown(), "| none | 16 | 1 |"));
  REQUIRE(place.run(words(kMeasure + "second")).code == 0);
  for (const char* folder : {"kept", "second"}) {
    INFO(folder);
    CHECK(json_file(place / folder / "bench-1.json")["rows"][0]["length"] == 32);
    CHECK((scratch::get(place / folder / "bench-2.json") == report));
    CHECK((scratch::get(place / folder / "bench-2.md") == table));
  }
  CHECK_FALSE(contains(shown(), "not made yet"));

  // The words of another command may begin with those of this one.
  put_measuring(place, {"16"}, R"("--steps", "1", "--set", "model.dim=16")");
  CHECK(contains(shown(), "Measurement 1 of 1 is not made yet"));
}

TEST_CASE("a measurement that was killed is no bug, and who waits for it can be stopped", "[sweep]") {
  const Place place;
  put_measuring(place, {"2048"}, R"("--steps", "100000")");
  const auto start = [&](const std::string& name) {
    std::filesystem::create_directories(place / name);
    const Words command = words("sweep " + (place / "small/measured.json").string() + " --threads 1 --out ");
    return std::make_unique<Process>(Words{program_path()} + command + (place / "out").string(), place / name,
                                     place.environment());
  };
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); };
  const auto first = start("first");
  while (!first->ended() && children_of(first->id()).empty()) pause();
  const std::vector<pid_t> benches = children_of(first->id());
  REQUIRE(benches.size() == 1);
  const auto second = start("second");
  // Of the signals that stop a sweep the one that no test program handles before it becomes the other.
  while (!second->ended() && !handles(second->id(), SIGUSR1)) pause();
  second->send(SIGTERM);
  CHECK(second->wait() == 6);
  CHECK(contains(second->err(), "the same command goes on"));
  REQUIRE_FALSE(first->ended());
  ::kill(benches[0], SIGKILL);
  const int code = first->wait();
  INFO(first->err());
  CHECK(code == 4);
  CHECK((contains(first->err(), "ended by signal 9 from outside") || contains(first->err(), "for want of memory")));
  CHECK_FALSE(contains(first->err(), "bug in xformer"));
}

}  // namespace xformer::program_test
