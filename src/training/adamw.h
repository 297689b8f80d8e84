// AdamW (Loshchilov and Hutter 2019) over LibTorch's fused operator, with gradient clipping and the skip of steps whose
// gradient is not finite, all without reading a value back to the host.
//
//   g *= min(1, clip / (|g| + 1e-6));  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//   x -= lr (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + wd x)
#pragma once

#include "tensor/tensor_file.h"
#include "training/schedule.h"

namespace xformer::training {

struct AdamWOptions {
  double beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  double clip_norm = 0;  // 0: no clipping
};

class AdamW {
 public:
  // Names are those of the model; the state is saved under them.
  AdamW(NamedTensors parameters, const AdamWOptions& options);

  void zero_gradients();
  // One update with the gradients accumulated so far. A gradient that is not finite leaves everything as it is.
  void step(const ScheduleValues& values);

  // Device scalars, read when the log is written: norm of the last gradient, 1 if the last step was skipped.
  [[nodiscard]] const at::Tensor& gradient_norm() const { return norm_; }
  [[nodiscard]] const at::Tensor& skipped() const { return found_inf_; }

  // "exp_avg.<name>", "exp_avg_sq.<name>", "step": the tensors themselves, to save or to copy into.
  [[nodiscard]] NamedTensors state() const;

 private:
  NamedTensors parameters_;
  AdamWOptions options_;
  std::vector<at::Tensor> values_, gradients_, first_, second_, steps_;
  at::Tensor step_, learning_rate_, norm_, found_inf_;
};

}  // namespace xformer::training
