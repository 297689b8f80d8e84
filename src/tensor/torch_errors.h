// LibTorch's exceptions in the project's kinds, at the boundary where training calls it.
#pragma once

namespace xformer {

// To be called in a catch block: throws the current exception again, memory that is lacking as ResourceError, any
// other of LibTorch's as InternalError; the project's own pass through.
[[noreturn]] void rethrow_translated();

}  // namespace xformer
