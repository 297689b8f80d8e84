// SIGINT and SIGTERM become a question the training loop asks between steps.
#pragma once

namespace xformer::engine {

// From now on the first signal sets a flag; a second SIGINT ends the process at once.
void catch_stop_signals();
[[nodiscard]] bool stop_signal_came();

}  // namespace xformer::engine
