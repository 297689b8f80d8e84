// SIGINT, SIGTERM, SIGHUP (a closed terminal) and SIGUSR1 (a queue's notice) become a question the training loop asks
// between steps.
#pragma once

namespace xformer::engine {

// From now on the first signal sets a flag; a SIGINT after it ends the process at once. A SIGHUP that was ignored stays
// so.
void catch_stop_signals();
[[nodiscard]] bool stop_signal_came();

}  // namespace xformer::engine
