// The program: words in, exit code out.
#include "cli/run.h"

int main(int argc, char** argv) { return xformer::cli::run(argc, argv); }
