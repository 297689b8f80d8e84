#include "kernels/window_attention/windows.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "core/error.h"
#include "tensor/parts.h"

namespace xformer::kernels {

namespace {

constexpr int64_t kSmallestBlock = 16;  // rows; smaller products do not pay

int64_t parts(int64_t n, int64_t size) { return (n + size - 1) / size; }

}  // namespace

Windows Windows::sliding(int64_t n, int64_t back, int64_t ahead, int64_t dilation) {
  XF_ASSERT(n > 0 && back >= 0 && ahead >= 0 && dilation > 0, "no window of {} to {} by {} over {}", back, ahead,
            dilation, n);
  Windows result{.length = n, .dilation = dilation};
  const int64_t tokens = parts(n, dilation);  // of a residue
  result.back = std::min(back, tokens - 1);
  result.ahead = std::min(ahead, tokens - 1);
  result.block = std::max({result.back, result.ahead, kSmallestBlock});
  if (tokens <= result.back + result.block + result.ahead) {
    result.block = tokens;
  } else {
    result.blocks = parts(tokens, result.block);
    result.before = result.back;
    result.after = result.ahead;
  }
  return result;
}

Windows Windows::own_block(int64_t n, int64_t block, bool causal, int64_t dilation) {
  XF_ASSERT(n > 0 && block > 0 && dilation > 0, "no blocks of {} by {} over {}", block, dilation, n);
  Windows result{.length = n, .dilation = dilation};
  const int64_t tokens = parts(n, dilation);
  result.block = std::min(block, tokens);
  result.blocks = parts(tokens, result.block);
  result.back = result.block - 1;
  result.ahead = causal ? 0 : result.block - 1;
  return result;
}

Windows Windows::segments(int64_t n, int64_t block, int64_t beside) {
  XF_ASSERT(beside >= 0 && beside <= block, "{} tokens beside blocks of {}", beside, block);
  Windows result = own_block(n, block, /*causal=*/false);
  if (result.blocks == 1) return result;
  result.before = result.after = beside;
  result.back += beside;
  result.ahead += beside;
  return result;
}

Windows Windows::neighbour_blocks(int64_t n, int64_t block, bool causal) {
  Windows result = own_block(n, block, causal);
  if (result.blocks == 1) return result;
  result.before = result.block;
  result.back += result.block;
  if (causal) return result;
  result.after = result.block;
  result.ahead += result.block;
  return result;
}

at::Tensor Windows::rows(const at::Tensor& x) const {
  const int64_t missing = dilation * blocks * block - length;
  const at::Tensor padded = with_zeros_behind(x, 2, missing);
  return padded.unflatten(2, {blocks * block, dilation}).transpose(2, 3).unflatten(3, {blocks, block});
}

at::Tensor Windows::join(const at::Tensor& x) const {
  return part_of(x.flatten(3, 4).transpose(2, 3).flatten(2, 3), 2, 0, length);
}

at::Tensor Windows::columns(const at::Tensor& x) const {
  const at::Tensor own = rows(x);
  if (before == 0 && after == 0) return own;
  // The last rows of the block before and the first ones of the block behind; zeros at both ends.
  const auto outside = [&](int64_t count) {
    return at::zeros({own.size(0), own.size(1), dilation, 1, count, own.size(5)}, own.options());
  };
  std::vector<at::Tensor> parts;
  if (before > 0)
    parts.push_back(at::cat({outside(before), own.narrow(3, 0, blocks - 1).narrow(4, block - before, before)}, 3));
  parts.push_back(own);
  if (after > 0) parts.push_back(at::cat({own.narrow(3, 1, blocks - 1).narrow(4, 0, after), outside(after)}, 3));
  return at::cat(parts, 4);
}

at::Tensor Windows::allowed(const at::Tensor& key_valid, const at::Tensor& like) const {
  at::Tensor result;
  const auto options = like.options().dtype(at::kBool);
  if (key_valid.defined() || before > 0 || after > 0 || dilation * blocks * block > length) {
    const at::Tensor valid =
        key_valid.defined() ? key_valid.unsqueeze(1).unsqueeze(-1) : at::ones({1, 1, length, 1}, options);
    result = columns(valid).transpose(-1, -2);  // [b or 1,1,r,t,1,w]
  }
  if (back < before + block - 1 || ahead < after + block - 1) {
    const auto numbers = like.options().dtype(at::kLong);
    const at::Tensor offset =  // of the key from the row [c,w]
        at::arange(-before, block + after, numbers) - at::arange(block, numbers).unsqueeze(1);
    const at::Tensor band = offset.ge(-back).logical_and(offset.le(ahead)).view({1, 1, 1, 1, block, -1});
    result = result.defined() ? result.logical_and(band) : band;
  }
  return result;
}

double Windows::executed_pairs() const {
  int64_t pairs = 0;
  for (int64_t residue = 0; residue < std::min(dilation, length); ++residue) {
    const int64_t end = tokens(residue, length);
    for (int64_t first = 0; first < end; first += block)
      pairs +=
          std::min(block, end - first) * (std::min(end, first + block + after) - std::max<int64_t>(0, first - before));
  }
  return static_cast<double>(pairs);
}

double Windows::explicit_pairs() const {
  return static_cast<double>(dilation * blocks * block) * static_cast<double>(columns_per_block());
}

double Windows::pattern_pairs() const {
  int64_t pairs = 0;
  for (int64_t i = 0; i < length; ++i) {
    const int64_t at = i / dilation, first = at / block * block;  // place within the residue, and of the block
    const int64_t last = (length - 1 - i % dilation) / dilation;  // of the residue
    pairs +=
        std::min({last, first + block - 1 + after, at + ahead}) - std::max({int64_t{0}, first - before, at - back});
  }
  return static_cast<double>(pairs + length);
}

}  // namespace xformer::kernels
