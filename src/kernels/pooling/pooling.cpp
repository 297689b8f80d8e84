#include "kernels/pooling/pooling.h"

#include <ATen/Dispatch.h>
#include <ATen/record_function.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/cpu/heads.h"
#include "kernels/cpu/units.h"
#include "kernels/cpu/valid_rows.h"
#include "kernels/fused.h"
#include "kernels/pooling/cpu.h"

namespace xformer::kernels {

namespace {

using torch::autograd::AutogradContext;

int64_t heads_in(const std::vector<HeadGroup>& groups) {
  int64_t result = 0;
  for (const HeadGroup& group : groups) result += static_cast<int64_t>(group.heads.size());
  return result;
}

// Walks one sample's heads: work(place of the group, place of the head in it, head, its scale).
template <class Work>
void for_heads(const std::vector<HeadGroup>& groups, int64_t samples, int64_t head_elements, const Work& work) {
  struct Place {
    size_t group;
    int64_t within, head, scale;
  };
  std::vector<Place> places;
  for (size_t g = 0; g < groups.size(); ++g)
    for (size_t i = 0; i < groups[g].heads.size(); ++i)
      places.push_back({g, static_cast<int64_t>(i), groups[g].heads[i], groups[g].scale});
  const auto count = static_cast<int64_t>(places.size());
  for_units(samples * count, head_elements, [&](int64_t unit, int64_t) {
    const Place& one = places[static_cast<size_t>(unit % count)];
    work(unit / count, one.group, one.within, one.head, one.scale);
  });
}

// Tokens from .. to - 1 form row `row` of a pooled sequence.
struct Span {
  int64_t from, to;
};
Span span_of(int64_t row, int64_t scale, int64_t pinned, int64_t n) {
  if (row < pinned) return {row, row + 1};
  const int64_t from = pinned + (row - pinned) * scale;
  return {from, std::min(from + scale, n)};
}

// The flags of a span's rows; none where all count. Scale 1 hands tokens on as they are.
const bool* flags_of(const ValidRows& valid, int64_t b, const Span& span, int64_t scale) {
  return scale == 1 || !valid.defined() ? nullptr : valid.flags(b) + span.from;
}

template <class Value>
std::vector<Heads<Value>> writing_all(const std::vector<at::Tensor>& tensors) {
  std::vector<Heads<Value>> result;
  for (const at::Tensor& tensor : tensors) result.push_back(writing<Value>(tensor));
  return result;
}

template <class Value>
std::vector<Heads<const Value>> reading_all(const std::vector<at::Tensor>& tensors) {
  std::vector<Heads<const Value>> result;
  for (const at::Tensor& tensor : tensors) result.push_back(reading<Value>(tensor));
  return result;
}

std::vector<at::Tensor> with_rows_all(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) result.push_back(with_rows(tensor));
  return result;
}

// Means (pools) or, for the gradient of a repetition, sums over each span. `mean`: over valid tokens, where scale > 1.
std::vector<at::Tensor> gather_rows(const at::Tensor& x, const at::Tensor& key_valid,
                                    const std::vector<HeadGroup>& groups, int64_t pinned, bool mean) {
  const int64_t n = x.size(2), d = x.size(3);
  const ValidRows valid(key_valid, n);
  std::vector<at::Tensor> result;
  for (const HeadGroup& group : groups)
    result.push_back(at::empty(
        {x.size(0), static_cast<int64_t>(group.heads.size()), pooled_len(n, group.scale, pinned), d}, x.options()));
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "pool_heads", [&] {
    const auto tokens = reading<scalar_t>(x);
    const auto out = writing_all<scalar_t>(result);
    for_heads(groups, x.size(0), n * d, [&](int64_t b, size_t group, int64_t within, int64_t head, int64_t scale) {
      for (int64_t row = 0; row < pooled_len(n, scale, pinned); ++row) {
        const Span span = span_of(row, scale, pinned, n);
        scalar_t* const to = out[group].at(b, within, row);
        const int64_t count = sum_rows(tokens.at(b, head, span.from),
                                       {span.to - span.from, tokens.stride, d, flags_of(valid, b, span, scale)}, to);
        if (mean && count > 1)
          for (int64_t c = 0; c < d; ++c) to[c] /= static_cast<scalar_t>(count);
      }
    });
  });
  return result;
}

// Every row to all tokens of its span; `share`: divided among the valid ones, as the gradient of a mean is.
at::Tensor scatter_rows(const std::vector<at::Tensor>& pooled, const at::Tensor& key_valid, int64_t n,
                        const std::vector<HeadGroup>& groups, int64_t pinned, bool share) {
  const int64_t samples = pooled[0].size(0), d = pooled[0].size(3);
  const ValidRows valid(key_valid, n);
  at::Tensor result = at::empty({samples, n, heads_in(groups), d}, pooled[0].options()).transpose(1, 2);
  AT_DISPATCH_FLOATING_TYPES(result.scalar_type(), "repeat_heads", [&] {
    const auto rows = reading_all<scalar_t>(pooled);
    const auto out = writing<scalar_t>(result);
    for_heads(groups, samples, n * d, [&](int64_t b, size_t group, int64_t within, int64_t head, int64_t scale) {
      for (int64_t row = 0; row < pooled_len(n, scale, pinned); ++row) {
        const Span span = span_of(row, scale, pinned, n);
        const bool* const flags = share ? flags_of(valid, b, span, scale) : nullptr;
        const int64_t size = span.to - span.from, count = flags ? std::count(flags, flags + size, true) : size;
        const scalar_t factor = share && count > 1 ? scalar_t(1) / static_cast<scalar_t>(count) : scalar_t(1);
        spread_row(rows[group].at(b, within, row), factor, {size, out.stride, d, flags}, out.at(b, head, span.from));
      }
    });
  });
  return result;
}

struct PoolHeads : torch::autograd::Function<PoolHeads> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const SequenceMask& mask,
                               const std::vector<HeadGroup>* groups, int64_t pinned) {
    RECORD_FUNCTION("xformer::pool_heads", operands(x));
    remember(context, *groups);
    context->save_for_backward({mask.key_valid});
    context->saved_data["n"] = x.size(2);
    context->saved_data["pinned"] = pinned;
    return gather_rows(with_rows(x), mask.key_valid, *groups, pinned, true);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    RECORD_FUNCTION("xformer::pool_heads_backward", operands(gradients));
    const std::vector<HeadGroup> groups = recall(context);
    const int64_t n = context->saved_data["n"].toInt(), pinned = context->saved_data["pinned"].toInt();
    const at::Tensor key_valid = context->get_saved_variables()[0];
    const at::Tensor result = scatter_rows(with_rows_all(gradients), key_valid, n, groups, pinned, true);
    check_backward("xformer::pool_heads", {result}, gradients, {result}, [&](const variable_list& inputs) {
      return pool_heads_reference(inputs[0], {key_valid, false}, groups, pinned);
    });
    return {result, at::Tensor(), at::Tensor(), at::Tensor()};
  }

  static void remember(AutogradContext* context, const std::vector<HeadGroup>& groups) {
    std::vector<int64_t> scales, heads, sizes;
    for (const HeadGroup& group : groups) {
      scales.push_back(group.scale);
      sizes.push_back(static_cast<int64_t>(group.heads.size()));
      heads.insert(heads.end(), group.heads.begin(), group.heads.end());
    }
    context->saved_data["scales"] = scales;
    context->saved_data["sizes"] = sizes;
    context->saved_data["heads"] = heads;
  }

  static std::vector<HeadGroup> recall(AutogradContext* context) {
    const auto list = [&](const char* name) { return context->saved_data[name].toIntVector(); };
    const std::vector<int64_t> scales = list("scales"), sizes = list("sizes"), heads = list("heads");
    std::vector<HeadGroup> groups;
    auto next = heads.begin();
    for (size_t i = 0; i < scales.size(); ++i) {
      groups.push_back({scales[i], {next, next + sizes[i]}});
      next += sizes[i];
    }
    return groups;
  }
};

struct RepeatHeads : torch::autograd::Function<RepeatHeads> {
  static at::Tensor forward(AutogradContext* context, at::TensorList pooled, int64_t n,
                            const std::vector<HeadGroup>* groups, int64_t pinned) {
    RECORD_FUNCTION("xformer::repeat_heads", operands(pooled));
    PoolHeads::remember(context, *groups);
    context->saved_data["pinned"] = pinned;
    return scatter_rows(with_rows_all(pooled.vec()), {}, n, *groups, pinned, false);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    RECORD_FUNCTION("xformer::repeat_heads_backward", operands(gradients[0]));
    const std::vector<HeadGroup> groups = PoolHeads::recall(context);
    const int64_t pinned = context->saved_data["pinned"].toInt(), n = gradients[0].size(2);
    variable_list result = gather_rows(with_rows(gradients[0]), {}, groups, pinned, false);
    check_backward("xformer::repeat_heads", result, gradients, result, [&](const variable_list& inputs) {
      return variable_list{repeat_heads_reference(inputs, n, groups, pinned)};
    });
    result.insert(result.end(), 3, at::Tensor());
    return result;
  }
};

// A group's heads of [b,h,n,d]; a view where they are evenly spaced.
at::Tensor take_heads(const at::Tensor& x, const std::vector<int64_t>& heads) {
  const int64_t first = heads.front(), stride = heads.size() > 1 ? heads[1] - first : 1;
  for (size_t i = 1; i < heads.size(); ++i)
    if (heads[i] - heads[i - 1] != stride) {
      std::vector<at::Tensor> parts;
      for (const int64_t head : heads) parts.push_back(x.narrow(1, head, 1));
      return at::cat(parts, 1);
    }
  return x.slice(1, first, heads.back() + 1, stride);
}

}  // namespace

std::vector<at::Tensor> pool_heads_reference(const at::Tensor& x, const SequenceMask& mask,
                                             const std::vector<HeadGroup>& groups, int64_t pinned) {
  std::vector<at::Tensor> result;
  for (const HeadGroup& group : groups)
    result.push_back(pool_tokens(take_heads(x, group.heads), mask, group.scale, pinned));
  return result;
}

at::Tensor repeat_heads_reference(const std::vector<at::Tensor>& pooled, int64_t n,
                                  const std::vector<HeadGroup>& groups, int64_t pinned) {
  std::vector<at::Tensor> rows(static_cast<size_t>(heads_in(groups)));  // [b,1,n,d] for each head
  for (size_t g = 0; g < groups.size(); ++g) {
    const at::Tensor repeated = repeat_tokens(pooled[g], n, groups[g].scale, pinned);
    if (groups.size() == 1) return repeated;
    for (size_t i = 0; i < groups[g].heads.size(); ++i)
      rows[static_cast<size_t>(groups[g].heads[i])] = repeated.narrow(1, static_cast<int64_t>(i), 1);
  }
  return at::cat(rows, 1);
}

std::vector<at::Tensor> pool_heads(const at::Tensor& x, const SequenceMask& mask, const std::vector<HeadGroup>& groups,
                                   int64_t pinned) {
  XF_ASSERT(heads_in(groups) == x.size(1), "groups of {} heads for {}", heads_in(groups), x.size(1));
  if ((groups.size() == 1 && groups[0].scale == 1) || !runs_fused("pool_heads", {x}))
    return pool_heads_reference(x, mask, groups, pinned);
  const std::vector<at::Tensor> result = PoolHeads::apply(x, mask, &groups, pinned);
  check_forward("xformer::pool_heads", result, [&] { return pool_heads_reference(x, mask, groups, pinned); });
  return result;
}

at::Tensor repeat_heads(const std::vector<at::Tensor>& pooled, int64_t n, const std::vector<HeadGroup>& groups,
                        int64_t pinned) {
  XF_ASSERT(pooled.size() == groups.size(), "{} tensors for {} groups", pooled.size(), groups.size());
  bool fused = groups.size() > 1 || groups[0].scale > 1;
  for (const at::Tensor& one : pooled)
    fused = fused && runs_fused("repeat_heads", {one}) && one.scalar_type() == pooled[0].scalar_type();
  if (!fused) return repeat_heads_reference(pooled, n, groups, pinned);
  const at::Tensor result = RepeatHeads::apply(at::TensorList(pooled), n, &groups, pinned);
  check_forward("xformer::repeat_heads", {result},
                [&] { return variable_list{repeat_heads_reference(pooled, n, groups, pinned)}; });
  return result;
}

}  // namespace xformer::kernels
