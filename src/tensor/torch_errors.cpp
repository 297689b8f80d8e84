#include "tensor/torch_errors.h"

#include <c10/util/Exception.h>

#include <filesystem>
#include <new>
#include <string>

#include "core/error.h"

namespace xformer {

namespace {

// Some of LibTorch's own words begin with it.
OutOfMemory out_of_memory(const std::string& text) {
  const bool said = text.find("out of memory") != std::string::npos;
  return OutOfMemory(fmt::format("{}{}; a smaller --micro-batch needs less", said ? "" : "out of memory: ", text));
}

}  // namespace

void rethrow_translated() {
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const c10::OutOfMemoryError& error) {
    throw out_of_memory(error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    throw OutOfMemory("out of memory on the host; a smaller --micro-batch needs less");
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    if (text.find("DefaultCPUAllocator") != std::string::npos || text.find("out of memory") != std::string::npos)
      throw out_of_memory(text);
    throw InternalError(fmt::format("LibTorch: {}", text));
  } catch (const std::filesystem::filesystem_error& error) {
    throw ResourceError(error.what());
  } catch (const std::exception& error) {
    throw InternalError(error.what());
  }
}

}  // namespace xformer
