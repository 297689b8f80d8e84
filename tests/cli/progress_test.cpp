// What arrives at the other end of a pipe and of a pseudo-terminal.
#include <catch2/catch.hpp>

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "cli/progress.h"

namespace {

using namespace xformer::cli;

// Two ends: what is written to `in` is read from `out`.
struct Channel {
  int out = -1, in = -1;
  Channel(int reader, int writer) : out(reader), in(writer) {}
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel() {
    ::close(out);
    ::close(in);
  }
  // All that was written so far.
  [[nodiscard]] std::string text() const {
    std::string all;
    std::array<char, 4096> buffer{};
    for (pollfd ready{out, POLLIN, 0}; ::poll(&ready, 1, 0) > 0 && (ready.revents & POLLIN) != 0;) {
      const ssize_t count = ::read(out, buffer.data(), buffer.size());
      if (count <= 0) break;
      all.append(buffer.data(), static_cast<size_t>(count));
    }
    return all;
  }
};

struct Pipe : Channel {
  explicit Pipe(std::array<int, 2> ends = open()) : Channel(ends[0], ends[1]) {}
  static std::array<int, 2> open() {
    std::array<int, 2> ends{};
    REQUIRE(::pipe(ends.data()) == 0);
    return ends;
  }
};

struct Terminal : Channel {
  explicit Terminal(unsigned short columns) : Terminal(open(), columns) {}
  void resize(unsigned short columns) const {
    const winsize size{24, columns, 0, 0};
    REQUIRE(::ioctl(in, TIOCSWINSZ, &size) == 0);
  }

 private:
  Terminal(std::array<int, 2> ends, unsigned short columns) : Channel(ends[0], ends[1]) { resize(columns); }
  static std::array<int, 2> open() {
    const int controller = ::posix_openpt(O_RDWR | O_NOCTTY);
    REQUIRE(controller >= 0);
    REQUIRE(::grantpt(controller) == 0);
    REQUIRE(::unlockpt(controller) == 0);
    std::array<char, 64> name{};
    REQUIRE(::ptsname_r(controller, name.data(), name.size()) == 0);
    const int end = ::open(name.data(), O_RDWR | O_NOCTTY);
    REQUIRE(end >= 0);
    return {controller, end};
  }
};

// Sets a variable of the environment, or removes it, until the end of the scope.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* const old = std::getenv(name)) old_ = old;
    if (value != nullptr) ::setenv(name, value, 1);
    else ::unsetenv(name);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() {
    if (old_) ::setenv(name_, old_->c_str(), 1);
    else ::unsetenv(name_);
  }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

struct Screen {
  std::vector<std::string> lines{""};
  size_t widest = 0;
};

// The few controls a progress line may use, played on an endless screen; columns count code points.
Screen play(const std::string& bytes) {
  Screen screen;
  size_t column = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const char byte = bytes[i];
    if (byte == '\n') {
      screen.lines.emplace_back();
      column = 0;
    } else if (byte == '\r') {
      column = 0;
    } else if (byte == '\x1b') {
      const size_t end = bytes.find_first_of("Km", i);
      REQUIRE(end != std::string::npos);
      if (bytes[end] == 'K') screen.lines.back().clear();
      i = end;
    } else {
      if (column == 0) screen.lines.back().clear();
      if ((byte & 0xC0) != 0x80) ++column;
      screen.lines.back() += byte;
      screen.widest = std::max(screen.widest, column);
    }
  }
  return screen;
}

TerminalOptions pipe_options(double interval) { return {false, false, 80, interval}; }

}  // namespace

TEST_CASE("a pipe gets whole plain lines, one per interval and each forced one") {
  const Pipe pipe;
  {
    ProgressLine line(pipe_options(1e9), pipe.in);
    line.update("step 1", 0.1);
    line.update("step 2", 0.2);
    line.update("step 3", 0.3, true);
    line.print("dev accuracy 0.4");
    line.update("step 4", 0.4);
    line.update("step 5", 0.5);
  }
  CHECK(pipe.text() == "step 1\nstep 3\ndev accuracy 0.4\nstep 5\n");
}

TEST_CASE("a pipe gets every line when the interval is zero and none twice") {
  const Pipe pipe;
  ProgressLine line(pipe_options(0), pipe.in);
  line.update("a", 0);
  line.update("b", 0);
  line.finish();
  line.finish();
  CHECK(pipe.text() == "a\nb\n");
  line.update("c", 0);
  CHECK(pipe.text() == "c\n");
}

TEST_CASE("a terminal line is redrawn in place and never reaches the width") {
  const unsigned short width = GENERATE(as<unsigned short>{}, 12, 40, 79, 200);
  const bool colour = GENERATE(false, true);
  const Terminal terminal(width);
  ProgressLine line({true, colour, 80, 10}, terminal.in);
  std::string all;
  for (int step = 1; step <= 30; ++step) {
    line.update("step " + std::string(static_cast<size_t>(step) * 7, 'x') + "\n\t\x1b[7m é", step / 30.0, true);
    all += terminal.text();
  }
  const Screen screen = play(all);
  CHECK(screen.lines.size() == 1);
  CHECK(screen.widest < width);
  CHECK(screen.widest >= static_cast<size_t>(width) - 2);
  CHECK((all.find("\x1b[32m") != std::string::npos) == (colour && width >= 41));
  line.finish();
  CHECK(terminal.text().find('\n') != std::string::npos);
}

TEST_CASE("what a window has no room for is left out by whole parts, the time left not among them") {
  const std::string text =
      "step 4,990/5,000  1h53m left  loss 2.3081  accuracy 0.078  214.7 examples/s  62.9 MB tensors";
  const auto shown = [&](unsigned short width) {
    const Terminal terminal(width);
    ProgressLine line({true, false, 80, 10}, terminal.in);
    line.update(text, 0.5, true);
    return play(terminal.text()).lines.back();
  };
  CHECK(shown(80) == "[====    ] step 4,990/5,000  1h53m left  loss 2.3081  accuracy 0.078");
  CHECK(shown(60) == "[====    ] step 4,990/5,000  1h53m left  loss 2.3081");
  CHECK(shown(120) == "[==========          ] " + text);
}

TEST_CASE("a pipe's lines come ever more slowly") {
  const TerminalOptions options = pipe_options(10);
  CHECK(options.plain_interval_after(0) == 10);
  CHECK(options.plain_interval_after(600) == 10);
  CHECK(options.plain_interval_after(24 * 3600) == 24 * 60);
}

TEST_CASE("a shorter line leaves nothing of the longer one before it") {
  const Terminal terminal(80);
  ProgressLine line({true, false, 80, 10}, terminal.in);
  line.update("a rather long line", -1, true);
  line.update("short", -1, true);
  const std::string bytes = terminal.text();
  CHECK(play(bytes).lines.back() == "short");
  CHECK(bytes.find("\x1b[2K") != std::string::npos);
}

TEST_CASE("wide characters count twice and broken ones do no harm") {
  const Terminal terminal(12);
  ProgressLine line({true, false, 12, 10}, terminal.in);
  line.update("日本語日本語日本語", -1, true);
  CHECK(play(terminal.text()).lines.back() == "日本語日本");
  line.update("ok\xe6", -1, true);
  CHECK(play(terminal.text()).lines.back() == "ok\xe6");
  line.update("éééééééééééééééé", -1, true);
  CHECK(play(terminal.text()).lines.back() == "ééééééééééé");
}

TEST_CASE("a message stays above the progress line") {
  const Terminal terminal(80);
  ProgressLine line({true, false, 80, 10}, terminal.in);
  line.print("before");
  line.update("step 1", 0.5, true);
  line.print("dev accuracy 0.4");
  const Screen screen = play(terminal.text());
  REQUIRE(screen.lines.size() == 3);
  CHECK(screen.lines[0] == "before");
  CHECK(screen.lines[1] == "dev accuracy 0.4");
  CHECK(screen.lines[2] == "[====    ] step 1");
}

TEST_CASE("a line that was taken away leaves nothing, on a terminal or in a pipe") {
  const Terminal terminal(80);
  const Pipe pipe;
  {
    ProgressLine shown({true, false, 80, 10}, terminal.in), held_back(pipe_options(1000), pipe.in);
    for (ProgressLine* line : {&shown, &held_back}) {
      line->update("evaluating test  1/2 batches", 0.5);
      line->update("evaluating test  2/2 batches", 1);
      line->clear();
      line->print("test accuracy 0.4");
    }
  }
  const Screen screen = play(terminal.text());
  CHECK(screen.lines[0] == "test accuracy 0.4");
  for (size_t i = 1; i < screen.lines.size(); ++i) CHECK(screen.lines[i].empty());
  CHECK(pipe.text() == "evaluating test  1/2 batches\ntest accuracy 0.4\n");
}

TEST_CASE("a window that was resized is respected by the next redraw") {
  const Terminal terminal(60);
  ProgressLine line({true, false, 60, 10}, terminal.in);
  line.update(std::string(100, 'x'), -1, true);
  CHECK(play(terminal.text()).widest == 59);
  terminal.resize(30);
  line.update(std::string(100, 'x'), -1, true);
  CHECK(play(terminal.text()).widest == 29);
}

TEST_CASE("a fraction that says nothing draws no bar") {
  const Terminal terminal(80);
  ProgressLine line({true, false, 80, 10}, terminal.in);
  for (const double fraction : {-1.0, 1.5, std::nan("")}) {
    line.update("text", fraction, true);
    CHECK(play(terminal.text()).lines.back() == "text");
  }
}

TEST_CASE("only a terminal that is not dumb is one, and NO_COLOR turns colour off unless it is empty") {
  const Terminal terminal(97);
  const Pipe pipe;
  const Variable columns("COLUMNS", nullptr);
  {
    const Variable term("TERM", "xterm"), no_colour("NO_COLOR", nullptr);
    CHECK(terminal_options(terminal.in).is_terminal);
    CHECK(terminal_options(terminal.in).colour);
    CHECK(terminal_options(terminal.in).width == 97);
    CHECK_FALSE(terminal_options(pipe.in).is_terminal);
    CHECK_FALSE(terminal_options(pipe.in).colour);
    CHECK(terminal_options(pipe.in).width == 80);
  }
  {
    const Variable term("TERM", "xterm"), no_colour("NO_COLOR", "1");
    CHECK(terminal_options(terminal.in).is_terminal);
    CHECK_FALSE(terminal_options(terminal.in).colour);
  }
  {
    const Variable term("TERM", "xterm"), no_colour("NO_COLOR", "");
    CHECK(terminal_options(terminal.in).colour);
  }
  const Variable term("TERM", "dumb"), wide("COLUMNS", "123");
  CHECK_FALSE(terminal_options(terminal.in).is_terminal);
  CHECK(terminal_options(pipe.in).width == 123);
}

TEST_CASE("a callback writes what is done and closes each stage once") {
  const Pipe pipe;
  ProgressLine line(pipe_options(1e9), pipe.in);
  const xformer::ProgressCallback callback = progress_callback(line);
  callback("making examples", 0, 96'000);
  callback("making examples", 1, 96'000);
  callback("making examples", 96'000, 96'000);
  callback("making examples", 96'000, 96'000);
  callback("writing", 10, 20);
  callback("checking", 0, 0);
  std::istringstream text(pipe.text());
  std::vector<std::string> lines;
  for (std::string one; std::getline(text, one);) lines.push_back(one);
  REQUIRE(lines.size() == 4);
  CHECK_THAT(lines[0], Catch::StartsWith("making examples  0/96,000"));
  CHECK_THAT(lines[1], Catch::StartsWith("making examples  96,000/96,000") && Catch::Contains("/s"));
  CHECK_THAT(lines[2], Catch::StartsWith("writing  10/20"));
  CHECK_THAT(lines[3], Catch::StartsWith("checking  0/0"));
}

TEST_CASE("the time left follows from the rate since the first call, also of a resumed run") {
  Eta eta;
  CHECK(eta.seconds_left() < 0);
  eta.update(1000, 2000, 50);
  CHECK(eta.seconds_left() < 0);
  eta.update(1000, 2000, 60);
  CHECK(eta.seconds_left() < 0);
  eta.update(1100, 2000, 70);
  CHECK(eta.seconds_left() == Approx(180));  // 100 in 20 seconds, 900 to go
  eta.update(0, 2000, 80);
  CHECK(eta.seconds_left() < 0);  // begun again
  eta.update(2000, 2000, 81);
  CHECK(eta.seconds_left() == 0);
}
