// Embedding on the CPU. The work is divided by ranges of positions, each for all samples, so that a row of the
// positions' gradient has one writer.
#include "kernels/embedding/cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/cpu/needed_rows.h"
#include "kernels/cpu/part_tables.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/units.h"

namespace xformer::kernels {

namespace {

constexpr int64_t kBlockElements = 4096;
// Every part of the positions sums the tokens' gradient in a table of its own, added in order afterwards; as many parts
// as these elements hold tables for.
constexpr int64_t kMostParts = 64, kTableElements = int64_t{1} << 20;

// [b,n,m], cut along n.
struct Cut {
  int64_t batch, length, width, parts, part_len, block_rows;

  Cut(const at::Tensor& ids, int64_t m, int64_t token_rows)
      : batch(ids.size(0)),
        length(ids.size(1)),
        width(m),
        parts(std::clamp<int64_t>(kTableElements / std::max<int64_t>(token_rows * m, 1), 1, kMostParts)),
        part_len(std::max<int64_t>((length + parts - 1) / parts, 1)),
        block_rows(std::max<int64_t>(kBlockElements / std::max<int64_t>(m, 1), 1)) {
    parts = (length + part_len - 1) / part_len;
  }

  // work(part, first row of all samples', rows, which of them are needed, worker).
  template <class Work>
  void for_blocks(const NeededRows& needed, const Work& work) const {
    for_units(parts, part_len * batch * width, [&](int64_t part, int64_t worker) {
      const int64_t end = std::min(length, (part + 1) * part_len);
      for (int64_t b = 0; b < batch; ++b)
        for (int64_t i = part * part_len; i < end; i += block_rows)
          needed.for_runs(b * length + i, std::min(block_rows, end - i),
                          [&](int64_t row, int64_t rows, Needed which) { work(part, row, rows, which, worker); });
    });
  }
};

at::Tensor checked(const at::Tensor& ids, int64_t token_rows) {
  XF_ASSERT(ids.dim() == 2 && ids.device().is_cpu(), "token ids are [b, n] in host memory");
  const at::Tensor numbers = ids.to(at::kLong).contiguous();
  const int64_t *const begin = numbers.const_data_ptr<int64_t>(), *const end = begin + numbers.numel();
  const auto wrong = std::find_if(begin, end, [&](int64_t id) { return id < 0 || id >= token_rows; });
  TORCH_CHECK_INDEX(wrong == end, "embedding: id ", *wrong, " at place ", wrong - begin, ", expected 0 to ",
                    token_rows - 1);
  return numbers;
}

}  // namespace

at::Tensor embedding_forward_cpu(const at::Tensor& tokens_in, const at::Tensor& ids_in, const at::Tensor& positions_in,
                                 const DropoutPlace& drop, const at::Tensor& needed_places, at::ScalarType type) {
  const at::Tensor tokens = tokens_in.contiguous(), ids = checked(ids_in, tokens.size(0));
  const Cut cut(ids, tokens.size(1), 1);
  const at::Tensor positions = positions_in.defined() ? positions_in.contiguous() : positions_in;
  XF_ASSERT(!positions.defined() || (positions.size(0) >= cut.length && positions.size(1) == cut.width),
            "{} positions of width {} for {} of width {}", positions.size(0), positions.size(1), cut.length, cut.width);
  at::Tensor result = at::empty({cut.batch, cut.length, cut.width}, tokens.options().dtype(type));
  const ElementDraws draws(drop, result);
  const NeededRows needed(needed_places, ids.numel());
  const auto workers = static_cast<size_t>(workers_for(cut.parts));
  std::vector<std::vector<uint16_t>> memory(workers);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, type, "embedding", [&] {
    using Value = Computed<scalar_t>;
    std::vector<std::vector<Value>> rooms(workers);
    const Value* const table = tokens.const_data_ptr<Value>();
    const Value* const places = positions.defined() ? positions.const_data_ptr<Value>() : nullptr;
    scalar_t* const out = result.mutable_data_ptr<scalar_t>();
    cut.for_blocks(needed, [&](int64_t /*part*/, int64_t row, int64_t rows, Needed which, int64_t worker) {
      const int64_t first = row * cut.width;
      if (which == Needed::kNone) return needed.clear(row, rows, cut.width, out + first);
      const uint16_t* const drawn = draws.draw(first, rows * cut.width, memory[static_cast<size_t>(worker)]);
      Value* const into = place_for(out + first, rows * cut.width, rooms[static_cast<size_t>(worker)]);
      embedding_rows(EmbeddingRows<Value>{rows, cut.width, ids.const_data_ptr<int64_t>() + row, drawn,
                                          draws.threshold(), static_cast<Value>(draws.keep())},
                     table, places != nullptr ? places + row % cut.length * cut.width : nullptr, into);
      store(into, rows * cut.width, out + first);
      if (which == Needed::kSome) needed.clear(row, rows, cut.width, out + first);
    });
  });
  return result;
}

EmbeddingGradients embedding_backward_cpu(const at::Tensor& gradient_in, const at::Tensor& ids_in, int64_t token_rows,
                                          int64_t position_rows, const DropoutPlace& drop,
                                          const at::Tensor& needed_places) {
  const at::Tensor gradient = gradient_in.contiguous(), ids = ids_in.to(at::kLong).contiguous();
  const Cut cut(ids, gradient.size(2), token_rows);
  EmbeddingGradients result;
  const at::Tensor tables = at::zeros({cut.parts, token_rows, cut.width}, computed_options(gradient));
  if (position_rows > 0) result.positions = at::zeros({position_rows, cut.width}, tables.options());
  const ElementDraws draws(drop, gradient, DrawnBy::kBackward);
  const NeededRows needed(needed_places, ids.numel());
  const auto workers = static_cast<size_t>(workers_for(cut.parts));
  std::vector<std::vector<uint16_t>> memory(workers);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, gradient.scalar_type(), "embedding_backward", [&] {
    using Value = Computed<scalar_t>;
    std::vector<std::vector<Value>> scratch(workers, std::vector<Value>(static_cast<size_t>(cut.width)));
    std::vector<std::vector<Value>> rooms(workers);
    std::vector<std::vector<scalar_t>> needed_alone(workers);
    const scalar_t* const slopes = gradient.const_data_ptr<scalar_t>();
    Value* const sums = tables.mutable_data_ptr<Value>();
    Value* const places = position_rows > 0 ? result.positions.mutable_data_ptr<Value>() : nullptr;
    cut.for_blocks(needed, [&](int64_t part, int64_t row, int64_t rows, Needed which, int64_t worker) {
      if (which == Needed::kNone) return;
      const int64_t first = row * cut.width;
      const scalar_t* const from =
          needed.only(which, row, rows, cut.width, slopes + first, needed_alone[static_cast<size_t>(worker)]);
      const uint16_t* const drawn = draws.draw(first, rows * cut.width, memory[static_cast<size_t>(worker)]);
      embedding_gradient_rows(EmbeddingRows<Value>{rows, cut.width, ids.const_data_ptr<int64_t>() + row, drawn,
                                                   draws.threshold(), static_cast<Value>(draws.keep())},
                              loaded(from, rows * cut.width, rooms[static_cast<size_t>(worker)]),
                              sums + part * token_rows * cut.width,
                              places != nullptr ? places + row % cut.length * cut.width : nullptr,
                              scratch[static_cast<size_t>(worker)].data());
    });
  });
  result.tokens = sum_of_tables(tables);
  return result;
}

}  // namespace xformer::kernels
