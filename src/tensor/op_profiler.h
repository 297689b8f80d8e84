// Where the time goes: for every operator that the calling thread runs, its own time (without the operators that it
// calls), the bytes of its tensors and the FLOPs of OpCounter. On the CPU an operator is done when it returns, and the
// host's clock tells; elsewhere the device's does, by events before and after it in the device's queue.
#pragma once

#include <torch/types.h>

#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace xformer {

struct OpFigures {
  int64_t calls = 0;
  double seconds = 0;
  // What the operators inside did not move already. Views and operators without a tensor result move nothing, but for
  // those of our own, which read their operands and write what they allocate.
  int64_t read_bytes = 0, written_bytes = 0;
  // Rows that operators of our own read, or added to, by lists of places, however often: on top of their tensors.
  int64_t gathered_bytes = 0;
  int64_t flops = 0;
  bool product = false;                     // one of LibTorch's (OpProfile::products)
  bool pointwise = false, reduces = false;  // by LibTorch's tags
};

// A product of LibTorch's: [batch, rows, inner] x [batch, inner, columns]; which operands lie transposed in memory.
struct Product {
  int64_t batch = 1, rows = 0, inner = 0, columns = 0;
  bool left_transposed = false, right_transposed = false;
  at::ScalarType type = at::kFloat;
  auto operator<=>(const Product&) const = default;
};

struct OpProfile {
  std::map<std::string, OpFigures> operators;  // by full name, "aten::add"
  std::map<Product, OpFigures> products;       // those of the operators that are one product; bytes are not told
  [[nodiscard]] double seconds() const;        // in operators
};

// What time() says of a piece of work, with what is outside operators.
struct TimedWork {
  double seconds = 0;
  // On a device: it had not begun when all of it was in its queue, so that it waited for nothing between operators.
  bool queued_ahead = false;
};

// Times the operators of the calling thread, and of backward passes that it starts, while it lives; one at a time.
// Operators that LibTorch makes of several, around a single piece of work (convolution), are shown as one.
class OpProfiler {
 public:
  explicit OpProfiler(const at::Device& device = at::kCPU);
  ~OpProfiler();
  OpProfiler(const OpProfiler&) = delete;
  OpProfiler& operator=(const OpProfiler&) = delete;
  // Runs `work`, and waits for it. On a device operators have times of what runs here alone. Views and allocations have
  // none there; the events' own time is taken off, as an average, so that what takes nothing may come out below 0.
  TimedWork time(const std::function<void()>& work);
  [[nodiscard]] const OpProfile& profile() const;
  // That an event by itself takes; 0 on the CPU.
  [[nodiscard]] double event_seconds() const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace xformer
