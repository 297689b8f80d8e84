// What a task is judged by: metrics over any number of batches, each summed on the device, inside the captured step, or
// gathered on the host where it needs all examples at once.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "core/metric.h"
#include "tasks/batch.h"

namespace xformer::tasks {

// Over batches.
struct Totals {
  double loss = 0;
  double weight = 0;                  // what means are over: examples, or places that are predicted
  std::span<const double> counted{};  // what a meter counted
};

// One metric.
class Meter {
 public:
  explicit Meter(MetricSpec spec) : spec_(std::move(spec)) {}
  virtual ~Meter() = default;
  [[nodiscard]] const MetricSpec& spec() const { return spec_; }

  // Device half: so many scalars of a batch's rows, which are added up. Nothing is read back.
  [[nodiscard]] virtual int64_t counts() const { return 0; }
  [[nodiscard]] virtual std::vector<at::Tensor> count(const at::Tensor& outputs, const BatchView& batch) const {
    (void)outputs, (void)batch;
    return {};
  }
  // Host half, for what no sum gives (AUC): the filled rows of a batch, their outputs in float32 on the host. What
  // comes of it must not depend on the order of examples. Evaluations have it, training steps do not. Where the task
  // has the model write a text, the outputs are its classes [b,t] int64, -1 behind its end.
  [[nodiscard]] virtual bool on_host() const { return false; }
  virtual void add(const at::Tensor& outputs, const data::HostBatch& batch) { (void)outputs, (void)batch; }

  [[nodiscard]] virtual double value(const Totals& totals) const = 0;

 private:
  MetricSpec spec_;
};
using MeterList = std::vector<std::unique_ptr<Meter>>;

// A mean by weight of what `count` sums over a batch's rows, a scalar.
using Count = std::function<at::Tensor(const at::Tensor& outputs, const BatchView& batch)>;
[[nodiscard]] std::unique_ptr<Meter> mean_meter(MetricSpec spec, Count count);
// A function of the mean loss, such as its root.
[[nodiscard]] std::unique_ptr<Meter> loss_meter(MetricSpec spec, std::function<double(double mean_loss)> value);

// The mean loss and all metrics of a task together.
class Meters {
 public:
  explicit Meters(MeterList meters);
  // Device sums, float64 [size]: the loss, what the meters count (one place at least), the weight.
  [[nodiscard]] int64_t size() const { return size_; }
  [[nodiscard]] at::Tensor count(const at::Tensor& loss, const at::Tensor& weight, const at::Tensor& outputs,
                                 const BatchView& batch) const;
  [[nodiscard]] bool on_host() const;
  void add(const at::Tensor& outputs, const data::HostBatch& batch);

  struct Reading {
    double loss = 0, weight = 0;  // the mean loss
    std::vector<Metric> metrics;
  };
  // From the sums in host memory. Over nothing everything is 0.
  [[nodiscard]] Reading read(std::span<const double> sums) const;

 private:
  MeterList meters_;
  int64_t size_ = 2;
};

}  // namespace xformer::tasks
