// One softmax over parts as a device computes it, walked on the CPU, against the definition in double precision.
#include "device_support.h"
#include "kernels/device/occupancy.h"
#include "kernels/joined_softmax/device.h"
#include "kernels/joined_softmax/joined_softmax.h"
#include "kernels/operator.h"
#include "kernels/window_attention/window_attention.h"
#include "poisoned_memory.h"

namespace xformer::kernels::joined_softmax_device_test {

namespace {

struct WalkedParts {
  int64_t parts = 3, n = 20, e = 8;
  bool longer = true;  // some parts have rows behind n

  // outs, each in its own memory order, then the logs of their sums.
  [[nodiscard]] Tensors operands() const {
    Tensors result;
    for (int64_t p = 0; p < parts; ++p)
      result.push_back(float_heads("out" + std::to_string(p), {2, 3, rows(p), e}, /*gaps=*/p % 3 == 2));
    for (int64_t p = 0; p < parts; ++p)
      result.push_back(random_tensor("log" + std::to_string(p), {2, 3, rows(p), 1}, at::kFloat) * 3);
    return result;
  }
  [[nodiscard]] at::Tensor gradient() const { return float_heads("gradient", {2, 3, n, e}); }
  [[nodiscard]] int64_t rows(int64_t p) const { return longer ? n + 7 * (p % 3) : n; }
};

Tensors first_half(const Tensors& all) { return {all.begin(), all.begin() + static_cast<int64_t>(all.size() / 2)}; }
Tensors second_half(const Tensors& all) { return {all.begin() + static_cast<int64_t>(all.size() / 2), all.end()}; }

// The result, then gradients of outs and logs.
Tensors joined(const Tensors& given, const at::Tensor& gradient, WalkOrder order) {
  const auto launch = [order](bool backward) {
    return [=](const JoinedArguments& a) { run_joined(a, backward, walking(order)); };
  };
  Tensors result{joined_forward_device(first_half(given), second_half(given), gradient.size(2), launch(false))};
  for (const at::Tensor& one : joined_backward_device(gradient, first_half(given), second_half(given), launch(true)))
    result.push_back(one);
  return result;
}

double worst_join(const WalkedParts& one, const Tensors& given) {
  return worst_walked(
      [&](WalkOrder order) { return joined(given, one.gradient(), order); },
      in_double(
          [&](const Tensors& in) { return Tensors{joined_softmax_reference(first_half(in), second_half(in), one.n)}; },
          given, {one.gradient()}));
}
double worst_join(const WalkedParts& one) { return worst_join(one, one.operands()); }

constexpr double kLikeFloat = 4e-6;

int counted_joins = 0;

void count_join(const JoinedArguments&) { ++counted_joins; }

at::Tensor counted_forward(const Tensors& outs, const Tensors& log_sums, int64_t n) {
  return joined_forward_device(outs, log_sums, n, count_join);
}
Tensors counted_backward(const at::Tensor& gradient, const Tensors& outs, const Tensors& log_sums) {
  return joined_backward_device(gradient, outs, log_sums, count_join);
}

// Shapes whose plans are looked at, of which one part is a TiB of floats or less.
constexpr int64_t kHeadCounts[] = {1, 3, 512, 1 << 16, 1 << 20, kMostBlocks};
constexpr int64_t kRowCounts[] = {1, 7, 255, 257, 2048, 1 << 20, INT32_MAX, int64_t{1} << 38};
constexpr int64_t kWidths[] = {1, 8, 9, 64, 65, 256, 257, 1 << 16};

constexpr bool is_shape(int64_t heads, int64_t rows, int64_t e) { return rows <= (int64_t{1} << 38) / e / heads; }

template <class Program>
constexpr bool pass_fits(int64_t heads, int64_t rows, int64_t e) {
  const LaunchGrid grid = row_grid(heads * rows, e, Program::kThreads);
  const int64_t at_once = Program::kThreads / row_lanes(e);
  return grid.blocks >= 1 && grid.blocks <= kMostBlocks && grid.blocks * at_once >= heads * rows &&
         (grid.blocks - 1) * at_once < heads * rows && grid.shared_bytes == 0 &&
         resident_blocks(kSm80, Program::kThreads, 1, grid.shared_bytes) >= Program::kResident;
}

constexpr bool passes_fit() {
  for (const int64_t heads : kHeadCounts)
    for (const int64_t rows : kRowCounts)
      for (const int64_t e : kWidths)
        if (is_shape(heads, rows, e) &&
            !(pass_fits<JoinedForwardProgram>(heads, rows, e) && pass_fits<JoinedBackwardProgram>(heads, rows, e)))
          return false;
  return true;
}

// All that a program's place in its rows asks of a thread.
struct PlacedThread {
  int64_t of_grid = 0;

  [[nodiscard]] int index() const { return static_cast<int>(of_grid % kJoinedThreads); }
  [[nodiscard]] int64_t block() const { return of_grid / kJoinedThreads; }
};

}  // namespace

TEST_CASE("one softmax over parts on a device: every length from 1 to 130") {
  const PoisonedMemory poisoned;
  for (int64_t n = 1; n <= 130; ++n) {
    CAPTURE(n);
    CHECK(worst_join({.parts = 1 + n % 4, .n = n, .e = 1 + n % 20, .longer = n % 3 > 0}) < kLikeFloat);
  }
}

TEST_CASE("one softmax over parts on a device: widths, parts, and parts without keys") {
  const PoisonedMemory poisoned;
  for (const int64_t e : {1, 7, 8, 32, 33, 64, 256, 300}) {
    CAPTURE(e);
    CHECK(worst_join({.e = e}) < kLikeFloat);
  }
  for (const int64_t parts : {1, 2, 7, 16}) {
    CAPTURE(parts);
    CHECK(worst_join({.parts = parts, .longer = false}) < kLikeFloat);
  }
  const WalkedParts one{.parts = 4};
  Tensors given = one.operands();
  given[5].fill_(lowest_log_sum(at::kFloat));
  given[6].narrow(2, 0, 9).fill_(lowest_log_sum(at::kFloat));
  CHECK(worst_join(one, given) < kLikeFloat);
  for (int64_t p = 4; p < 8; ++p) given[static_cast<size_t>(p)].fill_(lowest_log_sum(at::kFloat));
  CHECK(worst_join(one, given) < kLikeFloat);  // none has keys: all count the same
  // Logs so large and so far apart that exponentials of them alone overflow or vanish.
  given[4].fill_(200), given[5].fill_(197), given[6].fill_(-300), given[7].fill_(199);
  CHECK(worst_join(one, given) < 4 * kLikeFloat);
}

TEST_CASE("one softmax over parts on a device: what stands behind row n is not read and has no gradient") {
  const PoisonedMemory poisoned;
  const WalkedParts one{.parts = 3, .n = 18, .e = 12};
  Tensors given = one.operands();
  const Tensors clean = joined(given, one.gradient(), WalkOrder::kForward);
  for (at::Tensor& x : given)
    if (x.size(2) > one.n) x.narrow(2, one.n, x.size(2) - one.n).fill_(NAN);
  const Tensors lost = joined(given, one.gradient(), WalkOrder::kForward);
  for (size_t i = 0; i < clean.size(); ++i) {
    CHECK(at::equal(lost[i], clean[i]));
    if (i > 0 && clean[i].size(2) > one.n)
      CHECK(clean[i].narrow(2, one.n, clean[i].size(2) - one.n).eq(0).all().item<bool>());
  }
}

TEST_CASE("a device with kernels of one softmax over parts runs them: one launch each way") {
  counted_joins = 0;
  torch::Library library(torch::Library::IMPL, "xformer", c10::DispatchKey::Meta, __FILE__, __LINE__);
  library.impl("joined_softmax_forward", dispatched<counted_forward>);
  library.impl("joined_softmax_backward", dispatched<counted_backward>);
  const auto launches = [&](int64_t parts, at::ScalarType type) {
    const auto leaf = [&](int64_t width) {
      return at::empty({2, 3, 20, width}, at::TensorOptions(at::kMeta).dtype(type)).requires_grad_(true);
    };
    Tensors outs, log_sums;
    for (int64_t p = 0; p < parts; ++p) outs.push_back(leaf(8)), log_sums.push_back(leaf(1));
    const at::Tensor out = joined_softmax(outs, log_sums, 18);
    Tensors inputs = outs;
    inputs.insert(inputs.end(), log_sums.begin(), log_sums.end());
    const Tensors found = torch::autograd::grad({out}, inputs, {at::ones_like(out)});
    for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].sizes() == inputs[i].sizes());
    return std::exchange(counted_joins, 0);
  };
  CHECK(launches(3, at::kFloat) == 2);
  CHECK(launches(kMostJoined, at::kFloat) == 2);
  CHECK(launches(kMostJoined + 1, at::kFloat) == 0);  // the definition
  CHECK(launches(3, at::kDouble) == 0);
  const auto taken = [](int64_t n, int64_t e) { return fits_joined_programs({at::empty({1, 1, n, e}, at::kMeta)}, n); };
  CHECK((taken(kMostNumbered, 1) && taken(1, kMostNumbered)));
  CHECK_FALSE((taken(kMostNumbered + 1, 1) || taken(1, kMostNumbered + 1)));
}

TEST_CASE("plans of one softmax over parts fit a device at any size, and have every row once") {
  STATIC_REQUIRE(passes_fit());  // a constant, in which an overflow is an error
  for (const int64_t heads : kHeadCounts)
    for (const int64_t rows : kRowCounts)
      for (const int64_t e : kWidths) {
        if (!is_shape(heads, rows, e)) continue;
        CAPTURE(heads, rows, e);
        JoinedArguments a;
        a.b = 1, a.h = heads, a.n = (rows + 1) / 2, a.rows = rows, a.e = static_cast<int>(e);
        int64_t threads = 0;
        for (const bool backward : {false, true})
          run_joined(a, backward, [&](const LaunchGrid& grid, const auto& program) {
            threads = grid.blocks * std::decay_t<decltype(program)>::kThreads;
            const int64_t behind = heads * rows * row_lanes(e);
            const JoinedPlace first(PlacedThread{0}, a), last(PlacedThread{behind - 1}, a);
            CHECK((first.lives && first.head == 0 && first.row == 0 && first.lane == 0 && first.counts));
            CHECK((last.lives && last.head == heads - 1 && last.row == rows - 1 && last.lane == last.lanes - 1));
            CHECK(last.counts == (rows == 1));
            CHECK(last.in_rows(a, rows) + e == heads * rows * e);
            CHECK(last.in_logs(a, rows) + 1 == heads * rows);
            if (behind < threads) CHECK_FALSE(JoinedPlace(PlacedThread{behind}, a).lives);
          });
        CHECK(threads >= heads * rows * row_lanes(e));
      }
}

}  // namespace xformer::kernels::joined_softmax_device_test
