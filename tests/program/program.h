// What the tests of the whole program share: starting it, reading its run directories, the tiny settings.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "core/hash.h"
#include "core/json.h"
#include "readers/safetensors.h"
#include "scratch.h"

namespace xformer::program_test {

using Words = std::vector<std::string>;
using Environment = std::map<std::string, std::string>;  // an empty value takes the variable away

inline Words words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

inline Words operator+(Words left, const Words& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}
inline Words operator+(Words left, const std::string& right) { return std::move(left) + words(right); }

inline std::string program_path() {
  const char* path = std::getenv("XFORMER_PROGRAM");
  if (path == nullptr || *path == '\0') throw std::runtime_error("XFORMER_PROGRAM must name the program under test");
  return path;
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

constexpr int kUnprepared = 125;  // the exit code of a process that did not become the program

// A running program; its output goes to files beside it. Killed and awaited at the end of the scope.
class Process {
 public:
  // `prepare` runs in the process before it is the program; false: it never is.
  Process(const Words& command, const Path& folder, const Environment& environment, bool (*prepare)() = nullptr)
      : out_(folder / "stdout"), err_(folder / "stderr") {
    const int out = ::open(out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    const int err = ::open(err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    // A signal that comes before the child is another program ends it as it would that program, and reports no test.
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, &before);
    id_ = ::fork();
    if (id_ == 0) {
      for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);
      ::sigprocmask(SIG_SETMASK, &before, nullptr);
      for (const auto& [name, value] : environment)
        value.empty() ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value.c_str(), 1);
      const int input = ::open("/dev/null", O_RDONLY);
      if (::chdir(folder.c_str()) != 0 || ::dup2(input, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(err, 2) < 0) _exit(126);
      if (prepare != nullptr && !prepare()) _exit(kUnprepared);
      ::execvp(arguments[0], arguments.data());
      _exit(127);
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    ::close(out);
    ::close(err);
    if (id_ < 0) throw std::runtime_error("no new process");
  }
  ~Process() {
    if (!ended()) {
      send(SIGKILL);
      wait();
    }
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  [[nodiscard]] std::string out() const { return scratch::get(out_); }
  [[nodiscard]] std::string err() const { return scratch::get(err_); }

  [[nodiscard]] pid_t id() const { return id_; }
  void send(int signal) const {
    if (!reaped_) ::kill(id_, signal);
  }
  bool ended() {
    if (!reaped_ && ::waitpid(id_, &status_, WNOHANG) == id_) reaped_ = true;
    return reaped_;
  }
  // The exit code, or minus the signal that ended it.
  int wait() {
    while (!reaped_) {
      if (::waitpid(id_, &status_, 0) == id_) reaped_ = true;
      else if (errno != EINTR) throw std::runtime_error("no such process");
    }
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : -WTERMSIG(status_);
  }
  // True once stderr holds the text, false when the program ends without it.
  bool says(const std::string& text) {
    while (true) {
      const bool over = ended();
      if (contains(err(), text)) return true;
      if (over) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

 private:
  Path out_, err_;
  pid_t id_ = -1;
  int status_ = 0;
  bool reaped_ = false;
};

// Processes whose parent, or first ancestor, it is.
inline std::vector<pid_t> children_of(pid_t process) {
  std::istringstream text(scratch::get(fmt::format("/proc/{}/task/{}/children", process, process)));
  std::vector<pid_t> result;
  for (pid_t child = 0; text >> child;) result.push_back(child);
  return result;
}

// The run directories below a sweep's folder, sorted.
inline std::vector<Path> runs_in(const Path& out) {
  std::vector<Path> result;
  if (!std::filesystem::exists(out)) return result;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(out))
    if (entry.path().filename() == "plan.json") result.push_back(entry.path().parent_path());
  std::sort(result.begin(), result.end());
  return result;
}

struct Outcome {
  int code = 0;
  std::string out, err;
};

// A folder with a cache of its own, in which the program is run.
class Place {
 public:
  Place() {
    environment_ = {{"XFORMER_CACHE", folder_ / "cache"},
                    {"XFORMER_DATA", ""},
                    {"NO_COLOR", ""},
                    // Two threads on a busy machine must not spin for each other.
                    {"OMP_WAIT_POLICY", "PASSIVE"}};
  }
  [[nodiscard]] Path operator/(const std::string& name) const { return folder_ / name; }
  [[nodiscard]] const Path& path() const { return folder_.path(); }
  [[nodiscard]] const Environment& environment() const { return environment_; }

  [[nodiscard]] Outcome run(const Words& arguments, const Environment& more = {}) const {
    return command(Words{program_path()} + arguments, more);
  }
  [[nodiscard]] Outcome command(const Words& command, const Environment& more = {}) const {
    Environment environment = environment_;
    for (const auto& [name, value] : more) environment[name] = value;
    Process process(command, folder_.path(), environment);
    const int code = process.wait();
    return {code, process.out(), process.err()};
  }

 private:
  scratch::Folder folder_;
  Environment environment_;
};

// A model and data small enough for runs of about a second.
inline Words tiny(const std::string& model, const std::string& more = "") {
  return words("train --task listops --model " + model +
               " --set model.dim=16 --set model.head_dim=8 --set model.ff_dim=16 --set model.classifier_dim=16"
               " --set data.min_length=10 --set data.max_length=60 --set data.train_examples=256"
               " --set data.dev_examples=32 --set data.test_examples=32 --set training.log_every=3"
               " --batch 8 --eval-every 10 --seed 3 " +
               (contains(more, "--threads") ? "" : "--threads 1 ") + more);
}

inline Json json_file(const Path& path) { return Json::parse(scratch::get(path)); }

// "name type shape sha256" of every tensor.
inline std::vector<std::string> tensors_of(const Path& path) {
  const MappedFile file(path);
  const auto header = readers::parse_safetensors(file.bytes(), path.string());
  const auto data = file.bytes().subspan(header.data_offset);
  std::vector<std::string> result;
  for (const readers::TensorEntry& entry : header.tensors) {
    const auto bytes = data.subspan(entry.begin, entry.end - entry.begin);
    result.push_back(fmt::format("{} {} [{}] {}", entry.name, entry.type, fmt::join(entry.shape, ","),
                                 sha256({reinterpret_cast<const char*>(bytes.data()), bytes.size()})));
  }
  return result;
}

// The lines of log.jsonl without those that say where the run was resumed, and without times and memory.
inline std::vector<std::string> metrics_of(const Path& run) {
  std::vector<std::string> result;
  std::istringstream log(scratch::get(run / "log.jsonl"));
  for (std::string line; std::getline(log, line);) {
    Json entry = Json::parse(line);
    if (entry["event"] == "resumed") continue;
    for (const char* key : {"time", "examples_per_s", "memory_peak_bytes", "page_faults_per_step"}) entry.erase(key);
    result.push_back(entry.dump());
  }
  return result;
}

// Steps at which the log says that the run went on.
inline std::vector<int64_t> resumed_steps(const Path& run) {
  std::vector<int64_t> result;
  std::istringstream log(scratch::get(run / "log.jsonl"));
  for (std::string line; std::getline(log, line);) {
    const Json entry = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (entry.is_object() && entry["event"] == "resumed") result.push_back(entry["step"]);
  }
  return result;
}

inline std::vector<std::string> checkpoints_of(const Path& run) {
  std::vector<std::string> names;
  for (const std::string& name : scratch::names_in(run / "checkpoints"))
    if (!name.starts_with('.')) names.push_back(name);
  return names;
}

// The state in a checkpoint's header, without times and places; keys sorted.
inline nlohmann::json state_of(const Path& checkpoint) {
  const MappedFile file(checkpoint);
  auto state =
      nlohmann::json::parse(readers::parse_safetensors(file.bytes(), checkpoint.string()).metadata.at("state"));
  for (const char* key : {"train_seconds", "evaluation_seconds", "resumed_at", "log_bytes"}) state.erase(key);
  return state;
}

// The first few lines that only one of two lists has in their place; "" when they are equal.
inline std::string difference(const std::vector<std::string>& left, const std::vector<std::string>& right) {
  std::string result;
  int shown = 0;
  for (size_t i = 0; i < std::max(left.size(), right.size()) && shown < 4; ++i) {
    const std::string a = i < left.size() ? left[i] : "(nothing)", b = i < right.size() ? right[i] : "(nothing)";
    if (a != b) result += fmt::format("{}: {}\n  but {}\n", i, a, b), ++shown;
  }
  return result;
}

// Two finished runs of one plan ended in the same bits: weights, optimiser, metrics, predictions.
inline void check_same_end(const Path& run, const Path& reference) {
  INFO(run);
  CHECK(difference(tensors_of(run / "model.safetensors"), tensors_of(reference / "model.safetensors")) == "");
  REQUIRE(!checkpoints_of(run).empty());
  const std::string last = checkpoints_of(reference).back();
  REQUIRE(checkpoints_of(run).back() == last);
  CHECK(difference(tensors_of(run / "checkpoints" / last), tensors_of(reference / "checkpoints" / last)) == "");
  CHECK(state_of(run / "checkpoints" / last) == state_of(reference / "checkpoints" / last));
  CHECK(difference(metrics_of(run), metrics_of(reference)) == "");
  CHECK((scratch::get(run / "predictions.csv") == scratch::get(reference / "predictions.csv")));
  const Json record = json_file(run / "record.json"), expected = json_file(reference / "record.json");
  for (const char* key : {"status", "accuracy", "dev", "test", "selection", "steps", "data", "plan_hash"}) {
    INFO(key);
    CHECK(record.value(key, Json()) == expected.value(key, Json()));
  }
}

// One command and what it must answer, on whichever stream.
inline void check_case(const Place& place, const std::string& arguments, int code, const Words& parts) {
  const Outcome outcome = place.run(words(arguments));
  INFO("xformer " << arguments << "\nstdout: " << outcome.out << "\nstderr: " << outcome.err);
  CHECK(outcome.code == code);
  for (const std::string& part : parts) {
    INFO("expected: " << part);
    CHECK((contains(outcome.out, part) || contains(outcome.err, part)));
  }
  if (code != 0) CHECK(outcome.out.empty());  // errors go to stderr
  CHECK_FALSE(contains(outcome.err, "bug in xformer"));
}

}  // namespace xformer::program_test
