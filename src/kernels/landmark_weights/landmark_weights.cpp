#include "kernels/landmark_weights/landmark_weights.h"

#include <ATen/Dispatch.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "core/error.h"
#include "kernels/attention/weight_rows.h"
#include "kernels/batched_product/batched_product.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/heads.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/units.h"
#include "kernels/cpu/valid_rows.h"
#include "kernels/fused.h"

namespace xformer::kernels {

namespace {

// Scores of a row of `count`, of which `valid` (nullptr: all) are landmarks, to weights.
template <class Value>
void weigh(Value* row, int64_t count, const bool* valid, Value scale) {
  constexpr auto kNone = -std::numeric_limits<Value>::infinity(), kFactor = static_cast<Value>(kLog2OfE);
  if (valid != nullptr)
    for (int64_t j = 0; j < count; ++j) row[j] = valid[j] ? row[j] : kNone;
  const Value factor = scale * kFactor, largest = row_largest(row, count, kNone);
  const Value sum = row_weights(row, count, {factor, factor * largest, nullptr, 0, 1}, row);
  for (int64_t j = 0; j < count; ++j) row[j] /= sum;
}

at::Tensor weigh_landmarks(const at::Tensor& q, const at::Tensor& k, const at::Tensor& landmarks, double scale) {
  const int64_t heads = q.size(1), m = q.size(2), d = q.size(3), units = q.size(0) * heads;
  const ValidRows valid(landmarks, m);
  const at::Tensor result = at::empty({q.size(0), heads, m, m}, computed_options(q));
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, q.scalar_type(), "landmark_weights", [&] {
    using Value = Computed<scalar_t>;
    const auto queries = reading<scalar_t>(q), keys = reading<scalar_t>(k);
    Value* const all = result.mutable_data_ptr<Value>();
    for_units(units, m * m * d, [&](int64_t unit, int64_t) {
      const int64_t b = unit / heads, h = unit % heads, end = valid.end(b);
      const bool* const flags = valid.all(b, 0, end) ? nullptr : valid.flags(b);
      Value* const matrix = all + unit * m * m;
      gemm(end, end, d, Value(1), {queries.at(b, h), queries.stride}, {keys.at(b, h), keys.stride, true}, Value(0),
           matrix, m);
      for (int64_t i = 0; i < end; ++i) {
        Value* const row = matrix + i * m;
        const bool counts = flags == nullptr || flags[i];
        if (counts) weigh(row, end, flags, static_cast<Value>(scale));
        std::fill(row + (counts ? end : 0), row + m, Value(0));
      }
      std::fill(matrix + end * m, matrix + m * m, Value(0));
    });
  });
  return result;
}

struct LandmarkGradients {
  at::Tensor q, k;
};

// The gradient of scores is P (dP - delta) scale, delta the row's sum of P dP.
LandmarkGradients weigh_landmarks_backward(const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k,
                                           const at::Tensor& weights, const at::Tensor& landmarks, double scale) {
  const int64_t heads = q.size(1), m = q.size(2), d = q.size(3), units = q.size(0) * heads;
  const ValidRows valid(landmarks, m);
  LandmarkGradients result{new_heads(q, m, d), new_heads(k, m, d)};
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, q.scalar_type(), "landmark_weights_backward", [&] {
    using Value = Computed<scalar_t>;
    const auto queries = reading<scalar_t>(q), keys = reading<scalar_t>(k);
    const auto into_q = writing<scalar_t>(result.q), into_k = writing<scalar_t>(result.k);
    const Value *const p = weights.const_data_ptr<Value>(), *const slopes = gradient.const_data_ptr<Value>();
    struct Rooms {
      std::vector<Value> scores, factor, sums;
    };
    std::vector<Rooms> rooms(static_cast<size_t>(workers_for(units)));
    for_units(units, 2 * m * m * d, [&](int64_t unit, int64_t worker) {
      Rooms& room = rooms[static_cast<size_t>(worker)];
      const int64_t b = unit / heads, h = unit % heads, end = valid.end(b);
      Value* const scores = grown(room.scores, end * end);
      for (int64_t i = 0; i < end; ++i) {
        const Value *const w = p + (unit * m + i) * m, *const g = slopes + (unit * m + i) * m;
        Value* const row = scores + i * end;
        const Value delta = row_product(w, g, end);
        if (valid.at(b, i))
          for (int64_t j = 0; j < end; ++j) row[j] = static_cast<Value>(scale) * w[j] * (g[j] - delta);
        else std::fill_n(row, end, Value(0));
      }
      // One of the two gradients, from the scores' and the other factor.
      const auto multiply = [&](bool transposed, const Heads<const scalar_t>& other, const Heads<scalar_t>& into) {
        const auto factor = loaded_rows(other.at(b, h), other.stride, end, d, room.factor);
        scalar_t* const to = into.at(b, h);
        const TileRows<Value> sums = rows_for(to, into.stride, end, d, room.sums);
        gemm(end, d, end, Value(1), {scores, end, transposed}, {factor.data, factor.stride}, Value(0), sums.data,
             sums.stride);
        store_rows(sums, end, d, to, into.stride);
        clear_heads(into, heads, b, h, end, m, d);
      };
      multiply(false, keys, into_q);
      multiply(true, queries, into_k);
    });
  });
  return result;
}

at::Tensor definition(const at::Tensor& q, const at::Tensor& k, double scale, const SequenceMask& mask) {
  return masked_softmax(batched_product(in_float(q) * scale, in_float(k).transpose(-1, -2)), mask);
}

struct LandmarkWeightsCall {
  at::Tensor q, k, landmarks;
  double scale;
  at::Tensor weights;

  static constexpr const char* kName = "landmark_weights";
  static inline const Operator<weigh_landmarks> kForward{"landmark_weights_forward"};
  static inline const Operator<weigh_landmarks_backward> kBackward{"landmark_weights_backward"};
  static constexpr bool kTakesBf16 = true;
  static bool is_statistic(size_t /*output*/) { return true; }

  [[nodiscard]] variable_list inputs() const { return {q, k}; }
  variable_list forward() {
    q = with_rows(q), k = with_rows(k);
    weights = kForward(q, k, landmarks, scale);
    return {weights};
  }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    return tensors_of(kBackward(gradients[0].contiguous(), q, k, weights, landmarks, scale));
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    const SequenceMask mask{landmarks};
    return {mask.zero_padding(definition(in[0], in[1], scale, mask))};
  }
};

}  // namespace

at::Tensor landmark_weights(const at::Tensor& q, const at::Tensor& k, double scale, const SequenceMask& mask) {
  XF_ASSERT(!mask.causal && q.sizes() == k.sizes(), "landmarks weigh each other, whatever their order");
  const LandmarkWeightsCall call{q, k, mask.key_valid, scale, {}};
  return fused_type<LandmarkWeightsCall>(call.inputs()) ? run_fused(call)[0] : definition(q, k, scale, mask);
}

}  // namespace xformer::kernels
