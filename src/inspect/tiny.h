// A task and models so small that every attention can be trained on them in a second.
#pragma once

#include "data/source.h"
#include "models/model.h"

namespace xformer::inspect {

// Which of four marks stands somewhere among tokens that say nothing. Lengths 12 to 16, ids below 10.
class MarkTask : public data::DataSource {
 public:
  MarkTask();
  [[nodiscard]] int64_t size(data::Split) const override { return static_cast<int64_t>(examples_.size()); }
  [[nodiscard]] data::Example read(data::Split, int64_t index) const override;
  [[nodiscard]] const data::DataInfo& info() const override { return info_; }

 private:
  std::vector<std::vector<uint8_t>> examples_;
  data::DataInfo info_;
};

// Every option at its default.
[[nodiscard]] Json defaults_of(const std::vector<OptionInfo>& options);

// An encoder for MarkTask around the named attention, with dropout.
[[nodiscard]] std::shared_ptr<models::Model> build_tiny_model(const std::string& attention);

}  // namespace xformer::inspect
