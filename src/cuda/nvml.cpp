#include "cuda/nvml.h"

#include <dlfcn.h>

namespace xformer::cuda {

namespace {

// The three functions used, as NVML's reference manual declares them; 0 means success.
struct Nvml {
  using Device = struct Opaque*;
  int (*init)() = nullptr;
  int (*device_by_pci)(const char* address, Device* device) = nullptr;
  int (*total_energy)(Device device, unsigned long long* millijoules) = nullptr;
  bool usable = false;

  Nvml() {
    void* const library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) return;
    const auto bind = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    usable = bind(init, "nvmlInit_v2") && bind(device_by_pci, "nvmlDeviceGetHandleByPciBusId_v2") &&
             bind(total_energy, "nvmlDeviceGetTotalEnergyConsumption") && init() == 0;
  }
};

}  // namespace

std::optional<double> energy_joules(const std::string& pci_address) {
  static const Nvml kNvml;
  Nvml::Device device = nullptr;
  unsigned long long millijoules = 0;
  if (!kNvml.usable || kNvml.device_by_pci(pci_address.c_str(), &device) != 0 ||
      kNvml.total_energy(device, &millijoules) != 0)
    return std::nullopt;
  return static_cast<double>(millijoules) / 1000;
}

}  // namespace xformer::cuda
