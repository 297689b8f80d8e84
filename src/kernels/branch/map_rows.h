// Rows of one linear map that ends a branch on the CPU, forwards and backwards; as part_rows.h has those of a
// feed-forward part.
#pragma once

#include "core/error.h"
#include "kernels/cpu/needed_rows.h"
#include "kernels/linear/cpu.h"

namespace xformer::kernels {

// Contiguous operands.
struct MapPass {
  at::Tensor x, weight, bias;  // the last may be undefined
  int64_t in, out, rows;
  NeededRows needed;

  MapPass(const at::Tensor& given, const LinearMap& map, const at::Tensor& needed_rows)
      : x(given.contiguous()),
        weight(map.weight.contiguous()),
        bias(map.bias.defined() ? map.bias.contiguous() : map.bias),
        in(x.size(-1)),
        out(weight.size(0)),
        rows(x.numel() / in),
        needed(needed_rows, rows) {
    XF_ASSERT(weight.size(1) == in, "a linear map of {} for rows of {}", weight.size(1), in);
  }

  // Elements of a row in all that a block holds.
  [[nodiscard]] int64_t row_width() const { return in + out; }
  [[nodiscard]] int64_t in_width() const { return in; }
  template <class Stored>
  [[nodiscard]] const Stored* inputs(int64_t first) const {
    return x.const_data_ptr<Stored>() + first * in;
  }
  // Gradients lie in a table: of the weight [out, in], of the bias [out].
  [[nodiscard]] int64_t table() const { return out * in + (bias.defined() ? out : 0); }
  [[nodiscard]] LinearMap gradients(const at::Tensor& sums) const {
    return {sums.narrow(0, 0, out * in).view({out, in}), bias.defined() ? sums.narrow(0, out * in, out) : at::Tensor()};
  }
};

template <class Stored>
class MapForward {
  using Value = Computed<Stored>;

 public:
  MapForward(const MapPass& pass, int64_t workers) : pass_(pass), rooms_(static_cast<size_t>(workers)) {
    weight_.pack(pass.rows, pass.in, pass.out, Value(1), {pass.weight.const_data_ptr<Value>(), pass.in, true});
  }

  // As PartForward::rows().
  void rows(int64_t first, int64_t count, Needed which, int64_t worker, const Stored* inputs, Stored* to) {
    map_rows(count, pass_.out, {inputs, pass_.in}, weight_,
             pass_.bias.defined() ? pass_.bias.const_data_ptr<Value>() : nullptr, to,
             rooms_[static_cast<size_t>(worker)]);
    if (which != Needed::kAll) pass_.needed.clear(first, count, pass_.out, to);
  }

 private:
  const MapPass& pass_;
  PackedFactor<Stored> weight_;
  std::vector<std::vector<Value>> rooms_;
};

template <class Stored>
class MapBackward {
  using Value = Computed<Stored>;

 public:
  MapBackward(const MapPass& pass, int64_t workers) : pass_(pass), rooms_(static_cast<size_t>(workers)) {
    weight_.pack(pass.rows, pass.out, pass.in, Value(1), {pass.weight.const_data_ptr<Value>(), pass.in});
  }

  // As PartBackward::rows().
  void rows(int64_t first, int64_t count, Needed which, int64_t worker, const Stored* from, const Stored* inputs,
            Stored* to, Value* table) {
    Room& room = rooms_[static_cast<size_t>(worker)];
    if (which == Needed::kNone) return pass_.needed.clear(first, count, pass_.in, to);
    from = pass_.needed.only(which, first, count, pass_.out, from, room.slopes);
    inputs = pass_.needed.only(which, first, count, pass_.in, inputs, room.inputs);
    Value* const into = place_for(to, count * pass_.in, room.x);
    map_gradient_rows(count, pass_.out, pass_.in, from, inputs, weight_, Value(0), into, pass_.bias.defined(), table);
    store(into, count * pass_.in, to);
  }

 private:
  struct Room {
    std::vector<Value> x;
    std::vector<Stored> inputs, slopes;
  };
  const MapPass& pass_;
  PackedFactor<Stored> weight_;
  std::vector<Room> rooms_;
};

}  // namespace xformer::kernels
