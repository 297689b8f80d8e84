#include "engine/signals.h"

#include <unistd.h>
#include <csignal>

#include "core/error.h"

namespace xformer::engine {

namespace {

volatile std::sig_atomic_t stop_signal = 0;

template <size_t size>
void say(const char (&text)[size]) {
  static_cast<void>(!write(STDERR_FILENO, text, size - 1));
}

// Only what is allowed in a handler: a flag, write(2) and _exit(2).
void on_signal(int signal) {
  if (stop_signal != 0 && signal == SIGINT) {
    say("\nstopped at once: what was not saved is lost; the same command goes on from the last checkpoint, if any\n");
    _exit(static_cast<int>(ExitCode::kInterrupted));
  }
  stop_signal = signal;
  say("\nstopping after this step (Ctrl-C again: stop now)\n");
}

}  // namespace

void catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  ::signal(SIGPIPE, SIG_IGN);  // a reader of the output that ends does not end the work
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    // `nohup` ignores SIGHUP: the run is to outlive its terminal.
    if (signal != SIGHUP || before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
}

bool stop_signal_came() { return stop_signal != 0; }

}  // namespace xformer::engine
