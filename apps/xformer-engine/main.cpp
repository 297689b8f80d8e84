// The program that computes; xformer starts it where LibTorch is needed.
#include "engine/engine.h"

int main(int argc, char** argv) { return xformer::engine::run_engine(argc, argv); }
