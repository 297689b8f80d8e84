// The program: parses words, runs one command, turns errors into messages and exit codes.
#pragma once

namespace xformer::cli {

[[nodiscard]] int run(int argc, char** argv);

}  // namespace xformer::cli
