// Attention as a device computes it, walked on the CPU, against the definition in double precision.
#include <ATen/Context.h>

#include <cmath>

#include "device_support.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/device.h"
#include "kernels/device/occupancy.h"
#include "place_support.h"
#include "plan_support.h"
#include "poisoned_memory.h"

namespace xformer::kernels::attention_device_test {

namespace {

struct WalkedHeads {
  int64_t n = 70, m = 70, d = 16, e = 16;
  int64_t valid_keys = -1;     // of sample 0; -1: all, sample 1 always has all
  int64_t valid_queries = -1;  // likewise
  double p = 0.2;
  bool causal = false, tf32 = false, gaps = false;
  at::ScalarType type = at::kFloat;
  int64_t behind = 0;                    // elements of something else behind each row
  bool draws = false;                    // the backward pass draws what the forward pass has drawn
  double q_size = 1, gradient_size = 1;  // times numbers of about 1
};

at::Tensor heads_of(const std::string& name, const WalkedHeads& one, int64_t rows, int64_t width) {
  // As a projection leaves them; with gaps between rows and the last axis not the fastest.
  if (one.gaps) return random_tensor(name, {2, 1, width, rows}, at::kFloat).to(one.type).transpose(2, 3);
  at::Tensor wider = random_tensor(name, {2, rows, 1, width + one.behind}, at::kFloat);
  if (name == "q") wider.mul_(one.q_size);
  if (name == "gradient") wider.mul_(one.gradient_size);
  return wider.to(one.type).narrow(3, 0, width).transpose(1, 2);
}

at::Tensor flags_of(int64_t rows, int64_t valid) {
  if (valid < 0) return {};
  at::Tensor flags = at::ones({2, rows}, at::kBool);
  flags[0].narrow(0, valid, rows - valid).zero_();
  if (valid > 3) flags[0][1] = false;  // a hole
  return flags;
}

AttentionOptions options_of(const WalkedHeads& one) {
  AttentionOptions options;
  options.scale = 0.7 / std::sqrt(static_cast<double>(one.d)) / one.q_size;
  options.mask.key_valid = flags_of(one.m, one.valid_keys);
  options.mask.causal = one.causal;
  options.query_valid = flags_of(one.n, one.valid_queries);
  options.dropout = place_of(one.p);
  return options;
}

// Output and gradients of q, k and v.
Tensors walked_attention(const WalkedHeads& one, WalkOrder order) {
  at::globalContext().setAllowTF32CuBLAS(one.tf32);
  const at::Tensor q = heads_of("q", one, one.n, one.d), k = heads_of("k", one, one.m, one.d),
                   v = heads_of("v", one, one.m, one.e);
  const AttentionOptions options = options_of(one);
  const auto launch = [&](bool backward) {
    return [=](AttentionArguments a, const PlaneArguments& planes) {
      if (one.draws) a.kept = nullptr;
      run_attention<WalkedTypes>(a, planes, backward,
                                 [&](const LaunchGrid& grid, const auto& program) { walk(grid, program, order); });
    };
  };
  const AttentionForward forward = attention_forward_device(q, k, v, options, launch(false));
  CHECK_FALSE(forward.log_sum.isnan().any().item<bool>());  // written for every row, also those that do not count
  const AttentionGradients found =
      attention_backward_device(heads_of("gradient", one, one.n, one.e), q, k, v, forward, options, launch(true));
  at::globalContext().setAllowTF32CuBLAS(false);
  return {forward.out, found.q, found.k, found.v};
}

Tensors defined_attention(const WalkedHeads& one) {
  Tensors leaves;
  for (const at::Tensor& x :
       {heads_of("q", one, one.n, one.d), heads_of("k", one, one.m, one.d), heads_of("v", one, one.m, one.e)})
    leaves.push_back(x.to(at::kDouble).detach().requires_grad_(true));
  const at::Tensor out = attention_reference(leaves[0], leaves[1], leaves[2], options_of(one));
  Tensors result = torch::autograd::grad({out}, leaves, {heads_of("gradient", one, one.n, one.e).to(at::kDouble)});
  result.insert(result.begin(), out.detach());
  return result;
}

double worst_attention(const WalkedHeads& one, bool both_orders = false, WalkOrder first = WalkOrder::kForward) {
  return worst_walked([&](WalkOrder order) { return walked_attention(one, order); }, defined_attention(one),
                      both_orders, first);
}

// The same of heads in 16 bits, in two orders.
void check_halves(WalkedHeads one, at::ScalarType type) {
  one.type = type;
  CAPTURE(type, one.n, one.m, one.d);
  const double rounding = type == at::kHalf ? 1.0 / 2048 : 1.0 / 256;
  const Tensors got = walked_attention(one, WalkOrder::kForward), meant = defined_attention(one);
  const Tensors backwards = walked_attention(one, WalkOrder::kBackward);
  for (size_t i = 0; i < got.size(); ++i) {
    CHECK(got[i].scalar_type() == type);
    CHECK(at::equal(got[i], backwards[i]));
    // Of one key, queries and keys have no gradient but rounding's.
    if (one.m == 1 && (i == 1 || i == 2)) continue;
    // The output is one rounding away; gradients also of what that rounding does to delta.
    CHECK(difference(got[i].to(at::kDouble), meant[i]) < (i == 0 ? rounding : 3 * rounding));
  }
}

constexpr double kLikeFloat = 1e-5, kLikeTf32 = 5e-3;

// Shapes whose plans are looked at: as many heads as a grid has blocks, as many rows as an int counts.
constexpr int64_t kHeadCounts[] = {1, 8, 131, 132, 512, 513, 1 << 16, 1 << 20, kMostBlocks};
constexpr int64_t kRowCounts[] = {1, 64, 65, 255, 257, 2048, 1 << 20, INT32_MAX};

// Whether q, k, v and the output are a TiB or less of floats, and an int64 numbers the weights for dropout.
constexpr bool is_shape(int64_t heads, int64_t n, int64_t m, int64_t width) {
  return std::max(n, m) <= (int64_t{1} << 36) / width / heads && n * m <= (int64_t{1} << 62) / heads;
}

// Whether a pass over rows that see so many others fits a device, leaves none of these out and looks at none twice.
template <class Program>
constexpr bool pass_fits(int64_t heads, int64_t rows, int64_t seen) {
  const RowDivision division = attention_division(heads, rows, seen);
  const LaunchGrid grid = attention_grid(heads, rows, seen, Program::kSharedBytes);
  const int64_t blocks = heads * tiles_of(rows);
  return grid.blocks == blocks * division.parts && grid.blocks >= 1 && grid.blocks <= kMostBlocks &&
         grid.blocks <= std::max(blocks, kSpreadBlocks) && grid.shared_bytes <= kMostSharedBytes &&
         resident_blocks(kSm80, Program::kThreads, 1, grid.shared_bytes) >= 2 &&
         resident_blocks(kSm90, Program::kThreads, 1, grid.shared_bytes) >= Program::kResident &&
         division.parts * division.part_tiles >= tiles_of(seen) &&
         (division.parts - 1) * division.part_tiles < tiles_of(seen);
}

template <ProductKind kKind, int kWidth>
constexpr bool passes_fit() {
  using Forward = AttentionForwardProgram<float, kKind, kWidth>;
  using Queries = AttentionBackwardProgram<float, kKind, kWidth, false>;
  using Keys = AttentionBackwardProgram<float, kKind, kWidth, true>;
  for (const int64_t heads : kHeadCounts)
    for (const int64_t n : kRowCounts)
      for (const int64_t m : kRowCounts)
        if (is_shape(heads, n, m, 1) &&
            !(pass_fits<Forward>(heads, n, m) && pass_fits<Queries>(heads, n, m) && pass_fits<Keys>(heads, m, n)))
          return false;
  return true;
}

}  // namespace

TEST_CASE("attention on a device: every length from 1 to 130, near tiles' borders in two orders and in 16 bits") {
  const PoisonedMemory poisoned;
  for (int64_t n = 1; n <= 130; ++n) {
    CAPTURE(n);
    const WalkedHeads one{.n = n, .m = n, .valid_keys = n > 2 ? n - n / 3 : -1};
    // Of one key everything cancels but rounding.
    CHECK(worst_attention(one, near_border(n), order_at(n)) < (n == 1 ? 1e-3 : kLikeFloat));
    if (near_border(n)) check_halves(one, n % 2 == 0 ? at::kHalf : at::kBFloat16);
  }
}

TEST_CASE("attention on a device: widths, few keys, causality, padding and dropout, in two orders") {
  const PoisonedMemory poisoned;
  CHECK(worst_attention({.d = 32, .e = 32}, true) < kLikeFloat);
  CHECK(worst_attention({.d = 5, .e = 7}, true) < kLikeFloat);
  CHECK(worst_attention({.d = 64, .e = 48}, true) < kLikeFloat);
  CHECK(worst_attention({.n = 130, .m = 16}, true) < kLikeFloat);
  CHECK(worst_attention({.n = 9, .m = 200}, true) < kLikeFloat);
  CHECK(worst_attention({.p = 0}, true) < kLikeFloat);
  CHECK(worst_attention({.n = 100, .m = 100, .causal = true}, true) < kLikeFloat);
  CHECK(worst_attention({.n = 100, .m = 100, .valid_keys = 30, .causal = true}, true) < kLikeFloat);
  CHECK(worst_attention({.n = 100, .m = 72, .valid_keys = 65, .valid_queries = 66}, true) < kLikeFloat);
  CHECK(worst_attention({.gaps = true}, true) < kLikeFloat);
  CHECK(worst_attention({.behind = 4}, true) < kLikeFloat);
  CHECK(worst_attention({.m = 96, .d = 32, .e = 32, .tf32 = true}, true) < kLikeTf32);
  // TF32 is not float: the bound of one would catch the other.
  CHECK(worst_attention({.m = 96, .d = 32, .e = 32, .tf32 = true}) > 10 * kLikeFloat);
}

TEST_CASE("attention on a device: what the forward pass noted of dropout is what the backward pass would draw") {
  const PoisonedMemory poisoned;
  // Whole runs of draws, and rows that begin in the middle of one; several tiles of both, padding and causality.
  for (const int64_t m : {int64_t{136}, int64_t{133}}) {
    for (const bool causal : {false, true}) {
      CAPTURE(m, causal);
      WalkedHeads one{.n = causal ? m : 70, .m = m, .valid_keys = 130, .valid_queries = 66, .causal = causal};
      const Tensors noted = walked_attention(one, WalkOrder::kForward);
      one.draws = true;
      const Tensors drawn = walked_attention(one, WalkOrder::kForward);
      for (size_t i = 0; i < noted.size(); ++i) CHECK(at::equal(noted[i], drawn[i]));
    }
  }
}

TEST_CASE("attention on a device: planes keep what is large and what is small") {
  const PoisonedMemory poisoned;
  // A gradient is as small as a mean over many rows makes it; fp16 alone ends at 65,504 and 6e-8.
  for (const double size : {1e-30, 1e-12, 1e-3, 1e5, 1e15}) {
    CAPTURE(size);
    CHECK(worst_attention({.q_size = size}) < kLikeFloat);
    const WalkedHeads one{.gradient_size = size};
    const Tensors got = walked_attention(one, WalkOrder::kForward), meant = defined_attention(one);
    for (size_t i = 1; i < got.size(); ++i)
      CHECK(difference(got[i].to(at::kDouble) / size, meant[i] / size) < kLikeFloat);
  }
  // Of a head with one large row the others lose nothing that counts beside it.
  WalkedHeads one{.n = 80, .m = 80, .d = 32, .e = 32};
  const AttentionOptions options = options_of(one);
  at::Tensor q = heads_of("q", one, one.n, one.d).clone();
  const at::Tensor k = heads_of("k", one, one.m, one.d), v = heads_of("v", one, one.m, one.e);
  q[0][0][3].mul_(1e4);
  const auto launch = [&](const AttentionArguments& a, const PlaneArguments& planes) {
    run_attention<WalkedTypes>(a, planes, false, [&](const LaunchGrid& grid, const auto& program) {
      walk(grid, program, WalkOrder::kForward);
    });
  };
  const at::Tensor got = attention_forward_device(q, k, v, options, launch).out;
  CHECK(difference(got.to(at::kDouble),
                   attention_reference(q.to(at::kDouble), k.to(at::kDouble), v.to(at::kDouble), options)) < kLikeFloat);
  // Infinity and NaN stay in their rows.
  q[0][0][5][0] = INFINITY, q[1][0][6][1] = NAN;
  const at::Tensor lost = attention_forward_device(q, k, v, options, launch).out;
  CHECK((lost[0][0][5].isnan().all().item<bool>() && lost[1][0][6].isnan().all().item<bool>()));
  for (const auto& [sample, row] : {std::pair{0, 5}, {1, 6}}) {
    at::Tensor rest = lost[sample][0].clone(), meant = got[sample][0].clone();
    rest[row].zero_(), meant[row].zero_();
    CHECK(difference(rest, meant) < kLikeFloat);
  }
}

// Few rows and many keys, or few keys and many rows.
TEST_CASE("attention on a device: what few rows see is divided among blocks") {
  const PoisonedMemory poisoned;
  CHECK(attention_division(2, 64, 512).parts == 2);
  CHECK(attention_division(2, 9, 1100).parts == 4);
  CHECK(attention_division(64, 64, 2048).parts == 4);
  CHECK(attention_division(64, 2048, 64).parts == 1);
  CHECK(attention_division(64, 2048, 2048).parts == 1);
  CHECK(attention_division(1, 1, 0).parts == 1);
  CHECK(worst_attention({.n = 9, .m = 1100}, true) < kLikeFloat);
  CHECK(worst_attention({.n = 1100, .m = 9, .d = 5, .e = 7}, true) < kLikeFloat);
  // The last parts of the first sample see nothing, and one ends in its middle.
  CHECK(worst_attention({.n = 70, .m = 1030, .d = 32, .e = 24, .valid_keys = 600, .valid_queries = 66}, true) <
        kLikeFloat);
  CHECK(worst_attention({.n = 600, .m = 600, .valid_keys = 550, .causal = true}, true) < kLikeFloat);
  for (const int64_t none : {int64_t{0}, int64_t{1}})
    CHECK(worst_attention({.n = 3, .m = 520, .valid_keys = none}) < kLikeFloat);
  WalkedHeads half{.n = 20, .m = 1100, .d = 32, .e = 32};
  half.type = at::kBFloat16;
  const Tensors got = walked_attention(half, WalkOrder::kForward), meant = defined_attention(half);
  for (size_t i = 0; i < got.size(); ++i) {
    CHECK(got[i].scalar_type() == at::kBFloat16);
    CHECK(difference(got[i].to(at::kDouble), meant[i]) < (i == 0 ? 1.0 : 3.0) / 256);
  }
}

TEST_CASE("attention on a device: heads in bf16 and fp16 lose nothing but by their own roundings") {
  const PoisonedMemory poisoned;
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf})
    for (const WalkedHeads& one :
         {WalkedHeads{.n = 3, .m = 3}, WalkedHeads{.n = 130, .m = 16, .d = 32, .e = 32}, WalkedHeads{.d = 5, .e = 7},
          WalkedHeads{.n = 100, .m = 100, .d = 64, .e = 64, .valid_keys = 30, .causal = true},
          WalkedHeads{.n = 66, .m = 9, .valid_queries = 65, .gaps = true},
          // Sixteen bytes are four floats and eight of these.
          WalkedHeads{.n = 40, .m = 40, .behind = 4}, WalkedHeads{.n = 40, .m = 40, .behind = 8}})
      check_halves(one, type);
}

TEST_CASE("attention on a device: a sample without a key or a query gives zero, and zero gradients") {
  const PoisonedMemory poisoned;
  for (const WalkedHeads& one : {WalkedHeads{.valid_keys = 0}, WalkedHeads{.valid_queries = 0}}) {
    CHECK(worst_attention(one) < kLikeFloat);
    for (const at::Tensor& x : walked_attention(one, WalkOrder::kForward)) CHECK(x[0].abs().max().item<float>() == 0);
  }
}

TEST_CASE("attention on a device: what stands in padding does not matter") {
  const PoisonedMemory poisoned;
  const WalkedHeads one{.valid_keys = 40, .valid_queries = 50};
  const Tensors clean = walked_attention(one, WalkOrder::kForward);
  at::Tensor q = heads_of("q", one, one.n, one.d), k = heads_of("k", one, one.m, one.d),
             v = heads_of("v", one, one.m, one.e);
  for (at::Tensor x : {k, v}) x[0].narrow(1, 40, 30).fill_(NAN);
  q[0].narrow(1, 50, 20).fill_(NAN);
  const auto launch = [&](const AttentionArguments& a, const PlaneArguments& planes) {
    run_attention<WalkedTypes>(a, planes, false, [&](const LaunchGrid& grid, const auto& program) {
      walk(grid, program, WalkOrder::kForward);
    });
  };
  const AttentionForward lost = attention_forward_device(q, k, v, options_of(one), launch);
  CHECK(at::equal(lost.out, clean[0]));
}

TEST_CASE("plans of attention fit a device at any size") {
  // Constants, in which an overflow is an error.
  STATIC_REQUIRE(passes_fit<ProductKind::kTf32, 32>());
  STATIC_REQUIRE(passes_fit<ProductKind::kFloat, 32>());
  STATIC_REQUIRE(passes_fit<ProductKind::kTf32, 64>());
  STATIC_REQUIRE(passes_fit<ProductKind::kFloat, 64>());
  // The planes of both, of two kinds each, but for a head of every block, as which they are refused.
  constexpr auto planes_fit = [](int64_t heads, int64_t rows, int64_t) {
    PlaneArguments planes;
    planes.b = heads, planes.h = 1, planes.count = 4;
    for (PlaneSource& source : planes.sources) source.rows = rows;
    return heads == kMostBlocks ? plane_grid(planes).blocks == 4 * heads
                                : launch_fits<PlaneMaximaProgram<float, 64>>(plane_grid(planes));
  };
  STATIC_REQUIRE(all_fit({1}, planes_fit));
}

TEST_CASE("attention on a device takes narrow heads, of which an int counts the rows") {
  const auto taken = [](int64_t n, int64_t m, int64_t width) {
    const at::Tensor q = at::empty({1, 1, n, width}, at::kMeta), k = at::empty({1, 1, m, width}, at::kMeta);
    return fits_attention_programs(q, k, k);
  };
  CHECK((taken(kMostNumbered, kMostNumbered, 1) && taken(1, 1, kAttentionWidest)));
  CHECK_FALSE((taken(kMostNumbered + 1, 1, 1) || taken(1, kMostNumbered + 1, 1) || taken(1, 1, kAttentionWidest + 1)));
}

TEST_CASE("what is launched of attention is what is planned, and the last block has the last rows") {
  using Kind = std::pair<ElementType, ProductKind>;
  for (const auto& [type, product] :
       {Kind{ElementType::kFloat, ProductKind::kFloat}, Kind{ElementType::kFloat, ProductKind::kTf32},
        Kind{ElementType::kHalf, ProductKind::kTf32}, Kind{ElementType::kBFloat16, ProductKind::kTf32}})
    for (const int64_t heads : kHeadCounts)
      for (const int64_t n : kRowCounts)
        for (const int64_t m : kRowCounts)
          for (const int width : {1, 32, 33, 64}) {
            if (!is_shape(heads, n, m, width)) continue;
            CAPTURE(type, product, heads, n, m, width);
            AttentionArguments a;
            a.type = type, a.product = product;
            a.b = heads, a.h = 1, a.n = n, a.m = m, a.d = width, a.e = 1;
            float some = 0;
            const int64_t parts = attention_division(heads, n, m).parts;
            if (parts > 1) a.part_out = &some;
            std::vector<int64_t> blocks;
            const auto check = [&](const LaunchGrid& grid, const auto& program) {
              using Program = std::decay_t<decltype(program)>;
              blocks.push_back(grid.blocks);
              CHECK(grid.shared_bytes <= kMostSharedBytes);
              CHECK(resident_blocks(kSm90, Program::kThreads, 1, grid.shared_bytes) >= Program::kResident);
            };
            PlaneArguments planes;
            planes.b = heads, planes.h = 1, planes.count = 3;
            planes.sources[kKeyPlane].rows = planes.sources[kValuePlane].rows = m;
            run_attention<WalkedTypes>(a, planes, /*backward=*/false, check);
            planes.count = 4;
            planes.sources[kQueryPlane].rows = planes.sources[kGradientPlane].rows = n;
            run_attention<WalkedTypes>(a, planes, /*backward=*/true, check);
            const auto pass_blocks = [&](int64_t rows, int64_t seen) {
              const int64_t result = heads * tiles_of(rows) * attention_division(heads, rows, seen).parts;
              const SeenPart last(heads, rows, seen, result - 1);
              const HeadBlock own = head_block(a.h, last.block, rows);
              CHECK((last.end >= seen && last.first < seen && last.alone == (last.number == 0)));
              CHECK((own.b == heads - 1 && own.h == 0 && own.first < rows && own.first + kTileSide >= rows));
              return result;
            };
            // The largest of each tile, then the planes; backwards both passes are one launch.
            const int64_t forward = heads * 2 * tiles_of(m), backward = forward + heads * 2 * tiles_of(n);
            std::vector<int64_t> meant{forward, forward, pass_blocks(n, m)};
            if (parts > 1) meant.push_back((heads * n + 255) / 256);  // a lane has a row, which is one element wide
            meant.insert(meant.end(), {backward, backward, pass_blocks(n, m) + pass_blocks(m, n)});
            CHECK(blocks == meant);
          }
}

}  // namespace xformer::kernels::attention_device_test
