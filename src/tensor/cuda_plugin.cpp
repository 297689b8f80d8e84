// Finds and opens libxformer_cuda.so.
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "core/error.h"
#include "tensor/cuda_backend.h"

namespace xformer {

namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "libxformer_cuda.so";

// $XFORMER_CUDA_PLUGIN alone, else beside the program (a build) and in ../lib (a package).
std::vector<fs::path> places() {
  if (const char* given = std::getenv("XFORMER_CUDA_PLUGIN"); given != nullptr && *given != '\0') return {given};
  std::error_code ignored;
  const fs::path folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  return {folder / kFile, folder.parent_path() / "lib" / kFile};
}

CudaBackend* open_plugin() {
  std::vector<std::string> looked;
  fs::path found;
  for (const fs::path& place : places()) {
    looked.push_back(place.string());
    std::error_code ignored;
    if (found.empty() && fs::exists(place, ignored)) found = place;
  }
  XF_CHECK(!found.empty(), ResourceError,
           "CUDA: this program has no {} (looked for {}); scripts/setup --cuda brings a CUDA compiler and builds it",
           kFile, fmt::join(looked, " and "));
  // Never closed: LibTorch registers operators and allocators that live as long as the process.
  void* const library = dlopen(found.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr)
    throw ResourceError(
        fmt::format("CUDA: {} cannot be loaded: {}; LibTorch's CUDA libraries come with scripts/setup --cuda",
                    found.string(), dlerror()));
  const auto symbol = [&](const char* name) {
    void* const address = dlsym(library, name);
    XF_CHECK(address != nullptr, ResourceError, "CUDA: {} is not this program's plugin: it has no {}", found.string(),
             name);
    return address;
  };
  const std::string theirs = reinterpret_cast<const char* (*)()>(symbol("xformer_cuda_build_id"))();
  const std::string ours = cuda_build_id();
  XF_CHECK(theirs == ours, ResourceError,
           "CUDA: {} was built for {}, this program is {}; scripts/setup --build-only builds both alike",
           found.string(), theirs, ours);
  return reinterpret_cast<CudaBackend* (*)()>(symbol("xformer_cuda_backend"))();
}

}  // namespace

CudaBackend& cuda_backend() {
  static CudaBackend* const kBackend = open_plugin();
  return *kBackend;
}

}  // namespace xformer
