// Branches on the CPU: whoever makes a block of rows, a linear map or a feed-forward part, leaves it in the cache for
// the residual and the norm, and backwards finds its gradient there.
#include "kernels/branch/cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "kernels/branch/map_rows.h"
#include "kernels/cpu/part_tables.h"
#include "kernels/cpu/units.h"
#include "kernels/feed_forward/part_rows.h"
#include "kernels/residual_norm/norm_before.h"

namespace xformer::kernels {

namespace {

// Blocks of the maker's rows with those that lie beside them.
template <class Pass>
RowParts parts_of(const Pass& pass, const NormPass& norm, int64_t table = 1) {
  XF_ASSERT(pass.rows == norm.rows, "a branch of {} rows for {}", pass.rows, norm.rows);
  return {pass.rows, pass.row_width() + norm.width, table};
}

// The maker's rows, added and normalised.
template <class Stored, class Pass, class Maker>
void forward_rows(const RowParts& parts, const Pass& pass, Maker& maker, std::optional<NormBefore<Stored>> before,
                  const NormPass& norm, const ResidualNormForward& to) {
  const int64_t width = norm.width, workers = workers_for(parts.blocks);
  NormForward<Stored> end(norm, /*has_branch=*/true, to, workers);
  std::vector<std::vector<Stored>> tiles(static_cast<size_t>(workers));
  for_units(parts.blocks, parts.block_rows * pass.row_width() * width, [&](int64_t block, int64_t worker) {
    const int64_t begin = block * parts.block_rows;
    pass.needed.for_runs(
        begin, std::min(parts.block_rows, parts.rows - begin), [&](int64_t first, int64_t count, Needed which) {
          Stored* const tile = grown(tiles[static_cast<size_t>(worker)], count * width);
          if (which != Needed::kNone)
            maker.rows(first, count, which, worker,
                       before ? before->rows(first, count, which, worker, /*again=*/false)
                              : pass.template inputs<Stored>(first),
                       tile);
          else if (norm.needed.of(first, count) != Needed::kNone)  // the sum alone is made of all rows
            std::fill_n(tile, count * width, Stored(0));
          for_pieces(norm, first, count,
                     [&](int64_t row, int64_t rows) { end.rows(row, rows, worker, tile + (row - first) * width); });
        });
  });
}

// What flows back from the norm and past it.
struct Slopes {
  at::Tensor sum, normed;  // either may be undefined, but not both
  at::Tensor x;            // gradient of x: made where there is a norm, else that of the sum
  at::Tensor rows;         // gradient of the branch's rows, or, where it normalises them, of x: made
};

// Adds the maker's gradients, and behind them a norm's, to its parts' tables.
template <class Stored, class Pass, class Maker>
void backward_rows(const RowParts& parts, const Pass& pass, Maker& maker, std::optional<NormBefore<Stored>> before,
                   const NormPass& norm, const Slopes& slopes, const ResidualNormForward& made,
                   const PartTables& tables) {
  using Value = Computed<Stored>;
  const int64_t width = norm.width, workers = workers_for(parts.parts), table = tables.width();
  const bool drops = norm.draws.threshold() > 0;
  std::optional<NormBackward<Stored>> begin;
  if (slopes.normed.defined())
    begin.emplace(norm, /*has_branch=*/true, slopes.sum, slopes.normed, made, slopes.x, workers);
  struct Room {
    std::vector<Stored> tile, past_needed;
    NormScratch<Stored> norm;
  };
  std::vector<Room> rooms(static_cast<size_t>(workers));
  const auto* const x_slopes = slopes.x.const_data_ptr<Stored>();
  auto* const rows_gradient = slopes.rows.mutable_data_ptr<Stored>();
  for_units(parts.parts, parts.part_blocks * parts.block_rows * table, [&](int64_t part, int64_t worker) {
    Room& room = rooms[static_cast<size_t>(worker)];
    Value* const own = tables.begin<Value>(part);
    const auto run = [&](int64_t first, int64_t count, Needed which) {
      Stored* const tile = drops ? grown(room.tile, count * width) : nullptr;
      for_pieces(norm, first, count, [&](int64_t row, int64_t rows) {
        // Of rows that nobody needs no gradient is read.
        Stored* const to = drops && which != Needed::kNone ? tile + (row - first) * width : nullptr;
        if (begin) begin->rows(row, rows, worker, to, own + pass.table());
        else if (to != nullptr)
          drop_stored(x_slopes + row * width, norm.rule(row, rows, room.norm.draws), rows * width, to, room.norm);
      });
      const Stored* const from = drops ? tile : x_slopes + first * width;
      Stored* const to = rows_gradient + first * pass.in_width();
      if (!before || which == Needed::kNone)
        return maker.rows(first, count, which, worker, from, pass.template inputs<Stored>(first), to, own);
      const Stored* const normed = before->rows(first, count, which, worker, /*again=*/true);
      maker.rows(first, count, which, worker, from, normed, before->slopes(count, worker), own);
      const Stored* const past =
          norm.needed.only(which, first, count, width, x_slopes + first * width, room.past_needed);
      before->gradients(count, worker, past, to, own + pass.table());
    };
    parts.for_blocks(part, [&](int64_t first, int64_t count) { pass.needed.for_runs(first, count, run); });
  });
}

}  // namespace

BranchForward branch_forward_cpu(const at::Tensor& x, const Branch& branch, const DropoutPlace& drop,
                                 const NormWeights& norm_weights) {
  const bool normed = norm_weights.weight.defined();
  const NormPass norm(DrawnBy::kForward, x, /*has_branch=*/true, drop, norm_weights,
                      normed || branch.normalises() ? branch.needed : at::Tensor());
  BranchForward result;
  result.norm.sum = at::empty_like(norm.x);
  if (normed) result.norm.normed = at::empty_like(norm.x);
  if (normed || branch.normalises()) {
    result.norm.mean = at::empty({norm.rows}, computed_options(norm.x));
    result.norm.rstd = at::empty_like(result.norm.mean);
  }
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "branch", [&] {
    if (branch.in.weight.defined()) {
      const PartPass pass(DrawnBy::kForward, branch.rows, branch.in, branch.out, branch.tanh, branch.drop,
                          branch.needed);
      const RowParts parts = parts_of(pass, norm);
      const int64_t workers = workers_for(parts.blocks);
      result.z = at::empty(pass.with_width(pass.f), x.options());
      PartForward<scalar_t> maker(pass, result.z, /*from_memory=*/false, workers);
      forward_rows<scalar_t>(parts, pass, maker,
                             norm_before<scalar_t>(branch.norm, norm, result.norm.mean, result.norm.rstd, workers),
                             norm, result.norm);
    } else {
      const MapPass pass(branch.rows, branch.out, branch.needed);
      const RowParts parts = parts_of(pass, norm);
      MapForward<scalar_t> maker(pass, workers_for(parts.blocks));
      forward_rows<scalar_t>(parts, pass, maker, std::nullopt, norm, result.norm);
    }
  });
  return result;
}

BranchGradients branch_backward_cpu(const at::Tensor& sum_gradient, const at::Tensor& normed_gradient,
                                    const BranchForward& made, const Branch& branch, const DropoutPlace& drop,
                                    const at::Tensor& weight) {
  Slopes slopes{sum_gradient, normed_gradient, {}, {}};
  const bool normed = normed_gradient.defined(), own = branch.normalises();
  if (weight.defined() && !normed) slopes.sum = needed_alone(sum_gradient, branch.needed);  // nobody used the norm
  if (slopes.sum.defined()) slopes.sum = slopes.sum.contiguous();
  if (normed) slopes.normed = normed_gradient.contiguous();
  const NormPass norm(DrawnBy::kBackward,
                      normed ? made.norm.sum
                      : own  ? branch.rows
                             : slopes.sum,
                      /*has_branch=*/true, drop, {normed ? weight : at::Tensor(), {}},
                      normed || own ? branch.needed : at::Tensor());
  slopes.x = normed ? at::empty_like(norm.x) : slopes.sum;
  slopes.rows = at::empty_like(branch.rows, at::MemoryFormat::Contiguous);
  BranchGradients result;
  if (own) result.x = slopes.rows;
  else result.x = slopes.x, result.rows = slopes.rows;
  const auto tables_of = [&](const RowParts& parts, int64_t table) {
    return PartTables(parts, table + (normed || own ? 2 * norm.width : 0), computed_options(norm.x));
  };
  const auto summed = [&](const PartTables& tables, int64_t table) {
    const at::Tensor sums = tables.sum();
    if (!normed && !own) return sums;
    (own ? result.own_weight : result.weight) = sums.narrow(0, table, norm.width);
    (own ? result.own_bias : result.bias) = sums.narrow(0, table + norm.width, norm.width);
    return sums;
  };
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, norm.x.scalar_type(), "branch_backward", [&] {
    if (branch.in.weight.defined()) {
      const PartPass pass(DrawnBy::kBackward, branch.rows, branch.in, branch.out, branch.tanh, branch.drop,
                          branch.needed);
      const RowParts parts = parts_of(pass, norm, pass.table());
      const PartTables tables = tables_of(parts, pass.table());
      const int64_t workers = workers_for(parts.parts);
      PartBackward<scalar_t> maker(pass, made.z, /*from_memory=*/false, /*x_wanted=*/true, workers);
      backward_rows<scalar_t>(parts, pass, maker,
                              norm_before<scalar_t>(branch.norm, norm, made.norm.mean, made.norm.rstd, workers), norm,
                              slopes, made.norm, tables);
      pass.take_gradients(summed(tables, pass.table()), result.in, result.out);
    } else {
      const MapPass pass(branch.rows, branch.out, branch.needed);
      const RowParts parts = parts_of(pass, norm, pass.table());
      const PartTables tables = tables_of(parts, pass.table());
      MapBackward<scalar_t> maker(pass, workers_for(parts.parts));
      backward_rows<scalar_t>(parts, pass, maker, std::nullopt, norm, slopes, made.norm, tables);
      result.out = pass.gradients(summed(tables, pass.table()));
    }
  });
  return result;
}

}  // namespace xformer::kernels
