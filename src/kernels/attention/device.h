// The passes of attention.h on a device, but for the launches themselves: cuda.cpp gives them, tests walk the programs.
// The signatures are the CPU's (cpu.h).
#pragma once

#include <algorithm>

#include "kernels/attention/cpu.h"
#include "kernels/attention/gradient_program.h"
#include "kernels/device/head_tensors.h"

namespace xformer::kernels {

// Whether the programs take these: narrow heads of one type, float, bf16 or fp16, rows that an int counts.
[[nodiscard]] inline bool fits_attention_programs(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const at::ScalarType type = q.scalar_type();
  return type != at::kDouble && k.scalar_type() == type && v.scalar_type() == type &&
         std::max(q.size(3), v.size(3)) <= kAttentionWidest && numbered_by_ints({q, k, v});
}

[[nodiscard]] inline AttentionOptions with_readable_flags(AttentionOptions options) {
  options.mask.key_valid = readable_flags(options.mask.key_valid);
  options.query_valid = readable_flags(options.query_valid);
  return options;
}

// What both passes are told; q, k and v as readable_heads() gives them, options with readable flags. All must outlive
// the launch.
[[nodiscard]] inline AttentionArguments attention_arguments(const at::Tensor& q, const at::Tensor& k,
                                                            const at::Tensor& v, const AttentionOptions& options) {
  AttentionArguments a;
  for (const at::Tensor& one : {q, k, v})
    TORCH_CHECK(one.scalar_type() == q.scalar_type() && one.size(3) <= kAttentionWidest && one.device() == q.device(),
                "attention on a device takes heads of one type, at most ", kAttentionWidest, " wide");
  a.type = element_type(q);
  TORCH_CHECK(a.type != ElementType::kDouble, "attention on a device takes no heads of double");
  a.product = product_kind();
  a.q = q.const_data_ptr(), a.k = k.const_data_ptr(), a.v = v.const_data_ptr();
  a.q_places = head_places(q), a.k_places = head_places(k), a.v_places = head_places(v);
  a.b = q.size(0), a.h = q.size(1), a.n = q.size(2), a.m = k.size(2);
  a.d = static_cast<int>(q.size(3)), a.e = static_cast<int>(v.size(3));
  a.scale = static_cast<float>(options.scale);
  a.causal = options.mask.causal;
  a.key_valid = valid_flags(options.mask.key_valid, a.b, a.m);
  a.query_valid = valid_flags(options.query_valid, a.b, a.n);
  const uint32_t threshold = dropout_threshold(options.dropout.p);
  if (threshold > 0) a.drop = device_drop(options.dropout, q), a.drop.row_elements = a.h * a.n * a.m;
  return a;
}

// In how many parts a pass over so many rows of these heads sees `seen` others.
[[nodiscard]] inline int64_t seen_parts(const at::Tensor& q, int64_t rows, int64_t seen) {
  return attention_division(q.size(0) * q.size(1), rows, seen).parts;
}

// Planes of heads (planes.h), in memory that must outlive the launch.
class AttentionPlanes {
 public:
  // of: q, k, v and, backwards, the gradient, as readable_heads() gives them; `a` has what attention_arguments() says.
  // Forwards q needs no plane, and its has no tiles.
  AttentionPlanes(AttentionArguments& a, at::TensorList of) {
    arguments.type = a.type, arguments.product = a.product, arguments.b = a.b, arguments.h = a.h;
    const int64_t terms = plane_terms(a.type, a.product);
    const at::TensorOptions options = of[0].options();
    for (const at::Tensor& heads : of) {
      PlaneSource& source = arguments.sources[arguments.count];
      const bool is_query = arguments.count == kQueryPlane || arguments.count == kGradientPlane;
      source.heads = heads.const_data_ptr(), source.places = head_places(heads);
      source.valid = is_query ? a.query_valid : a.key_valid;
      source.rows = of.size() == 3 && is_query ? 0 : heads.size(2), source.width = static_cast<int>(heads.size(3));
      memory_.push_back(at::empty({a.b * a.h * tiles_of(source.rows) * kTileSide, attention_width(a.d, a.e) * terms},
                                  options.dtype(at::kHalf)));
      source.plane = memory_.back().mutable_data_ptr();
      a.planes[arguments.count++] = source.plane;
    }
    maxima_ = at::empty({plane_blocks(arguments)}, options.dtype(at::kFloat));
    factors_ = at::empty({arguments.count, a.b * a.h}, maxima_.options());
    arguments.maxima = written_floats(maxima_), arguments.factors = written_floats(factors_);
    a.factors = arguments.factors;
  }

  PlaneArguments arguments;

 private:
  std::vector<at::Tensor> memory_;
  at::Tensor maxima_, factors_;
};

// Pairs of a head up to which it is written down which weights dropout keeps: a bit each.
inline constexpr int64_t kMostKeptPairs = int64_t{1} << 24;

// Memory for that, undefined where nothing is dropped or both passes are to draw.
[[nodiscard]] inline at::Tensor kept_weights(const AttentionArguments& a, const at::Tensor& q) {
  if (a.drop.threshold == 0 || a.n * a.m > kMostKeptPairs) return {};
  return at::empty({a.b, a.h, tiles_of(a.n), tiles_of(a.m), TileKept::kWords}, q.options().dtype(at::kInt));
}
[[nodiscard]] inline uint32_t* kept_words(const at::Tensor& kept) {
  return kept.defined() ? static_cast<uint32_t*>(kept.mutable_data_ptr()) : nullptr;
}

// Launch takes AttentionArguments and PlaneArguments.
template <class Launch>
AttentionForward attention_forward_device(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v_in,
                                          const AttentionOptions& given, const Launch& launch) {
  const AttentionOptions options = with_readable_flags(given);
  const at::Tensor q = readable_heads(q_in), k = readable_heads(k_in), v = readable_heads(v_in);
  AttentionArguments a = attention_arguments(q, k, v, options);
  AttentionForward result{rows_of_heads(q, a.n, a.e), at::empty({a.b, a.h, a.n}, q.options().dtype(at::kFloat)),
                          kept_weights(a, q)};
  a.kept = kept_words(result.kept);
  a.out = result.out.mutable_data_ptr(), a.log_sum = result.log_sum.mutable_data_ptr<float>();
  at::Tensor out, log_sum;  // of parts
  if (const int64_t parts = seen_parts(q, a.n, a.m); parts > 1) {
    const at::TensorOptions floats = q.options().dtype(at::kFloat);
    out = at::empty({parts, a.b, a.n, a.h, a.e}, floats), log_sum = at::empty({parts, a.b, a.h, a.n}, floats);
    a.part_out = written_floats(out), a.part_log_sum = written_floats(log_sum);
  }
  const AttentionPlanes planes(a, {q, k, v});
  if (a.b * a.h * a.n > 0) launch(a, planes.arguments);
  return result;
}

// Likewise.
template <class Launch>
AttentionGradients attention_backward_device(const at::Tensor& gradient_in, const at::Tensor& q_in,
                                             const at::Tensor& k_in, const at::Tensor& v_in,
                                             const AttentionForward& forward, const AttentionOptions& given,
                                             const Launch& launch) {
  const AttentionOptions options = with_readable_flags(given);
  const at::Tensor q = readable_heads(q_in), k = readable_heads(k_in), v = readable_heads(v_in);
  const at::Tensor gradient = readable_heads(gradient_in);
  AttentionArguments a = attention_arguments(q, k, v, options);
  AttentionGradients result{rows_of_heads(q, a.n, a.d), rows_of_heads(q, a.m, a.d), rows_of_heads(q, a.m, a.e)};
  const auto parts_of = [&](int64_t rows, int64_t seen, int64_t width) {
    const int64_t parts = seen_parts(q, rows, seen);
    return parts == 1 ? at::Tensor() : at::empty({parts, a.b * rows * a.h * width}, q.options().dtype(at::kFloat));
  };
  const at::Tensor dq = parts_of(a.n, a.m, a.d), dk = parts_of(a.m, a.n, a.d + a.e);
  const at::Tensor delta = at::empty_like(forward.log_sum);
  a.out = forward.out.mutable_data_ptr(), a.log_sum = forward.log_sum.mutable_data_ptr<float>();
  TORCH_CHECK(gradient.scalar_type() == q.scalar_type(), "a gradient of another type than its heads");
  a.delta = delta.mutable_data_ptr<float>();
  a.kept = kept_words(forward.kept);
  AttentionPlanes planes(a, {q, k, v, gradient});
  planes.arguments.out = a.out, planes.arguments.delta = a.delta;
  a.dq = result.q.mutable_data_ptr(), a.dk = result.k.mutable_data_ptr(), a.dv = result.v.mutable_data_ptr();
  if (dq.defined()) a.dq_parts = written_floats(dq);
  if (dk.defined()) a.dk_parts = written_floats(dk);
  if (a.b * a.h > 0) launch(a, planes.arguments);
  // Rows from a place of what parts come to.
  const auto heads_in = [&](const at::Tensor& sum, int64_t place, int64_t rows, int64_t width) {
    const at::Tensor own = sum.narrow(0, place, a.b * rows * a.h * width).to(q.scalar_type());
    return own.view({a.b, rows, a.h, width}).transpose(1, 2);
  };
  if (dq.defined()) result.q = heads_in(dq.sum(0), 0, a.n, a.d);
  if (dk.defined()) {
    const at::Tensor sum = dk.sum(0);
    result.k = heads_in(sum, 0, a.m, a.d), result.v = heads_in(sum, a.b * a.m * a.h * a.d, a.m, a.e);
  }
  return result;
}

}  // namespace xformer::kernels
