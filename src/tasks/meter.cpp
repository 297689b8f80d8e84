#include "tasks/meter.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "core/error.h"

namespace xformer::tasks {

namespace {

// Of one sum on the device, or of none.
class SumMeter : public Meter {
 public:
  SumMeter(MetricSpec spec, Count count, std::function<double(const Totals&)> value)
      : Meter(std::move(spec)), count_(std::move(count)), value_(std::move(value)) {}
  int64_t counts() const override { return count_ ? 1 : 0; }
  std::vector<at::Tensor> count(const at::Tensor& outputs, const BatchView& batch) const override {
    if (!count_) return {};
    return {count_(outputs, batch)};
  }
  double value(const Totals& totals) const override { return value_(totals); }

 private:
  Count count_;
  std::function<double(const Totals&)> value_;
};

}  // namespace

std::unique_ptr<Meter> mean_meter(MetricSpec spec, Count count) {
  return std::make_unique<SumMeter>(std::move(spec), std::move(count),
                                    [](const Totals& totals) { return totals.counted[0] / totals.weight; });
}

std::unique_ptr<Meter> loss_meter(MetricSpec spec, std::function<double(double)> value) {
  return std::make_unique<SumMeter>(std::move(spec), Count(), [value = std::move(value)](const Totals& totals) {
    return value(totals.loss / totals.weight);
  });
}

Meters::Meters(MeterList meters) : meters_(std::move(meters)) {
  int64_t counts = 0;
  for (const auto& meter : meters_) counts += meter->counts();
  size_ += std::max<int64_t>(counts, 1);  // as checkpoints have had it from the first
}

at::Tensor Meters::count(const at::Tensor& loss, const at::Tensor& weight, const at::Tensor& outputs,
                         const BatchView& batch) const {
  std::vector<at::Tensor> sums{loss.detach()};
  for (const auto& meter : meters_)
    for (const at::Tensor& sum : meter->count(outputs.detach(), batch)) sums.push_back(sum);
  if (sums.size() == 1) sums.push_back(at::zeros_like(weight));
  sums.push_back(weight);
  XF_ASSERT(static_cast<int64_t>(sums.size()) == size_, "{} sums where meters announced {}", sums.size(), size_);
  for (at::Tensor& sum : sums) sum = sum.to(at::kDouble);
  return at::stack(sums);
}

bool Meters::on_host() const {
  return std::any_of(meters_.begin(), meters_.end(), [](const auto& meter) { return meter->on_host(); });
}

void Meters::add(const at::Tensor& outputs, const data::HostBatch& batch) {
  for (const auto& meter : meters_)
    if (meter->on_host()) meter->add(outputs, batch);
}

Meters::Reading Meters::read(std::span<const double> sums) const {
  const double weight = sums[static_cast<size_t>(size_ - 1)], divisor = weight > 0 ? weight : 1;
  Reading result{sums[0] / divisor, weight, {}};
  size_t first = 1;
  for (const auto& meter : meters_) {
    const auto counts = static_cast<size_t>(meter->counts());
    result.metrics.push_back({meter->spec(), meter->value({sums[0], divisor, sums.subspan(first, counts)})});
    first += counts;
  }
  return result;
}

}  // namespace xformer::tasks
