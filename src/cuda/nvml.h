// Energy by NVML, the driver's own library, opened at run time: no header and no stub of it is needed to build.
#pragma once

#include <optional>
#include <string>

namespace xformer::cuda {

// Joules since the driver was loaded, of the device at this PCI address ("0000:3b:00.0"); nullopt where the library,
// the device or its counter is missing (before Volta). The counter moves every 20 to 100 ms.
[[nodiscard]] std::optional<double> energy_joules(const std::string& pci_address);

}  // namespace xformer::cuda
