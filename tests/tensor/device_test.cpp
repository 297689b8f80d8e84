// Names of devices, and what a machine says that lacks one.
#include "tensor/device.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <catch2/catch.hpp>

#include "core/error.h"
#include "scratch.h"
#include "tensor/cuda_backend.h"

namespace xformer {

TEST_CASE("device names: auto, cpu, cuda, cuda:N") {
  for (const char* name : {"auto", "cpu", "CPU", "cuda", "cuda:0", "cuda:7"}) CHECK_NOTHROW(check_device_name(name));
  for (const char* name : {"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", ""})
    CHECK_THROWS_AS(check_device_name(name), UserError);
  CHECK(scratch::message_of<UserError>([] { check_device_name("cdua"); }).find("did you mean 'cuda'") !=
        std::string::npos);
  CHECK(find_device("cpu").device.is_cpu());
}

// In this order: a plugin that opens stays open for the process.
TEST_CASE("CUDA is refused with what is missing and how to get it, and used when nothing is") {
  const auto message = [] { return scratch::message_of<ResourceError>([] { (void)find_device("cuda"); }); };
  const auto holds = [](const std::string& text, const std::string& part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  {
    const scratch::Variable plugin("XFORMER_CUDA_PLUGIN", "/nowhere/libxformer_cuda.so");
    holds(message(), "/nowhere/libxformer_cuda.so");
    holds(message(), "scripts/setup --cuda");
  }
  const scratch::Folder folder;
  {
    const scratch::Variable plugin("XFORMER_CUDA_PLUGIN", scratch::put(folder / "text.so", "no library").c_str());
    holds(message(), "cannot be loaded");
  }
  const scratch::Variable plugin("XFORMER_CUDA_PLUGIN", XFORMER_FAKE_PLUGIN);
  {
    const scratch::Variable id("FAKE_ID", "xformer 0.0 other with LibTorch 1.13");
    holds(message(), "was built for xformer 0.0 other with LibTorch 1.13");
    holds(message(), cuda_build_id());
  }
  const scratch::Variable id("FAKE_ID", cuda_build_id().c_str());
  {
    const scratch::Variable reason("FAKE_NO_DEVICE", "no CUDA-capable device is detected");
    holds(message(), "no CUDA-capable device is detected; train with --device cpu");
  }
  {
    const scratch::Variable old("FAKE_CAPABILITY", "7.5");
    holds(message(), "cuda:0 (fake) has compute capability 7.5; 8.0 or later is needed");
    holds(message(), "train with --device cpu");
  }
  {
    const scratch::Variable left("FAKE_AVAILABLE", "150000000");
    holds(message(), "cuda:0 (fake) has 150 MB of memory left: other processes hold the rest");
    holds(message(), "take another --device cuda:N");
  }
  // What CUDA answers on a full device, before anything can be asked of it, and where another process has it alone.
  const auto refused = [&](const char* variable, const char* code, const char* words) {
    const scratch::Variable error(variable, code);
    holds(message(), fmt::format("CUDA: cuda:0 (fake) {}", words));
    holds(message(), "take another --device cuda:N");
    holds(message(), "train with --device cpu");
    const FoundDevice found = find_device("auto");
    CHECK(found.device.is_cpu());
    holds(found.note,
          fmt::format("computing on the CPU; this machine has an NVIDIA driver, but CUDA: cuda:0 (fake) {}", words));
    holds(found.note, "nvidia-smi");
  };
  for (const char* variable : {"FAKE_ACTIVATE_ERROR", "FAKE_AVAILABLE_ERROR"}) {
    refused(variable, "2", "has no memory left to begin with: other processes hold it (nvidia-smi names them)");
    refused(variable, "46", "is taken: other processes hold it");
    const scratch::Variable error(variable, "802");  // the system is not ready
    holds(message(), "the device failed: CUDA error: fake; take another --device cuda:N, or train with --device cpu");
    CHECK(find_device("auto").device.is_cpu());
  }
  {
    const scratch::Variable error("FAKE_ACTIVATE_ERROR", "719");  // of no other process, and not the machine's
    CHECK_THROWS_AS(find_device("cuda"), InternalError);
    CHECK_THROWS_AS(find_device("auto"), InternalError);
  }
  CHECK(find_device("auto").device.str() == "cuda:0");
  for (const char* enough : {"8.0", "8.6", "9.0", "12.0"}) {
    const scratch::Variable capability("FAKE_CAPABILITY", enough);
    CHECK(find_device("cuda:0").device.str() == "cuda:0");
  }
  const at::Device second = find_device("cuda:1").device;
  CHECK(second.str() == "cuda:1");
  holds(scratch::message_of<ResourceError>([] { (void)find_device("cuda:9"); }),
        "there is no device cuda:9; this machine has cuda:0 to cuda:1");
  CHECK(device_memory(second).live_bytes == 101);
  CHECK(device_energy(second) == 8.0);
  CHECK(hardware_facts(second)["gpu"]["name"] == "fake");
}

TEST_CASE("computing is deterministic unless it is switched off") {
  const char* const name = "CUBLAS_WORKSPACE_CONFIG";
  const int threads = at::get_num_threads();
  const auto settings = [&](bool deterministic) {
    ComputeOptions options;
    CHECK(options.deterministic);  // the default
    options.threads = threads;
    options.deterministic = deterministic;
    configure_compute(options);
    CHECK(at::globalContext().deterministicAlgorithms() == deterministic);
    CHECK_FALSE(at::globalContext().deterministicAlgorithmsWarnOnly());
    CHECK_FALSE(at::globalContext().deterministicFillUninitializedMemory());
    CHECK(at::globalContext().benchmarkCuDNN() != deterministic);
    const char* const workspace = std::getenv(name);
    return std::string(workspace == nullptr ? "" : workspace);
  };
  {
    const scratch::Variable unset(name, nullptr);
    CHECK(settings(false).empty());
    CHECK(settings(true) == ":4096:8");
  }
  const scratch::Variable own(name, ":16:8");
  CHECK(settings(true) == ":16:8");
  CHECK(settings(false) == ":16:8");
}

TEST_CASE("on the CPU, device memory is the counting allocator's and there is no energy counter") {
  CHECK(device_memory(at::kCPU).live_bytes == host_memory().live_bytes);
  CHECK_FALSE(device_energy(at::kCPU).has_value());
  CHECK_NOTHROW(synchronize(at::kCPU));
  CHECK(hardware_facts(at::kCPU)["device"] == "cpu");
  CHECK_FALSE(hardware_facts(at::kCPU).contains("gpu"));
  CHECK(cuda_build_id().find("LibTorch 2.") != std::string::npos);
}

}  // namespace xformer
