#include "tensor/torch_errors.h"

#include <c10/util/Exception.h>

#include <filesystem>
#include <new>
#include <string>

#include "core/error.h"

namespace xformer {

void rethrow_translated() {
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const c10::OutOfMemoryError& error) {
    throw OutOfMemory(
        fmt::format("out of memory: {}; a smaller --micro-batch needs less", error.what_without_backtrace()));
  } catch (const std::bad_alloc&) {
    throw OutOfMemory("out of memory on the host; a smaller --micro-batch needs less");
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    if (text.find("DefaultCPUAllocator") != std::string::npos || text.find("out of memory") != std::string::npos)
      throw OutOfMemory(fmt::format("out of memory: {}; a smaller --micro-batch needs less", text));
    throw InternalError(fmt::format("LibTorch: {}", text));
  } catch (const std::filesystem::filesystem_error& error) {
    throw ResourceError(error.what());
  } catch (const std::exception& error) {
    throw InternalError(error.what());
  }
}

}  // namespace xformer
