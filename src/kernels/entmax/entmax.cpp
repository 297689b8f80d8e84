// alpha-entmax from plain tensor operations, its gradients by their closed forms.
#include "kernels/entmax/entmax.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "core/error.h"

namespace xformer::kernels {

namespace {

constexpr int kNewtonSteps = 16;                   // 12 reach 1e-14 in double for up to 4096 keys
constexpr int64_t kEntmaxTile = int64_t{1} << 18;  // of rows that go through all steps in the cache

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Powers of what lies above the threshold. `fixed` is alpha where that is a number, else 0 and b [r,1] says it.
struct Power {
  double fixed;
  at::Tensor b;

  // x = b (d - t) -> p, and p / (1 + x), the slope of p.
  struct Point {
    at::Tensor p, slope;
  };
  [[nodiscard]] Point at(const at::Tensor& x) const {
    if (fixed == 2) {
      const at::Tensor p = (x + 1).clamp_min(0);
      return {p, p.gt(0).to(p.scalar_type())};
    }
    if (fixed == 1.5) {
      const at::Tensor root = (x + 1).clamp_min(0);
      return {root.square(), root};
    }
    const at::Tensor above = x.clamp_min(-1), p = at::exp(at::log1p(above) / b);
    return {p, p / (above + 1).clamp_min(1e-30)};
  }
};

// Rows [r,n] of scores -> p.
at::Tensor entmax_rows(const at::Tensor& scores, const Power& power, double no_key) {
  const at::Tensor top = scores.amax(-1, /*keepdim=*/true), d = (scores - top) * power.b;
  at::Tensor shift = at::zeros_like(top);  // b t
  for (int step = 0; step < kNewtonSteps; ++step) {
    const auto [p, slope] = power.at(d - shift);
    shift = shift + power.b * (p.sum(-1, /*keepdim=*/true) - 1) / slope.sum(-1, /*keepdim=*/true);
  }
  const at::Tensor p = power.at(d - shift).p;
  const at::Tensor any = top.gt(no_key);
  return p * (any.to(p.scalar_type()) / p.sum(-1, /*keepdim=*/true));
}

struct RowGradients {
  at::Tensor scores;  // [r,n]
  at::Tensor alpha;   // [r,1]
};

RowGradients entmax_gradients(const at::Tensor& p, const at::Tensor& g, const Power& power) {
  if (power.fixed != 0) {
    const at::Tensor u = power.fixed == 2 ? p.gt(0).to(p.scalar_type()) : p.sqrt();
    const at::Tensor mean = (u * g).sum(-1, /*keepdim=*/true) / u.sum(-1, /*keepdim=*/true).clamp_min(0.5);
    return {u * (g - mean), {}};
  }
  const auto sum = [](const at::Tensor& x) { return x.sum(-1, /*keepdim=*/true); };
  // u = p + e; with e the differences near alpha = 1 keep their digits.
  const at::Tensor log_p = at::where(p.gt(0), p, 1).log(), e = p * at::expm1(-power.b * log_p), h = -p * log_p;
  const at::Tensor total = sum(p) + sum(e);  // at least 1, but for rows without a key
  const at::Tensor inverse = 1 / total.clamp_min(0.5), share = (p + e) * inverse;
  const at::Tensor by_alpha = (p * sum(e) - e) * inverse / power.b.square() + (h - share * sum(h)) / power.b;
  return {(p + e) * (g - sum(share * g)), sum(g * by_alpha)};
}

// entmax over the last dimension of scores [b,h,q,k], with alpha [h or 1].
struct EntmaxFunction : torch::autograd::Function<EntmaxFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& scores, const at::Tensor& alpha,
                            const EntmaxOptions& options) {
    const at::Tensor result = at::empty_like(scores, at::MemoryFormat::Contiguous);
    for_tiles(scores, alpha, options.alpha, [&](const Power& power, int64_t first, int64_t rows) {
      const at::Tensor tile = scores.flatten(0, 2).narrow(0, first, rows);
      result.view({-1, scores.size(3)}).narrow(0, first, rows).copy_(entmax_rows(tile, power, options.no_key));
    });
    context->save_for_backward({result, alpha});
    context->saved_data["fixed"] = options.alpha;
    return result;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &p = saved[0], &alpha = saved[1];
    const double fixed = context->saved_data["fixed"].toDouble();
    const at::Tensor g = gradients[0].contiguous(), result = at::empty_like(p);
    std::vector<at::Tensor> of_alpha;
    for_tiles(p, alpha, fixed, [&](const Power& power, int64_t first, int64_t rows) {
      const auto tile = [&](const at::Tensor& x) { return x.view({-1, p.size(3)}).narrow(0, first, rows); };
      const RowGradients found = entmax_gradients(tile(p), tile(g), power);
      tile(result).copy_(found.scores);
      if (found.alpha.defined()) of_alpha.push_back(found.alpha);
    });
    if (of_alpha.empty()) return {result, {}, {}};
    const at::Tensor rows = at::cat(of_alpha, 0).view({p.size(0), p.size(1), p.size(2)});
    return {result, rows.sum(at::IntArrayRef({0, 2})), {}};
  }

 private:
  // work(power, first row, rows) over the b h q rows of x.
  template <class Work>
  static void for_tiles(const at::Tensor& x, const at::Tensor& alpha, double fixed, const Work& work) {
    const int64_t rows = x.size(0) * x.size(1) * x.size(2);
    const int64_t height = std::max<int64_t>(1, kEntmaxTile / std::max<int64_t>(1, x.size(3)));
    const at::Tensor b = (alpha - 1).view({1, -1, 1}).expand({x.size(0), x.size(1), x.size(2)}).reshape({rows, 1});
    for (int64_t first = 0; first < rows; first += height) {
      const int64_t count = std::min(height, rows - first);
      work(Power{fixed, b.narrow(0, first, count)}, first, count);
    }
  }
};

}  // namespace

at::Tensor entmax(const at::Tensor& scores, const at::Tensor& alpha, const EntmaxOptions& options) {
  XF_ASSERT(scores.dim() == 4 && alpha.dim() == 1 && alpha.size(0) == (options.alpha == 0 ? scores.size(1) : 1),
            "entmax takes scores [b,h,q,k] and one alpha for each head, or one that options.alpha says");
  return EntmaxFunction::apply(scores, alpha, options);
}

}  // namespace xformer::kernels
