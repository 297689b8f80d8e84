#include "tensor/device.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <sched.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <torch/version.h>

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <limits>

#include "core/code_version.h"
#include "core/error.h"
#include "core/names.h"
#include "tensor/cuda_backend.h"
#include "tensor/torch_errors.h"

namespace xformer {

int64_t usable_processors() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

int64_t threads_of_environment() {
  const char* const text = std::getenv("OMP_NUM_THREADS");
  if (text == nullptr) return 0;
  int64_t threads = 0;
  const std::string_view first = std::string_view(text).substr(0, std::string_view(text).find(','));
  const auto [end, error] = std::from_chars(first.data(), first.data() + first.size(), threads);
  return error == std::errc() && end == first.data() + first.size() && threads >= 1 ? threads : 0;
}

namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

// "cuda:N" -> N, "cuda" -> 0; nullopt for another word.
std::optional<int> cuda_index(const std::string& name) {
  if (name == "cuda") return 0;
  int index = 0;
  if (!name.starts_with("cuda:")) return std::nullopt;
  const auto [end, error] = std::from_chars(name.data() + 5, name.data() + name.size(), index);
  if (error != std::errc() || end != name.data() + name.size() || index < 0) return std::nullopt;
  return index;
}

// The driver's library is what a machine with a GPU has and others lack.
bool has_driver() {
  void* const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library != nullptr) dlclose(library);
  return library != nullptr;
}

// What cmake/CudaPlugin.cmake compiles for at least.
constexpr int kLeastGeneration = 8;

// With less, not even the smallest model and the libraries' own memory fit.
constexpr int64_t kLeastMemory = 200'000'000;

// "8.6" -> 8; 0 for what is no version.
int compute_generation(const std::string& capability) {
  int generation = 0;
  std::from_chars(capability.data(), capability.data() + capability.size(), generation);
  return generation;
}

constexpr const char* kWhatToDo = "wait for them, take another --device cuda:N, or train with --device cpu";

// Makes the device the calling thread's and returns the bytes left there. `who`: its number and name. What CUDA keeps
// there for every process takes some hundred MB, so a device that others have filled refuses already this.
int64_t memory_left(CudaBackend& backend, int index, const std::string& who) {
  try {
    backend.activate(index);
    return backend.available(index);
  } catch (const c10::AcceleratorError& error) {
    constexpr int32_t kNoMemory = 2, kTaken = 46;
    XF_CHECK(error.get_error_code() != kNoMemory, ResourceError,
             "CUDA: {} has no memory left to begin with: other processes hold it (nvidia-smi names them); {}", who,
             kWhatToDo);
    XF_CHECK(
        error.get_error_code() != kTaken, ResourceError,
        "CUDA: {} is taken: other processes hold it, or its compute mode lets nobody in (nvidia-smi shows both); {}",
        who, kWhatToDo);
    rethrow_translated("take another --device cuda:N, or train with --device cpu");
  }
}

// What stands before the devices of CUDA; ResourceError where `index` is none of them.
CudaBackend& backend_with(int index) {
  CudaBackend& backend = cuda_backend();
  const std::string reason = backend.no_device_reason();
  XF_CHECK(reason.empty(), ResourceError, "CUDA: there is no usable device: {}; train with --device cpu", reason);
  const int count = backend.device_count();
  const std::string others = count > 1 ? fmt::format(" to cuda:{}", count - 1) : "";
  XF_CHECK(index < count, ResourceError, "CUDA: there is no device cuda:{}; this machine has cuda:0{}", index, others);
  return backend;
}

at::Device activated_cuda(int index) {
  CudaBackend& backend = backend_with(index);
  const Json facts = backend.facts(index);
  const std::string who = fmt::format("cuda:{} ({})", index, facts.value("name", "?"));
  const std::string capability = facts.value("compute_capability", "");
  XF_CHECK(compute_generation(capability) >= kLeastGeneration, ResourceError,
           "CUDA: {} has compute capability {}; {}.0 or later is needed (Ampere, 2020); train with --device cpu", who,
           capability, kLeastGeneration);
  const int64_t left = memory_left(backend, index, who);
  XF_CHECK(left >= kLeastMemory, ResourceError,
           "CUDA: {} has {} MB of memory left: other processes hold the rest (nvidia-smi names them); {}", who,
           left / 1'000'000, kWhatToDo);
  return {at::kCUDA, static_cast<at::DeviceIndex>(index)};
}

}  // namespace

void check_device_name(const std::string& name) {
  const std::string wanted = canonical_name(name);
  const std::vector<std::string> names{"auto", "cpu", "cuda", "cuda:0"};
  XF_CHECK(wanted == "auto" || wanted == "cpu" || cuda_index(wanted), UserError, "--device: {}",
           unknown_name_message("device", name, names));
}

void require_device(const std::string& name) {
  if (const auto index = cuda_index(canonical_name(name))) static_cast<void>(backend_with(*index));
}

FoundDevice find_device(const std::string& name) {
  check_device_name(name);
  const std::string wanted = canonical_name(name);
  if (const auto index = cuda_index(wanted)) return {activated_cuda(*index), ""};
  if (wanted == "cpu" || !has_driver()) return {};
  try {
    return {activated_cuda(0), ""};
  } catch (const ResourceError& error) {
    return {at::kCPU, fmt::format("computing on the CPU; this machine has an NVIDIA driver, but {}", error.what())};
  }
}

void configure_compute(const ComputeOptions& options) {
  int64_t threads = options.threads;
  if (threads == 0) threads = threads_of_environment();
  if (threads == 0) threads = usable_processors();
  at::set_num_threads(static_cast<int>(threads));
  at::globalContext().setDeterministicAlgorithms(options.deterministic, /*warn_only=*/false);
  // Filling fresh memory with NaN, on by default in deterministic mode, would cost a pass over every tensor.
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  // cuBLAS keeps its order of summation only with a workspace of fixed size, and reads this when it starts.
  if (options.deterministic) setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::globalContext().setBenchmarkCuDNN(!options.deterministic);
}

MemoryUse device_memory(const at::Device& device) {
  return device.is_cuda() ? cuda_backend().memory(device.index()) : host_memory();
}

void reset_device_peak(const at::Device& device) {
  if (device.is_cuda()) cuda_backend().reset_peak(device.index());
  else reset_host_peak();
}

void release_device_memory(const at::Device& device) {
  if (device.is_cuda()) cuda_backend().release_cached(device.index());
  else release_cached_memory();
}

namespace {

// The number in a file of the system that holds one, or nothing ("max", no such file).
std::optional<int64_t> number_in(const char* path) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

int64_t available_host_memory() {
  std::ifstream file("/proc/meminfo");
  int64_t available = std::numeric_limits<int64_t>::max();
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("MemAvailable:")) available = std::stoll(line.substr(line.find(':') + 1)) * 1024;
  const auto limit = number_in("/sys/fs/cgroup/memory.max"), used = number_in("/sys/fs/cgroup/memory.current");
  if (limit && used) available = std::min(available, *limit - *used);
  const MemoryUse own = host_memory();
  return available + own.reserved_bytes - own.live_bytes;
}

}  // namespace

int64_t available_memory(const at::Device& device) {
  return device.is_cuda() ? cuda_backend().available(device.index()) : available_host_memory();
}

void synchronize(const at::Device& device) {
  if (device.is_cuda()) cuda_backend().synchronize(device.index());
}

void hold(const at::Device& device, double seconds) {
  if (device.is_cuda()) cuda_backend().hold(device.index(), seconds);
}

std::optional<double> device_energy(const at::Device& device) {
  return device.is_cuda() ? cuda_backend().energy(device.index()) : std::nullopt;
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
  Json facts{{"device", device.str()},
             {"processor", processor_name()},
             {"processors", usable_processors()},
             {"threads", at::get_num_threads()},
             {"memory_bytes", static_cast<uint64_t>(memory.totalram) * memory.mem_unit},
             {"system", std::string(system.sysname) + " " + system.release},
             {"cpu_capability", at::get_cpu_capability()}};
  if (device.is_cuda()) facts["gpu"] = cuda_backend().facts(device.index());
  return facts;
}

}  // namespace xformer
