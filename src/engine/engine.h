// All of the program, LibTorch included: what the program that people start hands over to (cli/front.h).
#pragma once

namespace xformer::engine {

int run_engine(int argc, char** argv);

}  // namespace xformer::engine
