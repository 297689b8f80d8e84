// The passes of feature_attention.h on a device, but for the launches themselves: cuda.cpp gives them, tests walk the
// programs. The signatures are the CPU's (cpu.h), but not what the forward pass leaves: `denominator` is turned over, 0
// where a row does not count, and has, causal, sums of features behind it; FeatureOperands says what the others are.
#pragma once

#include "kernels/device/head_tensors.h"
#include "kernels/feature_attention/cpu.h"
#include "kernels/feature_attention/stages.h"

namespace xformer::kernels {

// Whether a device's programs take such heads.
[[nodiscard]] inline bool fits_feature_programs(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                const FeatureAttentionOptions& options) {
  const at::ScalarType type = q.scalar_type();
  return type != at::kDouble && k.scalar_type() == type && v.scalar_type() == type &&
         numbered_by_ints({q, k, v, options.omega}) && std::max(q.size(3), v.size(3)) <= kFeatureHeadWidest &&
         q.numel() > 0 && k.numel() > 0 && v.numel() > 0 && (!options.omega.defined() || options.omega.size(0) > 0);
}

// Operands as programs read them, which must outlive the launches, and what these are told.
struct FeatureOperands {
  at::Tensor q, k, v, query_valid, key_valid, omega, gradient;
  FeatureArguments a;

  FeatureOperands(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v_in,
                  const FeatureAttentionOptions& options, const at::Tensor& gradient_in = {})
      : q(readable_heads(q_in)),
        k(readable_heads(k_in)),
        v(readable_heads(v_in)),
        query_valid(readable_flags(options.query_valid)),
        key_valid(readable_flags(options.mask.key_valid)) {
    TORCH_CHECK(fits_feature_programs(q, k, v, options),
                "feature attention on a device takes heads of one type, not double, at most ", kFeatureHeadWidest,
                " wide");
    a.type = element_type(q), a.product = product_kind();
    a.map = options.map, a.causal = options.mask.causal;
    TORCH_CHECK(!a.causal || q.size(2) == k.size(2), "the causal form takes as many keys as queries");
    a.b = q.size(0), a.h = q.size(1);
    a.d = static_cast<int>(q.size(3)), a.e = static_cast<int>(v.size(3)), a.f = a.d;
    a.scale = static_cast<float>(options.scale), a.floor = static_cast<float>(options.floor);
    a.epsilon = static_cast<float>(options.epsilon), a.divisor = static_cast<float>(options.divisor);
    if (options.omega.defined()) {
      TORCH_CHECK(options.omega.scalar_type() == at::kFloat && options.omega.size(1) == a.d, "omega is [f,d] of float");
      omega = options.omega.contiguous();
      a.f = static_cast<int>(omega.size(0));
      a.omega = read_floats(omega), a.omega_places = {a.d, a.d % kRun == 0 && reads_wide({omega})};
    }
    a.q = {q.const_data_ptr(), head_places(q), valid_flags(query_valid, a.b, q.size(2)), q.size(2)};
    a.k = {k.const_data_ptr(), head_places(k), valid_flags(key_valid, a.b, k.size(2)), k.size(2)};
    a.v = v.const_data_ptr(), a.v_places = head_places(v);
    if (!gradient_in.defined()) return;
    gradient = readable_heads(gradient_in);
    TORCH_CHECK(gradient.scalar_type() == q.scalar_type(), "a gradient of another type than its heads");
    a.gradient = gradient.const_data_ptr(), a.gradient_places = head_places(gradient);
  }

  [[nodiscard]] at::TensorOptions floats() const { return q.options().dtype(at::kFloat); }

  // kSoftmax: the numbers of rows, in one tensor of floats, the shifts of queries and of keys and c, and one of ints,
  // the features of queries and of keys and the key that gave c.
  void take_shifts(const at::Tensor& largest, const at::Tensor& winner) {
    if (a.map != FeatureMap::kSoftmax) return;
    const int64_t queries = a.heads() * a.q.rows, keys = a.heads() * a.k.rows;
    a.q.shift = written_floats(largest), a.k.shift = a.q.shift + queries, a.largest = a.k.shift + keys;
    a.q.feature = static_cast<int*>(winner.mutable_data_ptr());
    a.k.feature = a.q.feature + queries, a.winner = a.k.feature + keys;
  }
  [[nodiscard]] int64_t shifts() const {
    return a.map == FeatureMap::kSoftmax ? a.heads() * (a.q.rows + 2 * a.k.rows) : 0;
  }

  template <class Launch>
  void run(FeatureStage stage, const Launch& launch) {
    a.stage = stage;
    launch(a);
  }
  // The sums over keys or queries, which later stages read: [z,table_size()], or, causal, in one piece the chunks and
  // the parts that FeatureArguments has.
  template <class Launch>
  [[nodiscard]] at::Tensor run_sums(FeatureStage stage, const Launch& launch) {
    const int64_t rows = stage == FeatureStage::kKeySums ? a.k.rows : a.q.rows, size = a.table_size();
    const int64_t parts = feature_division(a.heads(), rows, a.f).parts;
    if (a.causal) {
      const at::Tensor tables = at::empty({a.heads() * (tiles_of(rows) + parts) * size}, floats());
      take_table(tables);
      run(stage, launch);
      return tables;
    }
    const at::Tensor sums = at::empty({a.heads(), parts, size}, floats());
    a.parts = written_floats(sums);
    run(stage, launch);
    at::Tensor table = parts == 1 ? sums.select(1, 0) : sums.sum(1);
    take_table(table);
    return table;
  }
  void take_table(const at::Tensor& table) {
    a.wide_table = a.e % kRun == 0 && reads_wide({table});
    if (!a.causal) {
      a.table = read_floats(table);
      return;
    }
    a.chunks = written_floats(table);
    a.parts = a.chunks + a.heads() * tiles_of(a.q.rows) * a.table_size();
  }
  void take_rows(const at::Tensor& numbers) {
    a.inverse = written_floats(numbers), a.totals = a.inverse + a.heads() * a.q.rows;
  }
};

// Launch takes FeatureArguments.
template <class Launch>
FeatureAttentionForward feature_attention_forward_device(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                         const FeatureAttentionOptions& options, const Launch& launch) {
  FeatureOperands operands(q, k, v, options);
  FeatureArguments& a = operands.a;
  FeatureAttentionForward result;
  result.out = rows_of_heads(operands.q, a.q.rows, a.e);
  result.denominator = at::empty({a.apart() ? 2 : 1, a.heads(), a.q.rows}, operands.floats());
  result.largest = at::empty({operands.shifts()}, operands.floats());
  result.winner = at::empty({operands.shifts()}, operands.q.options().dtype(at::kInt));
  a.out = result.out.mutable_data_ptr();
  operands.take_rows(result.denominator);
  operands.take_shifts(result.largest, result.winner);
  if (a.map == FeatureMap::kSoftmax) operands.run(FeatureStage::kShifts, launch);
  result.table = operands.run_sums(FeatureStage::kKeySums, launch);
  operands.run(FeatureStage::kAnswers, launch);
  return result;
}

// Launch takes FeatureArguments.
template <class Launch>
FeatureAttentionGradients feature_attention_backward_device(const at::Tensor& gradient, const at::Tensor& q,
                                                            const at::Tensor& k, const at::Tensor& v,
                                                            const FeatureAttentionForward& forward,
                                                            const FeatureAttentionOptions& options,
                                                            const Launch& launch) {
  FeatureOperands operands(q, k, v, options, gradient);
  FeatureArguments& a = operands.a;
  FeatureAttentionGradients result{rows_of_heads(operands.q, a.q.rows, a.d), rows_of_heads(operands.q, a.k.rows, a.d),
                                   rows_of_heads(operands.q, a.k.rows, a.e)};
  const at::Tensor d_sum = at::empty({a.heads(), a.q.rows}, operands.floats());
  const at::Tensor slopes = at::empty({a.map == FeatureMap::kSoftmax ? a.heads() * a.k.rows : 0}, operands.floats());
  a.out = forward.out.mutable_data_ptr();
  a.d_sum = written_floats(d_sum), a.slopes = written_floats(slopes);
  a.dq = result.q.mutable_data_ptr(), a.dk = result.k.mutable_data_ptr(), a.dv = result.v.mutable_data_ptr();
  operands.take_rows(forward.denominator);
  operands.take_shifts(forward.largest, forward.winner);
  operands.take_table(forward.table);
  operands.run(FeatureStage::kQueryGradients, launch);
  const at::Tensor d_table = operands.run_sums(FeatureStage::kQuerySums, launch);
  operands.run(FeatureStage::kKeyGradients, launch);
  return result;
}

}  // namespace xformer::kernels
