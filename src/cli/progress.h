// What a person sees while the program works: one line that renews itself on a terminal, one plain line
// per interval in a pipe. Colours only on a terminal and never under NO_COLOR (no-color.org).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/progress_callback.h"

namespace xformer::cli {

struct TerminalOptions {
  bool is_terminal = false;
  bool colour = false;
  int width = 80;
  double plain_interval_seconds = 10;  // how often a pipe gets a line, of the first minutes

  // The same of work that has gone on for some seconds: the log of a day is not longer than people read.
  [[nodiscard]] double plain_interval_after(double seconds) const;
};
// Looks at the file descriptor, $NO_COLOR, $TERM ("dumb" is no terminal) and the window's width.
[[nodiscard]] TerminalOptions terminal_options(int descriptor);

// One line of progress, on stderr unless told otherwise.
class ProgressLine {
 public:
  explicit ProgressLine(TerminalOptions options, int descriptor = 2);
  ~ProgressLine();  // ends the line
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  // `text` is the state in words; `fraction` in [0, 1] draws a bar on a terminal. Parts are separated by two blanks,
  // the weightiest first: one that a narrow window has no room for is left out whole, with all behind it. In a pipe
  // the line is printed when the interval has passed since the last one, or when `force` is set.
  void update(std::string_view text, double fraction, bool force = false);
  // A line that stays (a message, an evaluation); the progress line is redrawn after it.
  void print(std::string_view line);
  void finish();
  // Takes the line away: what it told is over.
  void clear();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A callback that draws "what  done/total" with rate and time left on a ProgressLine.
[[nodiscard]] ProgressCallback progress_callback(ProgressLine& line);

// Seconds left from the rate so far; for "12m left".
class Eta {
 public:
  void update(double done, double total, double now_seconds);
  [[nodiscard]] double seconds_left() const;  // negative while unknown

 private:
  double first_done_ = -1, first_time_ = 0, left_ = -1;
};

}  // namespace xformer::cli
