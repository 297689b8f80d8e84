// Rows of residual_norm that lie in the cache.
#include <cmath>

#include "kernels/cpu/registers.h"
#include "kernels/residual_norm/cpu.h"

namespace xformer::kernels {

namespace {

template <class Value>
[[gnu::always_inline]] inline void residual_of(const Value* __restrict x, const Value* __restrict branch,
                                               const DropRule& drop, int64_t count, Value* __restrict sum) {
  if (drop.draws == nullptr) {
    for (int64_t i = 0; i < count; ++i) sum[i] = x[i] + branch[i];
    return;
  }
  const uint16_t* __restrict draws = drop.draws;
  const uint32_t threshold = drop.threshold;
  const auto keep = static_cast<Value>(drop.keep);
  for (int64_t i = 0; i < count; ++i) {
    const Value kept = branch[i] * keep;
    sum[i] = x[i] + (draws[i] < threshold ? Value(0) : kept);
  }
}

template <class Value>
[[gnu::always_inline]] inline void drop_of(const Value* __restrict in, const DropRule& drop, int64_t count,
                                           Value* __restrict out) {
  const uint16_t* __restrict draws = drop.draws;
  const uint32_t threshold = drop.threshold;
  const auto keep = static_cast<Value>(drop.keep);
  for (int64_t i = 0; i < count; ++i) {
    const Value kept = in[i] * keep;
    out[i] = draws[i] < threshold ? Value(0) : kept;
  }
}

// The norm of rows whose mean and rstd are known.
template <int64_t kRegister, class Value>
[[gnu::always_inline]] inline void norm_again_of(const NormForwardRows<Value>& block) {
  const int64_t width = block.width, whole = width / kSumLanes * kSumLanes;
  SumRegisters<Value, kRegister> x, w, c;
  for (int64_t r = 0; r < block.rows; ++r) {
    const Value* const sum = block.sum + r * width;
    Value* const normed = block.normed + r * width;
    const Value mean = block.mean[r], rstd = block.rstd[r];
    for (int64_t i = 0; i < whole; i += kSumLanes) {
      x.load_from(sum + i);
      w.load_from(block.weight + i);
      c.load_from(block.bias + i);
      ((x - mean) * rstd * w + c).store_to(normed + i);
    }
    for (int64_t i = whole; i < width; ++i) normed[i] = (sum[i] - mean) * rstd * block.weight[i] + block.bias[i];
  }
}

// In three passes over the rows, so that no row waits for the sums of the one before it.
template <int64_t kRegister, class Value>
[[gnu::always_inline]] inline void norm_of(const NormForwardRows<Value>& block) {
  const int64_t rows = block.rows, width = block.width, whole = width / kSumLanes * kSumLanes;
  const auto count = static_cast<Value>(width);
  SumRegisters<Value, kRegister> x;
  for (int64_t r = 0; r < rows; ++r) {
    const Value* const sum = block.sum + r * width;
    SumRegisters<Value, kRegister> lanes = {};
    for (int64_t i = 0; i < whole; i += kSumLanes) {
      x.load_from(sum + i);
      lanes += x;
    }
    Value total = lanes.sum();
    for (int64_t i = whole; i < width; ++i) total += sum[i];
    block.mean[r] = total / count;
  }
  for (int64_t r = 0; r < rows; ++r) {
    const Value* const sum = block.sum + r * width;
    const Value mean = block.mean[r];
    SumRegisters<Value, kRegister> squares = {};
    for (int64_t i = 0; i < whole; i += kSumLanes) {
      x.load_from(sum + i);
      squares += (x - mean) * (x - mean);
    }
    Value total = squares.sum();
    for (int64_t i = whole; i < width; ++i) total += (sum[i] - mean) * (sum[i] - mean);
    block.rstd[r] = total;
  }
  for (int64_t r = 0; r < rows; ++r) block.rstd[r] = 1 / std::sqrt(block.rstd[r] / count + block.epsilon);
  norm_again_of<kRegister>(block);
}

template <class Value>
[[gnu::always_inline]] inline void add_to(const Value* __restrict from, int64_t count, Value* __restrict into) {
  for (int64_t i = 0; i < count; ++i) into[i] += from[i];
}

// With u = (sum - mean) rstd and g = gradient of normed * weight: dx = dsum + rstd (g - mean(g) - u mean(g u)).
// The means of a few rows first, so that no row waits for those of the one before it.
template <int64_t kRegister, class Value>
[[gnu::always_inline]] inline void gradients_of(const NormBackwardRows<Value>& block) {
  constexpr int64_t kRows = 16, kColumns = 4;  // vectors
  const int64_t width = block.width, whole = width / kSumLanes * kSumLanes;
  const Value* const weight = block.weight;
  SumRegisters<Value, kRegister> x, dy, w[kColumns], dw[kColumns], db[kColumns];
  Value shift[kRows], slope[kRows];
  for (int64_t first = 0; first < block.rows; first += kRows) {
    const int64_t rows = block.rows - first < kRows ? block.rows - first : kRows;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t row = (first + r) * width;
      const Value *const sum = block.sum + row, *const gradient = block.normed_gradient + row;
      const Value mean = block.mean[first + r];
      SumRegisters<Value, kRegister> lanes = {}, products = {};
      for (int64_t i = 0; i < whole; i += kSumLanes) {
        x.load_from(sum + i);
        dy.load_from(gradient + i);
        w[0].load_from(weight + i);
        lanes += dy * w[0];
        products += dy * w[0] * (x - mean);
      }
      shift[r] = lanes.sum(), slope[r] = products.sum();
      for (int64_t i = whole; i < width; ++i) {
        const Value g = gradient[i] * weight[i];
        shift[r] += g;
        slope[r] += g * (sum[i] - mean);
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      shift[r] /= static_cast<Value>(width);
      slope[r] = slope[r] * block.rstd[first + r] / static_cast<Value>(width);
    }
    // Some columns of all these rows at a time, so that the sums over rows stay in registers.
    for (int64_t i = 0; i < whole; i += kColumns * kSumLanes) {
      const int64_t columns = whole - i < kColumns * kSumLanes ? (whole - i) / kSumLanes : kColumns;
      for (int64_t c = 0; c < columns; ++c) {
        w[c].load_from(weight + i + c * kSumLanes);
        dw[c].load_from(block.weight_gradient + i + c * kSumLanes);
        db[c].load_from(block.bias_gradient + i + c * kSumLanes);
      }
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t row = (first + r) * width + i;
        const Value mean = block.mean[first + r], rstd = block.rstd[first + r];
        const auto column = [&](int64_t c) __attribute__((always_inline)) {
          x.load_from(block.sum + row + c * kSumLanes);
          dy.load_from(block.normed_gradient + row + c * kSumLanes);
          const SumRegisters<Value, kRegister> u = (x - mean) * rstd;
          ((dy * w[c] - shift[r] - u * slope[r]) * rstd).store_to(block.x_gradient + row + c * kSumLanes);
          dw[c] += dy * u;
          db[c] += dy;
        };
        if (columns == kColumns)
          for (int64_t c = 0; c < kColumns; ++c) column(c);
        else
          for (int64_t c = 0; c < columns; ++c) column(c);
      }
      for (int64_t c = 0; c < columns; ++c) {
        dw[c].store_to(block.weight_gradient + i + c * kSumLanes);
        db[c].store_to(block.bias_gradient + i + c * kSumLanes);
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t row = (first + r) * width;
      const Value *const sum = block.sum + row, *const gradient = block.normed_gradient + row;
      Value* const into = block.x_gradient + row;
      for (int64_t i = whole; i < width; ++i) {
        const Value u = (sum[i] - block.mean[first + r]) * block.rstd[first + r];
        into[i] = block.rstd[first + r] * (gradient[i] * weight[i] - shift[r] - u * slope[r]);
        block.weight_gradient[i] += gradient[i] * u;
        block.bias_gradient[i] += gradient[i];
      }
      if (block.sum_gradient != nullptr) add_to(block.sum_gradient + row, width, into);
    }
  }
}

}  // namespace

XFORMER_VECTORISED
void residual_rows(const float* x, const float* branch, const DropRule& drop, int64_t count, float* sum) {
  residual_of(x, branch, drop, count, sum);
}
void residual_rows(const double* x, const double* branch, const DropRule& drop, int64_t count, double* sum) {
  residual_of(x, branch, drop, count, sum);
}

XFORMER_VECTORISED_BY_REGISTER(void, norm_rows, (const NormForwardRows<float>& block), (block),
                               norm_of<kRegister>(block))
void norm_rows(const NormForwardRows<double>& block) { norm_of<kPlainRegister>(block); }

XFORMER_VECTORISED_BY_REGISTER(void, norm_rows_again, (const NormForwardRows<float>& block), (block),
                               norm_again_of<kRegister>(block))
void norm_rows_again(const NormForwardRows<double>& block) { norm_again_of<kPlainRegister>(block); }

XFORMER_VECTORISED_BY_REGISTER(void, norm_gradient_rows, (const NormBackwardRows<float>& block), (block),
                               gradients_of<kRegister>(block))
void norm_gradient_rows(const NormBackwardRows<double>& block) { gradients_of<kPlainRegister>(block); }

XFORMER_VECTORISED
void drop_rows(const float* in, const DropRule& drop, int64_t count, float* out) { drop_of(in, drop, count, out); }
void drop_rows(const double* in, const DropRule& drop, int64_t count, double* out) { drop_of(in, drop, count, out); }

}  // namespace xformer::kernels
