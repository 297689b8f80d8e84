#include "models/embedding.h"

#include <ATen/Functions.h>

#include <cmath>
#include <numeric>

#include "kernels/embedding/embedding.h"
#include "models/event_input.h"
#include "tensor/probe.h"

namespace xformer::models {

at::Tensor sinusoidal_positions(int64_t length, int64_t dim) {
  at::Tensor table = at::zeros({length, dim});
  auto values = table.accessor<float, 2>();
  const int64_t half = dim / 2;
  const double factor = half > 1 ? -std::log(10000.0) / static_cast<double>(half - 1) : 0;
  for (int64_t position = 0; position < length; ++position) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * std::exp(factor * static_cast<double>(i));
      values[position][i] = static_cast<float>(std::sin(angle));
      values[position][half + i] = static_cast<float>(std::cos(angle));
    }
  }
  return table;
}

Embedding::Embedding(Model& owner, const EmbeddingOptions& options, const ModelRequest& request)
    : owner_(owner),
      options_(options),
      prefix_len_(attention::prefix_tokens(request.attention, request.attention_options)) {
  const InitStream init(request.seed);
  const InputSpec& input = request.input;
  const int64_t dim = options.dim, length = options.padded_len + (options.front == Front::kVector ? 1 : 0);
  const auto add = [&](const char* name, const at::Tensor& values) { return owner.register_parameter(name, values); };
  if (options.front == Front::kColumn) {
    const auto table = [&](const char* name, int64_t rows) {
      const double bound = 1 / std::sqrt(static_cast<double>(dim));
      return add(name, init.uniform(name, {rows, dim}, -bound, bound));
    };
    codes_ = static_cast<int64_t>(input.categories.size());
    numbers_ = input.max_tokens - codes_;
    column_weight_ = table("column_weight", numbers_ + 1);  // row 0 is CLS, which has no bias
    column_bias_ = table("column_bias", numbers_ + codes_);
    if (codes_ > 0) {
      const std::vector<int64_t>& sizes = input.categories;
      table_ = table("codes", std::accumulate(sizes.begin(), sizes.end(), int64_t{0}));
      std::vector<int64_t> offsets{0};
      for (size_t i = 0; i + 1 < sizes.size(); ++i) offsets.push_back(offsets.back() + sizes[i]);
      offsets_ = owner.register_buffer("code_offsets", at::tensor(offsets, at::kLong));
    }
  } else if (input.vocabulary > 0) {
    const int64_t ids = input.vocabulary - (input.masks ? 1 : 0);
    const double deviation = options.init == "glra" ? 1.0 : 0.02;
    rows_ = options.vocabulary_rows > 0 ? options.vocabulary_rows : ids + (options.front == Front::kToken ? 1 : 0);
    tokens_ = add("tokens", init.normal("tokens", {rows_, dim}, deviation));
    if (input.masks) {
      hidden_ = ids;
      mask_ = add("mask", init.normal("mask", {1, dim}, deviation));
    }
  } else {
    // timm leaves its patch embedding, a convolution, as LibTorch makes it.
    const std::string scheme = options.init == "vit" ? "mlpen" : options.init;
    if (holds_events(input))
      events_ = owner.register_module("events", std::make_shared<EventInput>(input, dim, scheme, init.child("events")));
    else
      input_ = owner.register_module(
          "input", std::make_shared<attention::Linear>(input.width, dim, true, scheme, init.child("input")));
  }
  if (options.positions == "learned")
    positions_ = add("positions", options.init == "mvts" ? init.uniform("positions", {length, dim}, -0.02, 0.02)
                                                         : init.normal("positions", {length, dim}, 0.02));
  if (options.positions == "sinusoidal")
    positions_ = owner.register_buffer("positions", sinusoidal_positions(length, dim));
  if (input.segments > 0) {
    XF_ASSERT(options.front == Front::kNone && input.vocabulary > 0, "segments of what is no sequence of ids alone");
    segments_ = add("segments", init.normal("segments", {input.segments, dim}, 0.02));
  }
  if (options.front == Front::kVector)
    cls_ = add("cls", options.init == "vit" ? init.normal("cls", {1, 1, dim}, 0.02) : at::zeros({1, 1, dim}));
  if (prefix_len_ > 0) prefix_ = add("prefix", init.normal("prefix", {1, prefix_len_, dim}, 0.02));
  if (options.front != Front::kColumn) dropout_ = kernels::Dropout(options.dropout, owner.dropout_stream());
}

int64_t Embedding::leading() const {
  return prefix_len_ + (options_.front == Front::kVector || options_.front == Front::kColumn ? 1 : 0);
}

Embedding::Embedded Embedding::forward(at::Tensor ids, const at::Tensor& values, at::Tensor valid, int64_t first,
                                       const at::Tensor& segments, bool padding_read) const {
  XF_ASSERT(segments.defined() || !segments_.defined(), "a sequence without its segments");
  XF_ASSERT(first == 0 || (tokens_.defined() && pinned() == 0), "place {} of a sequence with something in front",
            first);
  const int64_t batch = valid.size(0), dim = options_.dim;
  const auto in_front = [&](const at::Tensor& vectors, const at::Tensor& x) {
    return at::cat({vectors.expand({batch, vectors.size(1), dim}), x}, 1);
  };
  at::Tensor table = tokens_;
  if (mask_.defined()) {
    table = at::cat({tokens_, mask_});
    ids = at::where(ids.eq(hidden_), rows_, ids);
  }
  if (options_.front == Front::kToken) {
    ids = at::cat({at::full({batch, 1}, rows_ - 1, ids.options()), ids.narrow(1, 0, ids.size(1) - 1)}, 1);
    valid = at::cat({at::ones({batch, 1}, valid.options()), valid.narrow(1, 0, valid.size(1) - 1)}, 1);
  }
  const kernels::DropoutPlace drop = dropout_.place(owner_.is_training());
  at::Tensor x;
  if (tokens_.defined() && leading() == 0 && !options_.scale_input && !segments_.defined()) {
    x = kernels::embedding(table, ids, first > 0 && positions_.defined() ? positions_.slice(0, first) : positions_,
                           drop, padding_read ? at::Tensor() : valid);
  } else {
    x = table.defined() ? kernels::embedding(table, ids, {}, {})
        : input_        ? input_->forward(values)
        : events_       ? events_->forward(values)
                        : columns(values.squeeze(-1));
    if (options_.scale_input) x = x * std::sqrt(static_cast<double>(dim));
    if (cls_.defined()) {
      x = in_front(cls_, x);
      // The CLS position's validity copies the first token's.
      valid = at::cat({valid.narrow(1, 0, 1), valid}, 1);
    }
    if (positions_.defined()) x = x + positions_.narrow(0, first, x.size(1));
    if (segments_.defined()) x = x + kernels::embedding(segments_, segments, {}, {});
    if (prefix_len_ > 0) {
      x = in_front(prefix_, x);
      valid = at::cat({at::ones({batch, prefix_len_}, valid.options()), valid}, 1);
    }
    x = drop(x);
  }
  probe("embedding", x);
  // Every row of a table has every column.
  return {x, column_weight_.defined() ? at::Tensor() : valid};
}

// rows [b, numbers + codes] -> [b, 1 + numbers + codes, m]: CLS W_0; numeric j: x_j W_j + b_j; code j: E[offset_j +
// code] + b_j.
at::Tensor Embedding::columns(const at::Tensor& rows) const {
  std::vector<at::Tensor> parts{column_weight_.narrow(0, 0, 1).unsqueeze(0).expand({rows.size(0), 1, options_.dim})};
  if (numbers_ > 0)
    parts.push_back(rows.narrow(1, 0, numbers_).to(column_weight_.scalar_type()).unsqueeze(-1) *
                        column_weight_.narrow(0, 1, numbers_) +
                    column_bias_.narrow(0, 0, numbers_));
  if (codes_ > 0)
    parts.push_back(at::embedding(table_, rows.narrow(1, numbers_, codes_).to(at::kLong) + offsets_) +
                    column_bias_.narrow(0, numbers_, codes_));
  return at::cat(parts, 1);
}

attention::Cost Embedding::cost(int64_t sequences, int64_t length) const {
  if (!input_ && !events_) return {};
  const double of_place = input_ ? 2.0 * static_cast<double>(input_->weight.numel()) : events_->flops();
  const double flops = static_cast<double>(sequences * length) * of_place;
  return {flops, flops, 0};
}

}  // namespace xformer::models
