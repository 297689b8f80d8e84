// Dropout as a pure function of (seed, step, site, element): nothing need be stored for the backward pass, a resumed
// run needs no generator state, and every device drops the same elements.
//
// Element e of a call belongs to Philox 4x32-10 block e / 8 under key (seed, purpose "dropout"), counter
// (e / 8, step and site); it takes 16 of the 128 bits, so p counts in steps of 1/65536 and the survivors are scaled by
// the inverse of the share really kept. Elements are numbered over the whole batch: row r of a micro-batch
// that starts at row f is row f + r.
#pragma once

#include <torch/types.h>

#include <memory>

namespace xformer::kernels {

// Shared by all dropout sites of a model. A step's number is written before the step and a micro-batch's first row
// inside it, by launches that a captured step repeats.
struct DropoutStream {
  at::Tensor state;   // int64 [3] on the model's device: key, step, first row of the micro-batch
  int64_t sites = 0;  // handed out so far

  explicit DropoutStream(uint64_t seed);
  void to(const at::Device& device);
  // Also seeds LibTorch's own generator, as seed_library() does.
  void set_step(int64_t step, int64_t first_row = 0);
  // The step's number from a float64 scalar on the device, as captured work reads it.
  void take_step(const at::Tensor& step);
  // LibTorch's own generator of the device from (key, step), for operators that draw by themselves.
  void seed_library(int64_t step) const;
  void set_first_row(int64_t first_row);

 private:
  uint64_t key_;
};

// x times 0 or 1/(1-p). x is [rows, ...], contiguous after a copy if need be; differentiable.
[[nodiscard]] at::Tensor dropout(const at::Tensor& x, double p, const at::Tensor& state, int64_t site);

// The same composed of plain tensor operations: the meaning that the kernels are tested against.
[[nodiscard]] at::Tensor dropout_reference(const at::Tensor& x, double p, const at::Tensor& state, int64_t site);

// What a fused operator that drops inside is told of one place, at one moment.
struct DropoutPlace {
  double p = 0;
  at::Tensor state;  // of the DropoutStream; only read where p > 0
  int64_t site = 0;
  at::Tensor kept = {};  // what the forward pass kept, for the backward pass (place.h); undefined: both draw

  [[nodiscard]] at::Tensor operator()(const at::Tensor& x) const { return p > 0 ? dropout(x, p, state, site) : x; }
};

// One place in a model where dropout happens.
class Dropout {
 public:
  Dropout() = default;
  Dropout(double p, std::shared_ptr<DropoutStream> stream);
  [[nodiscard]] at::Tensor operator()(const at::Tensor& x, bool training) const { return place(training)(x); }
  // As it is now; nothing is dropped outside training.
  [[nodiscard]] DropoutPlace place(bool training) const;
  [[nodiscard]] double p() const { return p_; }
  [[nodiscard]] int64_t site() const { return site_; }

 private:
  double p_ = 0;
  int64_t site_ = 0;
  std::shared_ptr<DropoutStream> stream_;
};

}  // namespace xformer::kernels
