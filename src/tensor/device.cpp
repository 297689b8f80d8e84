#include "tensor/device.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <sched.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <torch/version.h>

#include <fstream>

#include "core/code_version.h"
#include "core/error.h"
#include "core/names.h"

namespace xformer {

namespace {

int64_t usable_processors() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

}  // namespace

at::Device find_device(const std::string& name) {
  const std::string wanted = canonical_name(name);
  if (wanted == "cpu" || wanted == "auto") return at::kCPU;
  XF_CHECK(wanted == "cuda", UserError, "--device: expected auto, cpu or cuda, got '{}'", name);
  throw ResourceError("--device cuda: this build has no CUDA part; train with --device cpu");
}

void configure_compute(const ComputeOptions& options) {
  at::set_num_threads(static_cast<int>(options.threads > 0 ? options.threads : usable_processors()));
  at::globalContext().setDeterministicAlgorithms(options.deterministic, /*warn_only=*/false);
  // Filling fresh memory with NaN, on by default in deterministic mode, would cost a pass over every tensor.
  at::globalContext().setDeterministicFillUninitializedMemory(false);
}

Json software_facts() {
  const CodeVersion& code = code_version();
  return {{"xformer", code.version},   {"commit", code.commit},     {"dirty", code.dirty},
          {"libtorch", TORCH_VERSION}, {"compiler", code.compiler}, {"build", code.build}};
}

Json hardware_facts(const at::Device& device) {
  utsname system{};
  uname(&system);
  struct sysinfo memory {};
  sysinfo(&memory);
  return {{"device", device.str()},
          {"processor", processor_name()},
          {"processors", usable_processors()},
          {"threads", at::get_num_threads()},
          {"memory_bytes", static_cast<uint64_t>(memory.totalram) * memory.mem_unit},
          {"system", std::string(system.sysname) + " " + system.release},
          {"cpu_capability", at::get_cpu_capability()}};
}

}  // namespace xformer
