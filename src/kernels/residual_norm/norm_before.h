// The norm of x before what takes it, a feed-forward part or linear maps, on the CPU: a block of normed rows stays in
// the cache, and two numbers a row are kept of it: the backward pass makes it again of x.
#pragma once

#include <optional>

#include "kernels/residual_norm/blocks.h"

namespace xformer::kernels {

template <class Stored>
class NormBefore {
  using Value = Computed<Stored>;

 public:
  // Of `pass` x, which is contiguous, and which rows of it are needed; `mean` and `rstd` [rows] are written forwards
  // and read backwards, where somebody needs a row.
  NormBefore(const NormPass& pass, const NormWeights& norm, const at::Tensor& mean, const at::Tensor& rstd,
             int64_t workers)
      : pass_(pass),
        x_(pass.x.const_data_ptr<Stored>()),
        weight_(norm.weight.contiguous()),
        bias_(norm.bias.contiguous()),
        epsilon_(static_cast<Value>(norm.epsilon)),
        mean_(mean.mutable_data_ptr<Value>()),
        rstd_(rstd.mutable_data_ptr<Value>()),
        rooms_(static_cast<size_t>(workers)) {
    XF_ASSERT(weight_.numel() == pass.width && bias_.numel() == pass.width, "norm weights of {} for rows of {}",
              weight_.numel(), pass.width);
    XF_ASSERT(mean.numel() == pass.rows && rstd.numel() == pass.rows, "two numbers for each of {} and {} rows, not {}",
              mean.numel(), rstd.numel(), pass.rows);
  }

  // Normed rows first .. first + count - 1 [count, width], some of them needed or all; `again`: backwards.
  const Stored* rows(int64_t first, int64_t count, Needed which, int64_t worker, bool again) {
    const int64_t width = pass_.width;
    Room& room = rooms_[static_cast<size_t>(worker)];
    room.first = first;
    room.x = pass_.needed.only(which, first, count, width, x_ + first * width, room.x_needed);
    Stored* const normed = grown(room.normed, count * width);
    for_pieces(pass_, 0, count, [&](int64_t row, int64_t some) {
      const BlockForward<Stored> block{some,
                                       width,
                                       room.x + row * width,
                                       nullptr,
                                       {nullptr, 0, 1},
                                       nullptr,
                                       weight_.const_data_ptr<Value>(),
                                       bias_.const_data_ptr<Value>(),
                                       epsilon_,
                                       normed + row * width,
                                       mean_ + first + row,
                                       rstd_ + first + row};
      again ? norm_block_again(block, room.norm) : norm_block(block, room.norm);
    });
    return normed;
  }

  // Room for the gradient of `count` normed rows.
  Stored* slopes(int64_t count, int64_t worker) {
    return grown(rooms_[static_cast<size_t>(worker)].slopes, count * pass_.width);
  }

  // Backwards from slopes(), of those that rows() made last, and from what x's gradient is besides, of the same rows or
  // nullptr: to x_gradient [count, width]; those of weight and bias are added to `own` [2, width].
  void gradients(int64_t count, int64_t worker, const Stored* past, Stored* x_gradient, Value* own) {
    const int64_t width = pass_.width;
    Room& room = rooms_[static_cast<size_t>(worker)];
    for_pieces(pass_, 0, count, [&](int64_t row, int64_t some) {
      const int64_t at = row * width;
      norm_gradient_block(BlockBackward<Stored>{some,
                                                width,
                                                room.x + at,
                                                mean_ + room.first + row,
                                                rstd_ + room.first + row,
                                                weight_.const_data_ptr<Value>(),
                                                room.slopes.data() + at,
                                                past == nullptr ? nullptr : past + at,
                                                {nullptr, 0, 1},
                                                x_gradient + at,
                                                nullptr,
                                                own,
                                                own + width},
                          room.norm);
    });
  }

 private:
  struct Room {
    int64_t first = 0;
    const Stored* x = nullptr;
    std::vector<Stored> x_needed, normed, slopes;
    NormScratch<Stored> norm;
  };
  const NormPass& pass_;
  const Stored* x_;
  at::Tensor weight_, bias_;
  Value epsilon_;
  Value *mean_, *rstd_;
  std::vector<Room> rooms_;
};

// None without norm weights.
template <class Stored>
std::optional<NormBefore<Stored>> norm_before(const NormWeights& norm, const NormPass& pass, const at::Tensor& mean,
                                              const at::Tensor& rstd, int64_t workers) {
  if (!norm.weight.defined()) return std::nullopt;
  return std::optional<NormBefore<Stored>>(std::in_place, pass, norm, mean, rstd, workers);
}

}  // namespace xformer::kernels
