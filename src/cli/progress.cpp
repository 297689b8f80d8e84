// Progress on a terminal or in a pipe. Each change is one write call, so that lines of other programs on the
// same terminal do not land inside it.
#include "cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <mutex>

#include <fmt/format.h>

#include "core/text.h"

namespace xformer::cli {
namespace {

constexpr std::string_view kEraseLine = "\r\x1b[2K";
constexpr std::string_view kBarColour = "\x1b[32m";
constexpr std::string_view kColourEnd = "\x1b[0m";
constexpr double kRedrawSeconds = 0.05;  // faster than the eye, slow enough for a slow terminal
constexpr int kBarColumns = 20, kNarrowBarColumns = 8;
constexpr int kWide = 100;               // windows with room for the long bar
constexpr double kPatientSeconds = 600;  // after which a pipe's lines come ever more slowly
constexpr int kDefaultWidth = 80;
constexpr int kNarrowest = 10;           // what a window reports while it is being made may be 1 or 2
constexpr uint32_t kFirstWide = 0x1100;  // code points from here on may take two columns

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int window_width(int descriptor) {
  winsize size{};
  return ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::string_view environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view{value};
}

struct Clipped {
  std::string text;
  int columns = 0;
};

// At most `limit` columns of one line. Control characters would move the cursor and become '?'; a character
// that may be wide counts as two columns, which errs on the short side.
Clipped clip(std::string_view text, int limit) {
  Clipped result;
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const size_t announced = byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
    const size_t length = std::min(announced, text.size() - i);
    const bool control =
        byte < 0x20 || byte == 0x7F || (byte == 0xC2 && length == 2 && static_cast<unsigned char>(text[i + 1]) < 0xA0);
    // The first code point of three bytes is U+0800, so the second byte decides for 0xE1.
    const bool wide = byte > 0xE1 || (byte == 0xE1 && length > 1 &&
                                      static_cast<unsigned char>(text[i + 1]) >= 0x80 + ((kFirstWide >> 6) & 0x3F));
    const int columns = wide ? 2 : 1;
    if (result.columns + columns > limit) break;
    if (control) result.text += '?';
    else result.text += text.substr(i, length);
    result.columns += columns;
    i += length;
  }
  return result;
}

// Without a part that the limit cuts.
std::string clip_to_parts(std::string_view text, int limit) {
  std::string clipped = clip(text, limit).text;
  const size_t last = clipped.rfind("  ");
  const std::string_view rest = text.substr(clipped.size());
  const bool whole = rest.empty() || rest.starts_with("  ") || (rest.starts_with(' ') && clipped.ends_with(' '));
  if (!whole && last != std::string::npos) clipped.resize(last);
  return clipped;
}

}  // namespace

double TerminalOptions::plain_interval_after(double seconds) const {
  return plain_interval_seconds * std::max(1.0, seconds / kPatientSeconds);
}

TerminalOptions terminal_options(int descriptor) {
  TerminalOptions options;
  options.is_terminal = ::isatty(descriptor) == 1 && environment("TERM") != "dumb";
  options.colour = options.is_terminal && environment("NO_COLOR").empty();
  options.width = window_width(descriptor);
  if (options.width <= 0) {
    const std::string_view columns = environment("COLUMNS");
    std::from_chars(columns.data(), columns.data() + columns.size(), options.width);
  }
  if (options.width <= 0) options.width = kDefaultWidth;
  return options;
}

struct ProgressLine::State {
  State(TerminalOptions with, int to) : options(with), descriptor(to) {}

  // What cannot be shown is not worth ending the work for: errors of the descriptor are ignored.
  void write(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return;
      bytes.remove_prefix(static_cast<size_t>(written));
    }
  }

  [[nodiscard]] std::string drawn() const {
    // A window may have been resized since the start. Its last column stays free: writing there makes some
    // terminals begin a new line.
    const int window = window_width(descriptor);
    const int limit = std::max(window > 0 ? window : options.width, kNarrowest) - 1;
    std::string line{kEraseLine};
    int left = limit;
    if (fraction >= 0 && fraction <= 1 && limit >= 2 * kBarColumns) {
      const int columns = limit >= kWide ? kBarColumns : kNarrowBarColumns;
      const int full = static_cast<int>(fraction * columns);
      if (options.colour) line += kBarColour;
      line += fmt::format("[{:<{}}]", std::string(static_cast<size_t>(full), '='), columns);
      if (options.colour) line += kColourEnd;
      line += ' ';
      left -= columns + 3;
    }
    return line + clip_to_parts(text, left);
  }

  // Leaves the state shown whatever was suppressed before, and the cursor on a fresh line.
  void finish() {
    if (active && options.is_terminal) write(drawn() + "\n");
    else if (active && text != last_plain) write(text + "\n");
    active = false;
    last_time = -1;
    last_plain.clear();
  }

  TerminalOptions options;
  int descriptor;
  std::mutex mutex;  // messages may come from threads that load data
  std::string text, last_plain;
  double fraction = -1;
  double first_time = -1, last_time = -1;
  bool active = false;  // a progress line stands on the terminal, or was begun in a pipe
};

ProgressLine::ProgressLine(TerminalOptions options, int descriptor)
    : state_(std::make_unique<State>(options, descriptor)) {}

ProgressLine::~ProgressLine() { finish(); }

void ProgressLine::update(std::string_view text, double fraction, bool force) {
  const std::lock_guard lock(state_->mutex);
  State& state = *state_;
  state.text = clip(text, std::numeric_limits<int>::max()).text;
  state.fraction = fraction;
  state.active = true;
  const double now = now_seconds();
  if (state.first_time < 0) state.first_time = now;
  const double interval =
      state.options.is_terminal ? kRedrawSeconds : state.options.plain_interval_after(now - state.first_time);
  if (!force && state.last_time >= 0 && now - state.last_time < interval) return;
  state.last_time = now;
  if (state.options.is_terminal) {
    state.write(state.drawn());
  } else {
    state.last_plain = state.text;
    state.write(state.text + "\n");
  }
}

void ProgressLine::print(std::string_view line) {
  const std::lock_guard lock(state_->mutex);
  const bool redraw = state_->active && state_->options.is_terminal;
  std::string bytes = redraw ? std::string{kEraseLine} : std::string{};
  bytes += line;
  bytes += '\n';
  if (redraw) bytes += state_->drawn();
  // In a pipe a line that stays supersedes the state held back: it is not told after the fact.
  if (!state_->options.is_terminal) state_->last_plain = state_->text;
  state_->write(bytes);
}

void ProgressLine::clear() {
  const std::lock_guard lock(state_->mutex);
  if (state_->active && state_->options.is_terminal) state_->write(kEraseLine);
  state_->active = false;
}

void ProgressLine::finish() {
  const std::lock_guard lock(state_->mutex);
  state_->finish();
}

ProgressCallback progress_callback(ProgressLine& line) {
  struct Stage {
    std::string what;
    Eta eta;
    double start = 0;
    uint64_t first_done = 0;
    bool ended = false;
  };
  return [&line, stage = std::make_shared<Stage>()](std::string_view what, uint64_t done, uint64_t total) {
    const double now = now_seconds();
    const bool begins = stage->start == 0 || what != stage->what;
    if (begins) {
      if (stage->start != 0 && !stage->ended) line.finish();
      *stage = Stage{std::string(what), Eta{}, now, done, false};
    }
    if (stage->ended) return;
    stage->eta.update(static_cast<double>(done), static_cast<double>(total), now);

    std::string text = fmt::format("{}  {}/{}", what, format_count(done), format_count(total));
    const double seconds = now - stage->start;
    if (seconds > 0 && done > stage->first_done) {
      const double rate = static_cast<double>(done - stage->first_done) / seconds;
      text += rate >= 10 ? fmt::format("  {}/s", format_count(static_cast<uint64_t>(rate)))
                         : fmt::format("  {:.2g}/s", rate);
    }
    stage->ended = done >= total;
    if (stage->ended) text += fmt::format("  {}", format_duration(seconds));
    else if (stage->eta.seconds_left() >= 0)
      text += fmt::format("  {} left", format_duration(stage->eta.seconds_left()));
    line.update(text, total > 0 ? static_cast<double>(done) / static_cast<double>(total) : -1, begins || stage->ended);
    if (stage->ended) line.finish();
  };
}

void Eta::update(double done, double total, double now_seconds) {
  // The first call sets where the clock starts: a resumed run begins with work already done.
  if (first_done_ < 0 || done < first_done_) {
    first_done_ = done;
    first_time_ = now_seconds;
    left_ = -1;
  }
  const double rate = (done - first_done_) / (now_seconds - first_time_);
  if (done >= total) left_ = 0;
  else if (std::isfinite(rate) && rate > 0) left_ = (total - done) / rate;
}

double Eta::seconds_left() const { return left_; }

}  // namespace xformer::cli
