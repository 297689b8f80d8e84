// LibTorch's exceptions in the project's kinds, at the boundaries where the program calls it.
#pragma once

#include <string>

namespace xformer {

// To be called in a catch block: throws the current exception again, memory that is lacking as OutOfMemory, a device
// that failed as ResourceError, any other of LibTorch's as InternalError; the project's own pass through. `next` stands
// at the end of every message made here: what is left of the caller's work, and what to do. `smaller`: what needs less
// memory when it is.
[[noreturn]] void rethrow_translated(const std::string& next = "", const std::string& smaller = "batch");

}  // namespace xformer
