// How many blocks of each kernel a multiprocessor holds at once, by what launches ask for at ListOps' shape and by the
// registers that the assembler took.
#include "kernels/device/occupancy.h"

#include <cxxabi.h>

#include <ATen/Context.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "attention/support.h"
#include "device/walked_device.h"
#include "measure/bench.h"
#include "training/step.h"

namespace xformer::measure::device_occupancy_test {

namespace {

using kernels::LaunchPlan;

constexpr const char* kTable = XFORMER_SOURCE "/tests/device/occupancy.csv";

// Of a launch, and of an architecture.
struct Row {
  int threads = 0;
  int64_t registers[2] = {}, blocks[2] = {};
};
constexpr kernels::Multiprocessor kMultiprocessors[2] = {kernels::kSm80, kernels::kSm90};
using Kernel = std::pair<std::string, int64_t>;  // a program and the shared memory that it asks for

// "AttentionForwardProgram<(ProductKind)1 32>" of its type's name, or of that of the kernel that it is.
std::string readable(const std::string& name) {
  int status = 0;
  char* const text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string result = text != nullptr ? text : name;
  std::free(text);
  result = std::regex_replace(result, std::regex("^void .*run_program<(.*?) ?>\\(.*$"), "$1");
  for (const auto& [from, to] : {std::pair{"xformer::kernels::", ""},
                                 {", ", " "},
                                 {"c10::Half|__half", "half"},
                                 {"c10::BFloat16|__nv_bfloat16", "bfloat16"}})
    result = std::regex_replace(result, std::regex(from), to);
  return result;
}

// What a training step launches, with products in float and in TF32. One layer: they are all alike.
void add_plans(const std::string& model, const std::string& task, int64_t batch, const Json& values,
               std::set<LaunchPlan>& plans) {
  BenchOptions wanted;
  wanted.models = {model}, wanted.task = task;
  wanted.lengths = {2048}, wanted.batches = {batch};
  wanted.layers = {{"test", values}, {"test", {{"model.layers", 1}}}};
  const BenchCase one = bench_cases(wanted).front();
  const auto net = models::all_families().get(one.plan.family).build(one.request);
  net->to(kernels::kWalkedDevice);
  training::TrainStep step(*net, one.shape, plan::training_schema().read(one.plan.group("training")),
                           kernels::kWalkedDevice);
  const data::HostBatch host = bench_batch(one);
  for (const bool tf32 : {false, true}) {
    at::globalContext().setAllowTF32CuBLAS(tf32);
    step.run(host, tf32 ? 1 : 0, {1e-3, 0.9});
  }
  at::globalContext().setAllowTF32CuBLAS(false);
  plans.merge(kernels::take_device_work().plans);
}

// What a core launches, both ways, for heads in 16 bits.
void add_half_plans(const std::string& name, bool causal, int64_t width, std::set<LaunchPlan>& plans) {
  using namespace attention;
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const Json options = name.starts_with("mrs-") ? Json{{"scales", {1, 4}}} : Json::object();
    const support::Setup setup{
        .head_dim = width, .max_len = 2048, .causal = causal, .dropout = 0.1, .type = at::kFloat};
    const support::BuiltCore core = support::make_core(name, options, setup);
    core.module->to(kernels::kWalkedDevice), core.shared->to(kernels::kWalkedDevice);
    std::vector<at::Tensor> heads;
    for (const char* one : {"q", "k", "v"})
      heads.push_back(support::random_tensor(one, {2, 2, 2048, width}).to(type).to(kernels::kWalkedDevice));
    for (at::Tensor& one : heads) one.requires_grad_(true);
    SequenceMask mask;
    mask.causal = causal;
    core(heads[0], heads[1], heads[2], mask).sum().backward();
  }
  plans.merge(kernels::take_device_work().plans);
}

// Registers of each kernel on both architectures; empty where there was no compiler for CUDA.
std::map<std::string, std::array<int64_t, 2>> reported_registers() {
  std::map<std::string, std::array<int64_t, 2>> result;
  if (!std::filesystem::is_directory(XFORMER_CUDA_REPORTS)) return result;
  const std::regex entry("entry function '(.*)' for 'sm_(80|90)'"), used("Used ([0-9]+) registers");
  for (const auto& file : std::filesystem::recursive_directory_iterator(XFORMER_CUDA_REPORTS)) {
    if (file.path().extension() != ".ptxas") continue;
    std::ifstream in(file.path());
    int64_t* registers = nullptr;
    std::smatch found;
    for (std::string line; std::getline(in, line);) {
      if (std::regex_search(line, found, entry)) registers = &result[readable(found[1])][found[2] == "80" ? 0 : 1];
      else if (registers != nullptr && std::regex_search(line, found, used)) *registers = std::stoll(found[1]);
    }
  }
  return result;
}

std::map<Kernel, Row> read_table(std::string& compiler) {
  std::map<Kernel, Row> result;
  std::ifstream in(kTable);
  std::string line, name;
  std::getline(in, line);
  compiler = line.substr(0, line.find(','));
  while (std::getline(in, name, ',')) {
    Row one;
    int64_t shared = 0;
    char comma = 0;
    in >> one.threads >> comma >> shared;
    for (int64_t* const pair : {one.registers, one.blocks}) in >> comma >> pair[0] >> comma >> pair[1];
    std::getline(in, line);
    result[{name, shared}] = one;
  }
  return result;
}

}  // namespace

TEST_CASE("a multiprocessor's blocks end where threads, registers, shared memory or their number do") {
  using kernels::kSm80, kernels::kSm90, kernels::resident_blocks;
  CHECK(resident_blocks(kSm80, 256, 32, 0) == 8);   // 2,048 threads
  CHECK(resident_blocks(kSm80, 32, 16, 0) == 32);   // as many blocks as there may be
  CHECK(resident_blocks(kSm80, 128, 128, 0) == 4);  // 4,096 registers a warp, 4 warps in each part
  CHECK(resident_blocks(kSm80, 128, 129, 0) == 3);  // 4,352, which fit a part thrice
  CHECK(resident_blocks(kSm80, 128, 168, 0) == 3);  // the most for three
  CHECK(resident_blocks(kSm80, 128, 169, 0) == 2);
  CHECK(resident_blocks(kSm80, 256, 255, 0) == 1);
  CHECK(resident_blocks(kSm80, 512, 255, 0) == 0);
  CHECK(resident_blocks(kSm80, 128, 32, 81 * 1024) == 2);  // 82 KiB with the system's
  CHECK(resident_blocks(kSm80, 128, 32, 81 * 1024 + 1) == 1);
  CHECK(resident_blocks(kSm90, 128, 32, 75 * 1024) == 3);
  CHECK(resident_blocks(kSm90, 128, 32, 227 * 1024) == 1);
  CHECK(resident_blocks(kSm80, 128, 32, 227 * 1024) == 0);
}

// The table begins with its compiler's name. XFORMER_WRITE_BUDGET=1 writes the table anew, where there is a compiler
// for CUDA.
TEST_CASE("a multiprocessor holds as many blocks of each kernel as its budget says, at the shape of ListOps") {
  kernels::set_walk_order(std::nullopt);
  static_cast<void>(kernels::take_device_work());
  std::set<LaunchPlan> plans;
  for (const char* model : {"none", "softmax-fused", "linformer", "performer", "nystromformer", "longformer",
                            "bigbird-itc", "logsparse", "reformer", "entmax15", "mrs-linformer", "paramixer-chord",
                            "combiner-fixed", "combiner-axial-vertical", "additive", "clustered"})
    add_plans(model, "listops", 32, Json::object(), plans);
  for (const char* model : {"softmax-fused", "performer", "longformer", "logsparse", "reformer", "entmax15",
                            "linformer", "combiner-fixed", "additive"})
    add_plans(model, "listops", 32, {{"model.heads", 1}}, plans);  // 64 wide
  for (const int64_t width : {32, 64}) {
    for (const char* core : {"softmax-fused", "performer", "mrs-linear", "linformer"})
      add_half_plans(core, false, width, plans);
    for (const char* core : {"softmax-fused", "performer"}) add_half_plans(core, true, width, plans);
  }
  // Steps whose maps store 16 bits, of widths of one tile and of two.
  for (const char* precision : {"bf16", "fp16"})
    for (const int64_t width : {64, 128})
      add_plans("softmax-fused", "listops", 32, {{"training.precision", precision}, {"model.dim", width}}, plans);
  add_plans("softmax-fused", "listops", 32, {{"model.dim", 128}}, plans);
  // What is launched elsewhere: causally, by few heads, and where the feed-forward part is too wide to be one kernel.
  add_plans("performer", "bytes/enwik8", 2, {{"model.heads", 8}, {"model.head_dim", 32}}, plans);
  const auto registers = reported_registers();
  std::string compiler;
  std::map<Kernel, Row> known = read_table(compiler);
  const bool writes = std::getenv("XFORMER_WRITE_BUDGET") != nullptr, same_compiler = compiler == XFORMER_NVCC;
  std::map<Kernel, Row> found;
  std::set<std::string> programs;
  for (const LaunchPlan& plan : plans) {
    const std::string name = readable(plan.program);
    programs.insert(name.substr(0, name.find('<')));
    const Kernel kernel{name, plan.shared_bytes};
    CAPTURE(name, plan.shared_bytes, plan.resident);
    if (!writes) REQUIRE(known.contains(kernel));
    const Row& before = known[kernel];
    Row& now = found[kernel];
    now.threads = plan.threads;
    CHECK((registers.empty() || registers.contains(name)));
    for (size_t i = 0; i < 2; ++i) {
      now.registers[i] = registers.empty() ? before.registers[i] : registers.at(name)[i];
      now.blocks[i] = kernels::resident_blocks(kMultiprocessors[i], now.threads, now.registers[i], plan.shared_bytes);
      CHECK(now.blocks[i] >= 1);
      // Registers are kept few so that as many blocks as the program says find room: so must the rest, but for one
      // block on sm_80, which has less shared memory.
      CHECK(now.blocks[i] >= (i == 0 ? plan.resident - 1 : plan.resident));
      if (writes) continue;
      CHECK(now.threads == before.threads);
      CHECK(now.blocks[i] >= before.blocks[i]);
      // Another compiler may take others.
      if (same_compiler || registers.empty()) CHECK(now.registers[i] == before.registers[i]);
      if (same_compiler || registers.empty()) CHECK(now.blocks[i] == before.blocks[i]);
    }
  }
  for (const auto& [kernel, row] : known) {
    CAPTURE(kernel.first, kernel.second);
    if (!writes) CHECK(found.contains(kernel));
  }
  for (const auto& [name, both] : registers) {
    CAPTURE(name);
    CHECK(programs.contains(name.substr(0, name.find('<'))));
  }
  if (!writes) return;
  REQUIRE_FALSE(registers.empty());
  std::ofstream table(kTable);
  table << XFORMER_NVCC << ",threads,shared bytes,registers sm_80,registers sm_90,blocks sm_80,blocks sm_90\n";
  for (const auto& [kernel, row] : found)
    table << kernel.first << "," << row.threads << "," << kernel.second << "," << row.registers[0] << ","
          << row.registers[1] << "," << row.blocks[0] << "," << row.blocks[1] << "\n";
}

}  // namespace xformer::measure::device_occupancy_test
