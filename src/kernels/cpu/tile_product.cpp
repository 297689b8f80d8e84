#include "kernels/cpu/tile_product.h"

#include <libxsmm_cpuid.h>
#include <libxsmm_generator.h>
#include <libxsmm_version.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/error.h"
#include "kernels/cpu/matrix_unit.h"

namespace xformer::kernels {

namespace {

// Memory that holds this code and can run it, never writable and executable at once; null with errno where the system
// refuses. It lives as long as the process.
void* executable(const void* code, size_t bytes) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE)), size = (bytes + page - 1) / page * page;
  void* const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  std::memcpy(memory, code, bytes);
  if (::mprotect(memory, size, PROT_READ | PROT_EXEC) == 0) return memory;
  const int reason = errno;
  ::munmap(memory, size);
  errno = reason;
  return nullptr;
}

// LIBXSMM's numbers grow with the instruction sets; behind its last one, which it makes code for all the same.
constexpr int kMatrixUnit = LIBXSMM_X86_AVX512_CPX + 1;

struct Found {
  int set = 0;  // one of these
  TileProducts products;
};

const char* name_of(int set) { return set == kMatrixUnit ? "spr" : libxsmm_cpuid_name(set); }

int set_of_processor() {
  const int set = libxsmm_cpuid();
  return set >= LIBXSMM_X86_AVX512_CPX && has_matrix_unit() ? kMatrixUnit : set;
}

// The number that LIBXSMM_TARGET stands for, by the names that LIBXSMM's documentation lists; 0: unknown.
int named_set(const std::string& name) {
  static const std::vector<std::pair<const char*, int>> known = {
      {"0", LIBXSMM_X86_SSE3},          {"sse", LIBXSMM_X86_SSE3},         {"sse3", LIBXSMM_X86_SSE3},
      {"wsm", LIBXSMM_X86_SSE4},        {"nhm", LIBXSMM_X86_SSE4},         {"sse4", LIBXSMM_X86_SSE4},
      {"snb", LIBXSMM_X86_AVX},         {"ivb", LIBXSMM_X86_AVX},          {"avx", LIBXSMM_X86_AVX},
      {"hsw", LIBXSMM_X86_AVX2},        {"avx2", LIBXSMM_X86_AVX2},        {"skx", LIBXSMM_X86_AVX512_CORE},
      {"skl", LIBXSMM_X86_AVX512_CORE}, {"avx3", LIBXSMM_X86_AVX512_CORE}, {"avx512", LIBXSMM_X86_AVX512_CORE},
      {"clx", LIBXSMM_X86_AVX512_CLX},  {"cpx", LIBXSMM_X86_AVX512_CPX},   {"spr", kMatrixUnit}};
  for (const auto& [word, set] : known)
    if (name == word) return set;
  return 0;
}

Found find() {
  Found found{set_of_processor(), {}};
  const char* const wanted = std::getenv("LIBXSMM_TARGET");
  if (wanted != nullptr && *wanted != '\0') {
    const int set = named_set(wanted);
    if (set == 0)
      found.products.note = fmt::format(
          "LIBXSMM_TARGET={} is no name that is known here (hsw, skx, clx, cpx, spr, ...); code "
          "is made for this processor, {}",
          wanted, name_of(found.set));
    else if (set > found.set)
      found.products.note = fmt::format("LIBXSMM_TARGET={} is more than this processor has; code is made for {}",
                                        wanted, name_of(found.set));
    else found.set = set;
  }
  // Between AVX2 and the AVX-512 of servers there were only the Xeon Phi.
  if (found.set > LIBXSMM_X86_AVX2 && found.set < LIBXSMM_X86_AVX512_CORE) found.set = LIBXSMM_X86_AVX2;
  if (found.set < LIBXSMM_X86_AVX2) return found;
  constexpr unsigned char kReturn = 0xc3;
  if (executable(&kReturn, 1) == nullptr) {
    found.products.note = fmt::format(
        "products go through LibTorch's BLAS, which may be slower: the system lets this "
        "program make no code ({})",
        std::strerror(errno));
    return found;
  }
  found.products.available = true;
  found.products.pairs = found.set >= LIBXSMM_X86_AVX512_CPX;
  found.products.unit = found.set == kMatrixUnit;
  found.products.name = fmt::format("libxsmm {}, {}", LIBXSMM_CONFIG_VERSION,
                                    found.set == LIBXSMM_X86_AVX2 ? "avx2"
                                    : found.products.pairs        ? "avx512-bf16"
                                                                  : "avx512");
  return found;
}

const Found& found() {
  static const Found result = find();
  return result;
}

TileProduct generate(const TileShape& shape) {
  // LIBXSMM counts columns first: its a is our b, its m our columns.
  const auto describe = shape.pairs ? libxsmm_bsgemm_descriptor_init : libxsmm_sgemm_descriptor_init;
  const int flags = (shape.a_transposed ? LIBXSMM_GEMM_FLAG_TRANS_B : 0) | (shape.pairs ? LIBXSMM_GEMM_FLAG_VNNI_A : 0);
  libxsmm_descriptor_blob memory{};
  const libxsmm_gemm_descriptor* const description =
      describe(&memory, shape.columns, shape.rows, shape.inner, shape.b_stride, shape.a_stride, shape.c_stride, 1,
               shape.adds ? 1 : 0, flags, LIBXSMM_GEMM_PREFETCH_NONE);
  std::vector<unsigned char> room(size_t{1} << 17);  // what LIBXSMM itself allows for
  libxsmm_generated_code code{};
  code.generated_code = room.data();
  code.buffer_size = static_cast<unsigned int>(room.size());
  code.code_type = 2;  // machine code
  code.arch = static_cast<unsigned int>(std::min(found().set, LIBXSMM_X86_AVX512_CPX));
  if (description != nullptr) libxsmm_generator_gemm_kernel(&code, description);
  XF_ASSERT(description != nullptr && code.last_error == 0, "LIBXSMM makes no product [{}, {}] x [{}, {}]: error {}",
            shape.rows, shape.inner, shape.inner, shape.columns, code.last_error);
  void* const memory_of_code = executable(room.data(), code.code_size);
  XF_CHECK(memory_of_code != nullptr, ResourceError, "no memory for the code of a product: {}", std::strerror(errno));
  return reinterpret_cast<TileProduct>(memory_of_code);
}

size_t hash_of(const TileShape& shape) {
  const auto both = [](int32_t low, int32_t high) {
    return static_cast<uint64_t>(static_cast<uint32_t>(high)) << 32 | static_cast<uint32_t>(low);
  };
  const uint64_t kind = static_cast<uint64_t>(shape.a_transposed) | static_cast<uint64_t>(shape.adds) << 1 |
                        static_cast<uint64_t>(shape.pairs) << 2;
  const uint64_t hash = both(shape.rows, shape.columns) * 0x9e3779b97f4a7c15ULL ^
                        both(shape.inner, shape.a_stride) * 0xc2b2ae3d27d4eb4fULL ^
                        both(shape.b_stride, shape.c_stride) * 0x165667b19e3779f9ULL;
  return ((hash ^ hash >> 29) + kind) * 0x9e3779b97f4a7c15ULL >> 32;
}

// Finds shapes by probing from their hash's place; grows by half-empty tables twice the size. Readers take no lock:
// what they may see is never changed but from nothing to something, and never freed.
class Codes {
 public:
  TileProduct find(const TileShape& shape) {
    const TileProduct code = table_.load(std::memory_order_acquire)->find(shape);
    return code != nullptr ? code : add(shape);
  }
  int64_t size() {
    const std::lock_guard lock(lock_);
    return static_cast<int64_t>(entries_.size());
  }

 private:
  struct Entry {
    TileShape shape;
    TileProduct code;
  };
  struct Table {
    explicit Table(size_t size) : places(size) {}
    std::vector<std::atomic<const Entry*>> places;

    [[nodiscard]] std::atomic<const Entry*>& place(const TileShape& shape) {
      for (size_t i = hash_of(shape);; ++i) {
        auto& one = places[i & (places.size() - 1)];  // a power of two
        const Entry* const entry = one.load(std::memory_order_acquire);
        if (entry == nullptr || entry->shape == shape) return one;
      }
    }
    [[nodiscard]] TileProduct find(const TileShape& shape) {
      const Entry* const entry = place(shape).load(std::memory_order_acquire);
      return entry == nullptr ? nullptr : entry->code;
    }
  };

  TileProduct add(const TileShape& shape) {
    const std::lock_guard lock(lock_);
    Table* table = tables_.back().get();
    if (const TileProduct code = table->find(shape); code != nullptr) return code;
    entries_.push_back({shape, generate(shape)});
    if (2 * entries_.size() > table->places.size()) {
      tables_.push_back(std::make_unique<Table>(2 * table->places.size()));
      table = tables_.back().get();
      for (const Entry& entry : entries_) table->place(entry.shape).store(&entry, std::memory_order_relaxed);
      table_.store(table, std::memory_order_release);
    } else {
      table->place(shape).store(&entries_.back(), std::memory_order_release);
    }
    return entries_.back().code;
  }

  std::mutex lock_;
  std::deque<Entry> entries_;  // which stay where they are
  std::vector<std::unique_ptr<Table>> tables_ = first_tables();
  std::atomic<Table*> table_{tables_.back().get()};

  static std::vector<std::unique_ptr<Table>> first_tables() {
    std::vector<std::unique_ptr<Table>> result;
    result.push_back(std::make_unique<Table>(1024));
    return result;
  }
};

Codes& codes() {
  static Codes all;
  return all;
}

}  // namespace

const TileProducts& tile_products() { return found().products; }

TileProduct tile_product(const TileShape& shape) { return codes().find(shape); }

int64_t tile_products_made() { return codes().size(); }

}  // namespace xformer::kernels
