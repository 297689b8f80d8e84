// What becomes of places that hold an event: numbers and, behind them, codes of words, each word with a vector of its
// own (attention-more 17). The vectors and the numbers side by side go through one linear map.
//
//   x = W [e_1(c_1); ..; e_k(c_k); numbers] + b,   e_i of width min(32, ceil(1.6 size_i^0.56))
#pragma once

#include <torch/nn/module.h>

#include "attention/multi_head.h"
#include "models/model.h"

namespace xformer::models {

// Whether the last of each place's numbers are codes. A place of one number is a column of a table instead, and then
// the last places are.
[[nodiscard]] inline bool holds_events(const InputSpec& input) { return input.width > 1 && !input.categories.empty(); }

[[nodiscard]] int64_t code_width(int64_t size);

class EventInput : public torch::nn::Module {
 public:
  // `scheme` is of the map's initial values; codes begin at N(0, 1), as wide as standardised numbers.
  EventInput(const InputSpec& input, int64_t dim, const std::string& scheme, const InitStream& init);
  // values [b,n,width] -> [b,n,dim]
  [[nodiscard]] at::Tensor forward(const at::Tensor& values) const;
  // Of one place, of the map alone.
  [[nodiscard]] double flops() const { return 2.0 * static_cast<double>(map_->weight.numel()); }

 private:
  int64_t numbers_;
  std::vector<at::Tensor> codes_;  // [size, width of its vectors]
  std::shared_ptr<attention::Linear> map_;
};

}  // namespace xformer::models
