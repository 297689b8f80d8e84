// The program that people start: it answers what asks only about names and records, without LibTorch, and lets the
// engine take the process over for everything else.
#pragma once

namespace xformer::cli {

// Expects `xformer-engine` and `catalogue.json` beside the running program.
int run_front(int argc, char** argv);

}  // namespace xformer::cli
