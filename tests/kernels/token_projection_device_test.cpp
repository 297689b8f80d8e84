// Mixtures of tokens as a device computes them, walked on the CPU, against the definition in double precision.
#include <ATen/Context.h>

#include "device_support.h"
#include "kernels/device/occupancy.h"
#include "kernels/operator.h"
#include "kernels/token_projection/device.h"
#include "kernels/token_projection/token_projection.h"
#include "plan_support.h"
#include "poisoned_memory.h"
#include "tensor/op_counter.h"

namespace xformer::kernels::token_projection_device_test {

namespace {

struct WalkedProjection {
  int64_t n = 70, longest = 72, rows = 24, d = 16, b = 2, h = 2, heads = 2;  // the last: of the projection
  bool masked = true, both = true, tf32 = false, gaps = false;
  at::ScalarType type = at::kFloat;  // of all but the projection

  [[nodiscard]] at::Tensor valid() const { return masked ? ragged_flags(b, n) : at::Tensor(); }
  // The projection, x and perhaps y.
  [[nodiscard]] Tensors operands() const {
    Tensors result{random_tensor("table", {heads, rows, longest}, at::kFloat),
                   float_heads("x", {b, h, n, d}, gaps).to(type)};
    if (both) result.push_back(float_heads("y", {b, h, n, d}).to(type));
    return result;
  }
  // Of the mixtures: of x and perhaps y, the second lying as attention leaves it.
  [[nodiscard]] Tensors gradients() const {
    Tensors result{random_tensor("gradient", {b, h, rows, d}, at::kFloat).to(type)};
    if (both) result.push_back(random_tensor("y", {b, rows, h, d}, at::kFloat).to(type).transpose(1, 2));
    return result;
  }
  [[nodiscard]] Tensors reference(const Tensors& in) const {
    const TokenMixtures result = project_tokens_reference(in[0], in[1], both ? in[2] : at::Tensor(), {valid(), false});
    return both ? Tensors{result.x, result.y} : Tensors{result.x};
  }
};

// The mixtures, then gradients of the projection, x and y.
Tensors projected(const WalkedProjection& one, const Tensors& given, const Tensors& gradients, WalkOrder order) {
  at::globalContext().setAllowTF32CuBLAS(one.tf32);
  const auto launch = [order](const ProjectionArguments& a) { run_projection<WalkedTypes>(a, walking(order)); };
  const at::Tensor y = one.both ? given[2] : at::Tensor(), y_gradient = one.both ? gradients[1] : at::Tensor();
  const at::Tensor out = project_forward_device(given[0], given[1], y, one.valid(), launch);
  const ProjectionGradients found =
      project_backward_device(gradients[0], y_gradient, given[0], given[1], y, one.valid(), launch);
  at::globalContext().setAllowTF32CuBLAS(false);
  Tensors result{out.narrow(3, 0, one.d)};
  if (one.both) result.push_back(out.narrow(3, one.d, one.d));
  result.insert(result.end(), {found.projection, found.x});
  if (one.both) result.push_back(found.y);
  return result;
}

double worst_projection(const WalkedProjection& one) {
  const Tensors given = one.operands();
  const Tensors gradients = one.gradients();
  return worst_walked([&](WalkOrder order) { return projected(one, given, gradients, order); },
                      in_double([&](const Tensors& in) { return one.reference(in); }, given, gradients));
}

constexpr double kLikeFloat = 5e-6, kLikeTf32 = 1e-2;

// In 16 bits, in two orders.
void check_halves(const WalkedProjection& one) {
  CAPTURE(one.type, one.n, one.d, one.both);
  const double rounding = one.type == at::kHalf ? 1.0 / 2048 : 1.0 / 256;
  const Tensors given = one.operands();
  const Tensors gradients = one.gradients();
  const Tensors meant = in_double([&](const Tensors& in) { return one.reference(in); }, given, gradients);
  const Tensors got = projected(one, given, gradients, WalkOrder::kForward);
  const Tensors again = projected(one, given, gradients, WalkOrder::kBackward);
  const size_t table = gradients.size();  // the place of the projection's gradient
  for (size_t i = 0; i < got.size(); ++i) {
    CHECK(at::equal(got[i], again[i]));
    CHECK(got[i].scalar_type() == (i == table ? at::kFloat : one.type));
    // Of tables there are ten bits in products; tokens and their mixtures' gradients lose nothing there.
    const double largest = meant[i].abs().max().item<double>();
    CHECK(difference(got[i].to(at::kDouble), meant[i]) < (i == table ? kLikeFloat : largest * (rounding + 1.0 / 1024)));
  }
}

int counted_projections = 0;

void count_projection(const ProjectionArguments&) { ++counted_projections; }

at::Tensor counted_forward(const at::Tensor& projection, const at::Tensor& x, const at::Tensor& y,
                           const at::Tensor& valid) {
  return project_forward_device(projection, x, y, valid, count_projection);
}
ProjectionGradients counted_backward(const at::Tensor& x_gradient, const at::Tensor& y_gradient,
                                     const at::Tensor& projection, const at::Tensor& x, const at::Tensor& y,
                                     const at::Tensor& valid) {
  return project_backward_device(x_gradient, y_gradient, projection, x, y, valid, count_projection);
}

// All launches of two sides, with one projection for all heads, where all of it is held.
constexpr bool mixtures_fit(int64_t units, int64_t n, int64_t rows) {
  if (!is_held(units, rows, 1) || !is_held(1, rows, n)) return true;
  ProjectionArguments a;
  a.b = units, a.h = 1, a.n = a.columns = n, a.rows = rows, a.d = kProjectedWidest / 2, a.count = 2;
  a.parts = table_parts(a.b, table_tiles(a.heads, rows, n));
  const MixtureProgram<float, 2, 32, 2> mixtures{a};
  const MixedTokenProgram<float, 2, 32, 2> tokens{a};
  const TableGradientProgram<float, 2, 32, 2> table{a};
  const LaunchGrid gradients = joined_grid(table.grid(), tokens.grid());
  TilePlaneArguments planes;
  planes.count = 3;
  planes.sources[0].samples = 1, planes.sources[0].heads = tiles_of(n), planes.sources[0].rows = rows;
  for (int i = 1; i < 3; ++i)
    planes.sources[i].samples = units, planes.sources[i].heads = 1, planes.sources[i].rows = n;
  return a.parts >= 1 && a.parts <= a.b && launch_fits<MixtureProgram<float, 2, 32, 2>>(mixtures.grid()) &&
         mixtures.grid().blocks == units * tiles_of(rows) && tokens.grid().blocks == units * tiles_of(n) &&
         table.grid().blocks == a.parts * tiles_of(rows) * tiles_of(n) &&
         // A head of each block leaves none for the table's, and none for planes of two sides: refused.
         (units == kMostBlocks ? gradients.blocks > units && tile_plane_grid(planes).blocks > 2 * units
                               : launch_fits<MixedTokenProgram<float, 2, 32, 2>>(gradients) &&
                                     launch_fits<TilePlaneProgram<2, float>>(tile_plane_grid(planes))) &&
         resident_blocks(kSm90, kTileThreads, 1, gradients.shared_bytes) >= decltype(tokens)::kResident;
}

}  // namespace

TEST_CASE("mixtures of tokens on a device: every length from 1 to 130") {
  const PoisonedMemory poisoned;
  for (int64_t n = 1; n <= 130; ++n) {
    CAPTURE(n);
    CHECK(worst_projection({.n = n,
                            .longest = n + n % 4,
                            .rows = 1 + n % 70,
                            .d = 1 + n % 40,
                            .b = near_border(n) ? 2 : 1,
                            .h = 1 + n % 2,
                            .heads = 1,
                            .masked = n % 3 > 0,
                            .both = n % 2 > 0}) < kLikeFloat);
  }
}

TEST_CASE("mixtures of tokens on a device: widths, rows, heads, kinds of product and strides") {
  const PoisonedMemory poisoned;
  for (const int64_t d : {1, 8, 32, 33, 64}) {
    CAPTURE(d);
    CHECK(worst_projection({.d = d}) < kLikeFloat);
  }
  CHECK(worst_projection({.longest = 200, .rows = 130}) < kLikeFloat);
  CHECK(worst_projection({.heads = 1}) < kLikeFloat);
  CHECK(worst_projection({.masked = false, .gaps = true}) < kLikeFloat);
  CHECK(worst_projection({.both = false}) < kLikeFloat);
  CHECK(worst_projection({.d = 32, .tf32 = true}) < kLikeTf32);
  CHECK(worst_projection({.d = 64, .tf32 = true}) < kLikeTf32);
  // TF32 is not float: the bound of one would catch the other.
  CHECK(worst_projection({.d = 32, .tf32 = true}) > 10 * kLikeFloat);
}

TEST_CASE("mixtures of tokens on a device in 16 bits: rounded once, gradients of the projection not at all") {
  const PoisonedMemory poisoned;
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf})
    for (const int64_t d : {3, 16, 32, 40, 64})
      for (const bool both : {true, false})
        check_halves({.n = 130, .longest = 136, .rows = 70, .d = d, .both = both, .gaps = d == 16, .type = type});
  // Near tiles' borders types take turns.
  for (int64_t n = 1; n <= 130; ++n)
    if (near_border(n))
      check_halves({.n = n,
                    .longest = n + n % 4,
                    .masked = n % 3 > 0,
                    .both = n / 2 % 2 == 0,
                    .type = n % 2 == 0 ? at::kHalf : at::kBFloat16});
}

// Each tile has a factor of its own: what stands in others must not decide how well it is kept, nor be mixed up with
// it.
TEST_CASE("mixtures of tokens on a device: tiles of other sizes than their neighbours'") {
  const PoisonedMemory poisoned;
  const WalkedProjection one{.n = 200, .longest = 200, .rows = 130, .d = 32, .masked = false};
  Tensors given = one.operands(), gradients = one.gradients();
  const auto scaled = [](const at::Tensor& x, int64_t axis, double step) {  // by `step` from one tile to the next
    at::Tensor tiles = at::arange(x.size(axis), at::kDouble).div(64, "floor");
    at::Tensor factors = at::pow(at::full({}, step, at::kDouble), tiles).to(at::kFloat);
    std::vector<int64_t> shape(4, 1);
    shape.resize(static_cast<size_t>(x.dim()), 1);
    shape[static_cast<size_t>(axis)] = x.size(axis);
    return x * factors.view(shape);
  };
  given[0] = scaled(given[0], 2, 1.0 / 5000), given[1] = scaled(given[1], 2, 5000), given[2] = given[2] * 3e-8;
  gradients[0] = scaled(gradients[0], 2, 100) * 1e-9, gradients[1] = gradients[1] * 1e-12;
  const Tensors meant = in_double([&](const Tensors& in) { return one.reference(in); }, given, gradients);
  const Tensors got = projected(one, given, gradients, WalkOrder::kForward);
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK((got[i] - meant[i]).abs().max().item<double>() < 2e-6 * meant[i].abs().max().item<double>());
  }
}

TEST_CASE("mixtures of tokens on a device: parts of several samples") {
  const PoisonedMemory poisoned;
  const WalkedProjection one{.n = 200, .longest = 200, .rows = 9, .d = 3, .b = 140, .h = 1, .heads = 1};
  CHECK(table_parts(one.b, table_tiles(1, one.rows, one.longest)) == 99);
  const Tensors given = one.operands();
  const Tensors gradients = one.gradients();
  const at::Tensor found = projected(one, given, gradients, WalkOrder::kForward)[2];
  const at::Tensor meant = in_double([&](const Tensors& in) { return one.reference(in); }, given, gradients)[2];
  CHECK(difference(found.to(at::kDouble), meant) < kLikeFloat);
}

TEST_CASE("mixtures of tokens on a device: what stands in padding does not matter") {
  const PoisonedMemory poisoned;
  const WalkedProjection one{.n = 100, .longest = 100};
  Tensors given = one.operands();
  Tensors gradients = one.gradients();
  const Tensors clean = projected(one, given, gradients, WalkOrder::kForward);
  for (const size_t i : {1, 2}) given[i] = lost_padding(given[i], one.valid());
  const Tensors lost = projected(one, given, gradients, WalkOrder::kForward);
  for (size_t i = 0; i < clean.size(); ++i) CHECK(at::equal(lost[i], clean[i]));
  // A gradient that is lost comes to no padding.
  gradients[0].fill_(NAN);
  const at::Tensor of_x = projected(one, given, gradients, WalkOrder::kForward)[3];
  CHECK(at::equal(of_x.isnan(), one.valid().unsqueeze(1).unsqueeze(-1).expand_as(of_x)));
}

// LibTorch's meta device has shapes and types but no memory: what is launched there is counted.
TEST_CASE("a device with kernels of mixtures runs them: two launches forwards, two backwards") {
  counted_projections = 0;
  torch::Library library(torch::Library::IMPL, "xformer", c10::DispatchKey::Meta, __FILE__, __LINE__);
  library.impl("project_tokens_forward", dispatched<counted_forward>);
  library.impl("project_tokens_backward", dispatched<counted_backward>);
  const auto launches = [&](int64_t d, at::ScalarType type, bool both) {
    const auto leaf = [&](at::IntArrayRef shape, at::ScalarType own) {
      return at::empty(shape, at::TensorOptions(at::kMeta).dtype(own)).requires_grad_(true);
    };
    Tensors inputs{leaf({1, 7, 50}, type == at::kDouble ? type : at::kFloat), leaf({2, 3, 40, d}, type)};
    if (both) inputs.push_back(leaf({2, 3, 40, d}, type));
    const OpCounter counter;
    const TokenMixtures mixtures = project_tokens(inputs[0], inputs[1], both ? inputs[2] : at::Tensor(), {});
    Tensors out{mixtures.x}, ones{at::ones_like(mixtures.x)};
    if (both) out.push_back(mixtures.y), ones.push_back(at::ones_like(mixtures.y));
    const Tensors found = torch::autograd::grad(out, inputs, ones);
    for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].sizes() == inputs[i].sizes());
    if (counted_projections > 0) CHECK(counter.counts().flops == 6 * 2 * 3 * 40 * d * 7 * (both ? 2 : 1));
    return std::exchange(counted_projections, 0);
  };
  CHECK(launches(32, at::kFloat, true) == 4);
  CHECK(launches(kProjectedWidest, at::kFloat, false) == 4);
  CHECK(launches(32, at::kBFloat16, true) == 4);
  CHECK(launches(32, at::kHalf, false) == 4);
  CHECK(launches(kProjectedWidest + 1, at::kFloat, true) == 0);
  CHECK(launches(kProjectedWidest + 1, at::kBFloat16, true) == 0);
  CHECK(launches(32, at::kDouble, true) == 0);
}

TEST_CASE("plans of mixtures of tokens fit a device at any size") {
  STATIC_REQUIRE(all_fit({1, 256, 1 << 13}, mixtures_fit));
  const auto taken = [](int64_t rows, int64_t n) {
    return fits_projection_programs(at::empty({1, rows, n}, at::kMeta), at::empty({1, 1, n, 1}, at::kMeta));
  };
  CHECK((taken(1, kMostNumbered) && taken(kMostNumbered, 1)));
  CHECK_FALSE((taken(1, kMostNumbered + 1) || taken(kMostNumbered + 1, 1)));
  for (const int64_t units : {int64_t{1}, int64_t{1} << 12})
    for (const int64_t n : {int64_t{1}, int64_t{2048}, int64_t{1} << 20})
      for (const int64_t rows : {int64_t{1}, int64_t{256}, int64_t{1} << 13}) {
        ProjectionArguments a;
        a.b = units, a.h = 4, a.heads = 4, a.n = n, a.columns = n, a.rows = rows, a.d = 64, a.count = 2;
        a.parts = table_parts(a.b, table_tiles(a.heads, rows, n));
        CHECK((a.parts >= 1 && a.parts <= a.b));
        for (const ProjectionStage stage : {ProjectionStage::kMixtures, ProjectionStage::kGradients}) {
          a.stage = stage;
          run_projection<WalkedTypes>(a, [&](const LaunchGrid& grid, const auto& program) {
            CHECK((grid.blocks >= 1 && grid.blocks <= kMostBlocks && grid.shared_bytes <= kMostSharedBytes));
            CHECK(resident_blocks(kSm90, kTileThreads, 1, grid.shared_bytes) >= program.kResident);
          });
        }
      }
}

}  // namespace xformer::kernels::token_projection_device_test
