// The program that people start: words in, exit code out.
#include "cli/front.h"

int main(int argc, char** argv) { return xformer::cli::run_front(argc, argv); }
