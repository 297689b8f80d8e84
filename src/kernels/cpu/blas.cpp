#include "kernels/cpu/blas.h"

#include <ATen/Context.h>

#include <cstdlib>
#include <string_view>

namespace xformer::kernels {

bool blas_has_512() {
#if defined(__x86_64__) && defined(__GNUC__)
  static const bool has = [] {
    const char* const most = std::getenv("MKL_ENABLE_INSTRUCTIONS");
    return at::hasMKL() && __builtin_cpu_is("intel") && __builtin_cpu_supports("avx512f") &&
           (most == nullptr || std::string_view(most).starts_with("AVX512"));
  }();
  return has;
#else
  return false;
#endif
}

}  // namespace xformer::kernels
