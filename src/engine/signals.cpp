#include "engine/signals.h"

#include <unistd.h>
#include <csignal>

#include "core/error.h"

namespace xformer::engine {

namespace {

volatile std::sig_atomic_t stop_signal = 0;

// Only what is allowed in a handler: a flag, write(2) and _exit(2).
void on_signal(int signal) {
  if (stop_signal != 0 && signal == SIGINT) _exit(static_cast<int>(ExitCode::kInterrupted));
  stop_signal = signal;
  constexpr char kMessage[] = "\nstopping after this step (Ctrl-C again: stop now)\n";
  static_cast<void>(!write(STDERR_FILENO, kMessage, sizeof kMessage - 1));
}

}  // namespace

void catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool stop_signal_came() { return stop_signal != 0; }

}  // namespace xformer::engine
