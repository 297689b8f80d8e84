// Local attention of the Image Transformer: Parmar, Vaswani, Uszkoreit, Kaiser, Shazeer, Ku, Tran, "Image Transformer",
// 2018, section 3.3. The sequence is cut into query blocks; all rows of a block see the block and a memory around it:
//   image-local-1d   blocks of l_q places in a row; the l_m places before the block, and the l_m behind it
//   image-local-2d   blocks of h_q by w_q cells of a grid, row by row; h_m rows above and below, w_m columns on the
//   left
//                    and the right, corners too
// in one softmax(q k^T / sqrt(d)) v. Causal: of these only j <= i. Sequences are in raster order here, so a row of the
// two-dimensional form sees more to the right and less to the left and below than in the paper, which generates the
// image block by block (attention-more 8). Pinned tokens stand outside: they see all and are seen by all.
#include <algorithm>

#include "attention/descriptor.h"
#include "attention/shared/grid.h"
#include "attention/shared/index_tables.h"
#include "attention/shared/pinned.h"
#include "attention/shared/windows.h"
#include "kernels/picked_rows/picked_rows.h"

namespace xformer::attention::variants::image_local {

struct LineOptions {
  int64_t block = 256, memory_length = 256;
};

struct GridOptions {
  int64_t block_height = 8, block_width = 8, memory_height = 8, memory_width = 8, columns = 0;
};

// Places that are multiplied together, side by side: a block, or, where a block's places are not in the order of the
// sequence and rows may not look ahead, a line of it.
struct Unit {
  std::vector<int64_t> own, memory;  // places in the order of the sequence; memory: of other units
};

std::vector<Unit> line_units(const LineOptions& options, int64_t places, bool causal) {
  std::vector<Unit> result;
  for (int64_t first = 0; first < places; first += options.block) {
    const int64_t last = std::min(places, first + options.block);
    const int64_t end = causal ? last : std::min(places, last + options.memory_length);
    Unit unit;
    for (int64_t i = std::max<int64_t>(0, first - options.memory_length); i < end; ++i)
      (i >= first && i < last ? unit.own : unit.memory).push_back(i);
    result.push_back(std::move(unit));
  }
  return result;
}

std::vector<Unit> grid_units(const GridOptions& options, int64_t columns, int64_t places, bool causal) {
  const int64_t rows = (places + columns - 1) / columns, height = causal ? 1 : options.block_height;
  std::vector<Unit> result;
  for (int64_t first_row = 0; first_row < rows; first_row += height)
    for (int64_t left = 0; left < columns; left += options.block_width) {
      const int64_t top = first_row / options.block_height * options.block_height;  // of the block
      const int64_t last_row = first_row + height, right = std::min(columns, left + options.block_width);
      const int64_t end = causal ? last_row : std::min(rows, last_row + options.memory_height);
      Unit unit;
      for (int64_t row = std::max<int64_t>(0, top - options.memory_height); row < end; ++row)
        for (int64_t column = std::max<int64_t>(0, left - options.memory_width);
             column < std::min(columns, right + options.memory_width) && row * columns + column < places; ++column) {
          const bool own = row >= first_row && row < last_row && column >= left && column < right;
          if (own || !causal || row < first_row || column < left)
            (own ? unit.own : unit.memory).push_back(row * columns + column);
        }
      if (!unit.own.empty()) result.push_back(std::move(unit));
    }
  return result;
}

using Cut = std::function<std::vector<Unit>(int64_t places, bool causal)>;

class ImageLocalCore : public AttentionCore {
 public:
  ImageLocalCore(Cut cut, const BuildContext& context)
      : cut_(std::move(cut)), causal_(context.causal), pinned_(context), dropout_(context.make_dropout()) {}

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    XF_ASSERT(mask.causal == causal_, "image-local was built with causal {}", causal_);
    return pinned_.forward(q, k, v, mask, is_training(), [&](const PinnedTokens::Rest& rest) {
      const int64_t places = rest.q.size(2);
      const Tables& tables = tables_of(places, k.size(2) - places, q.device());
      // Memory and pinned keys are read where they lie.
      ExtraKeys extra{k, v, {}, tables.memory};
      if (!mask.all_valid()) extra.allowed = mask.key_valid.unsqueeze(1);
      const int64_t slots = tables.order.defined() ? tables.units * tables.width : places;
      const Windows windows = Windows::own_block(slots, tables.width, causal_);
      if (!tables.order.defined())
        return window_attention(rest.q, rest.k, rest.v, rest.valid, windows, dropout_, is_training(), extra);
      const auto picked = [&](const at::Tensor& x, const at::Tensor& rows) {
        return kernels::picked_rows(x, rows.expand({x.size(0), x.size(1), -1}));
      };
      at::Tensor valid = rest.valid;
      if (valid.defined()) valid = valid.index_select(1, tables.order);
      if (slots > places)
        valid = valid.defined() ? valid.logical_and(tables.filled) : tables.filled.expand({q.size(0), slots});
      return picked(window_attention(picked(rest.q, tables.order), picked(rest.k, tables.order),
                                     picked(rest.v, tables.order), valid, windows, dropout_, is_training(), extra),
                    tables.back);
    });
  }

  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const int64_t n = shape.query_len, p = pinned_.of(n), places = n - p;
    const double z = static_cast<double>(shape.batch * shape.heads), d = static_cast<double>(shape.head_dim);
    double executed = pinned_.executed_pairs(n), pattern = pinned_.pattern_pairs(n);
    int64_t slots = 0;
    if (places > 0) {
      const std::vector<Unit> units = cut_(places, causal_);
      const auto [width, memory] = widths(units);
      for (const Unit& unit : units) {
        const auto own = static_cast<int64_t>(unit.own.size()), seen = static_cast<int64_t>(unit.memory.size()) + p;
        pattern += static_cast<double>(own * seen + (causal_ ? own * (own + 1) / 2 : own * own));
      }
      // What the last unit lacks is behind the last token, and skipped.
      const auto last = static_cast<int64_t>(units.back().own.size());
      slots = (static_cast<int64_t>(units.size()) - 1) * width + last;
      executed +=
          Windows::own_block(slots, width, causal_).executed_pairs() + static_cast<double>(slots * (memory + p));
    }
    return {4 * z * d * executed, 4 * z * d * pattern, kept_of_windows(z, static_cast<double>(slots + p), d)};
  }

  [[nodiscard]] bool zeroes_padding() const override { return true; }
  [[nodiscard]] bool takes_bf16() const override { return true; }
  [[nodiscard]] bool takes_half_on_devices(const at::Tensor& q) const override {
    return kernels::window_attention_runs_fused(q);
  }

 private:
  struct Tables {
    int64_t units = 0, width = 0;
    at::Tensor memory;  // [1,units,g]: where in all of k a unit's memory and the pinned keys are, -1 for none
    // Place of each slot, which ones have one of their own (the others have their unit's first, so that no row is of
    // tokens that its unit does not read), and slot of each place; undefined: as they are.
    at::Tensor order, filled, back;
  };

  // Slots of a unit, and the most keys that one has in its memory.
  static std::pair<int64_t, int64_t> widths(const std::vector<Unit>& units) {
    size_t own = 0, memory = 0;
    for (const Unit& unit : units) own = std::max(own, unit.own.size()), memory = std::max(memory, unit.memory.size());
    return {static_cast<int64_t>(own), static_cast<int64_t>(memory)};
  }

  const Tables& tables_of(int64_t places, int64_t pinned, const at::Device& device) {
    return tables_.get(places, device, is_training(), [&] { return make_tables(places, pinned, device); });
  }

  [[nodiscard]] Tables make_tables(int64_t places, int64_t pinned, const at::Device& device) const {
    Tables result;
    const std::vector<Unit> units = cut_(places, causal_);
    const auto [width, seen] = widths(units);
    std::vector<int64_t> memory, order, back(static_cast<size_t>(places));
    for (const Unit& unit : units) {
      for (int64_t i = 0; i < pinned; ++i) memory.push_back(i);
      for (const int64_t place : unit.memory) memory.push_back(pinned + place);
      memory.resize(memory.size() + static_cast<size_t>(seen) - unit.memory.size(), -1);
      for (const int64_t place : unit.own) {
        back[static_cast<size_t>(place)] = static_cast<int64_t>(order.size());
        order.push_back(place);
      }
      order.resize(order.size() + static_cast<size_t>(width) - unit.own.size(), places);
    }
    const auto numbers = [&](const std::vector<int64_t>& list) {
      return host_table(at::tensor(list, at::kLong), device);
    };
    result.units = static_cast<int64_t>(units.size());
    result.width = width;
    result.memory = numbers(memory).view({1, result.units, seen + pinned});
    if (!std::is_sorted(order.begin(), order.end())) {
      result.filled = numbers(order).lt(places);
      for (size_t slot = 0; slot < order.size(); ++slot)
        if (order[slot] == places) order[slot] = order[slot / static_cast<size_t>(width) * static_cast<size_t>(width)];
      result.order = numbers(order), result.back = numbers(back);
    }
    return result;
  }

  Cut cut_;
  bool causal_;
  PinnedTokens pinned_;
  kernels::Dropout dropout_;
  TablesByLength<Tables> tables_;
};

const Schema<LineOptions>& line_schema() {
  static const Schema<LineOptions> kSchema =
      Schema<LineOptions>()
          .add(&LineOptions::block, "block", "tokens per block (b)", at_least(1))
          .add(&LineOptions::memory_length, "memory_length",
               "places before a block, and as many behind it, that its rows see too (l_m)", at_least(0));
  return kSchema;
}

const Schema<GridOptions>& grid_schema() {
  using Options = GridOptions;
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::block_height, "block_height", "rows of a query block (h_q)", at_least(1))
          .add(&Options::block_width, "block_width", "columns of a query block (w_q)", at_least(1))
          .add(&Options::memory_height, "memory_height",
               "rows above a block, and as many below, that it sees too (h_m)", at_least(0))
          .add(&Options::memory_width, "memory_width",
               "columns on the left of a block, and as many on the right, that it sees too (w_m)", at_least(0))
          .add(&Options::columns, "columns", kColumnsHelp, at_least(0));
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor line;
  line.name = "image-local-1d";
  line.title = "Image Transformer, one-dimensional local attention";
  line.paper = "Parmar, Vaswani, Uszkoreit, Kaiser, Shazeer, Ku, Tran: Image Transformer, 2018";
  line.method_class = "FP";
  line.summary = "The sequence is cut into blocks; each token sees its block and a memory of places around the block.";
  line.complexity = Complexity::kLinear;
  line.traits = {.causal_ok = true};
  line.appended_padding = always_exact();
  line.options = line_schema().options();
  line.dense_limit = Json{{"block", 1 << 30}};
  line.build_core = [](const Json& options, const BuildContext& context) {
    const LineOptions own = line_schema().read(options);
    return std::make_shared<ImageLocalCore>(
        [own](int64_t places, bool causal) { return line_units(own, places, causal); }, context);
  };

  Descriptor grid = line;
  grid.name = "image-local-2d";
  grid.title = "Image Transformer, two-dimensional local attention";
  grid.summary = "The sequence is a grid cut into rectangles; each token sees its own and a margin of cells around it.";
  grid.options = grid_schema().options();
  grid.dense_limit = Json{{"block_height", 1 << 30}, {"block_width", 1 << 30}};
  grid.build_core = [](const Json& options, const BuildContext& context) {
    const GridOptions own = grid_schema().read(options);
    const int64_t columns = grid_columns(own.columns, context);
    return std::make_shared<ImageLocalCore>(
        [own, columns](int64_t places, bool causal) { return grid_units(own, columns, places, causal); }, context);
  };
  return {line, grid};
}

}  // namespace xformer::attention::variants::image_local
