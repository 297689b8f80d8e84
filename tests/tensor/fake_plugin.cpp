// A plugin that has no CUDA behind it: it says of itself and of its devices what the environment tells it to say. It
// also bears the name of the driver's library, by which `auto` knows a machine with a GPU.
#include <c10/util/Exception.h>

#include <cstdlib>

#include "tensor/cuda_backend.h"

namespace {

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// As LibTorch fails where a call of the CUDA runtime does: by the number that the variable has, if any.
void fail_as(const char* name) {
  const std::string code = environment(name);
  if (!code.empty())
    throw c10::AcceleratorError({__func__, __FILE__, 1}, std::stoi(code), "CUDA error: fake\nand how to debug it");
}

class FakeBackend : public xformer::CudaBackend {
 public:
  [[nodiscard]] std::string no_device_reason() const override { return environment("FAKE_NO_DEVICE"); }
  [[nodiscard]] int device_count() const override { return 2; }
  void activate(int) override { fail_as("FAKE_ACTIVATE_ERROR"); }
  void synchronize(int) override {}
  void hold(int, double) override {}
  [[nodiscard]] std::unique_ptr<xformer::Recording> record(const std::function<void()>&) override { return nullptr; }
  [[nodiscard]] xformer::MemoryUse memory(int index) const override { return {.live_bytes = 100 + index}; }
  void reset_peak(int) override {}
  [[nodiscard]] int64_t available(int index) const override {
    fail_as("FAKE_AVAILABLE_ERROR");
    const std::string left = environment("FAKE_AVAILABLE");
    return left.empty() ? 1'000'000'000 + index : std::stoll(left);
  }
  void release_cached(int) override {}
  [[nodiscard]] xformer::Json facts(int) const override {
    const std::string capability = environment("FAKE_CAPABILITY");
    return {{"name", "fake"}, {"compute_capability", capability.empty() ? "9.0" : capability}};
  }
  [[nodiscard]] std::optional<double> energy(int index) override { return 7.0 + index; }
};

}  // namespace

extern "C" {

const char* xformer_cuda_build_id() {
  static std::string id;
  id = environment("FAKE_ID");
  return id.c_str();
}

xformer::CudaBackend* xformer_cuda_backend() {
  static FakeBackend backend;
  return &backend;
}
}
