#include "data/images/density_source.h"

#include "data/generated_source.h"
#include "data/images/grey_images.h"
#include "readers/cifar.h"

namespace xformer::data {
namespace {

constexpr int64_t kLevels = 256, kColours = 3;

class DensitySource : public DataSource {
 public:
  DensitySource(std::unique_ptr<DataSource> packed, int64_t side) : packed_(std::move(packed)), info_(packed_->info()) {
    info_.shape = density_shape(side);
  }
  [[nodiscard]] int64_t size(Split split) const override { return packed_->size(split); }
  [[nodiscard]] const DataInfo& info() const override { return info_; }
  [[nodiscard]] std::string name(Split split, int64_t index) const override { return packed_->name(split, index); }
  [[nodiscard]] Example read(Split split, int64_t index) const override {
    static thread_local ExampleBuffers buffers;
    const Example packed = packed_->read(split, index);
    const std::span<const uint8_t> bytes = packed.ids[0];
    buffers.labels.assign(bytes.begin(), bytes.end());
    buffers.wide_ids.assign(bytes.size(), 0);
    for (size_t i = 1; i < bytes.size(); ++i) buffers.wide_ids[i] = static_cast<uint16_t>(bytes[i - 1] + 1);
    return labelled_places(buffers, info_.shape.vocabulary);
  }

 private:
  std::unique_ptr<DataSource> packed_;
  DataInfo info_;
};

}  // namespace

DataShape density_shape(int64_t side) {
  DataShape shape;
  shape.max_len = kColours * side * side;
  shape.side = side;
  shape.channels = kColours;
  shape.vocabulary = kLevels + 1;
  shape.zero_is_padding = false;
  shape.target = place_target(kLevels, {.symbol = "dim", .scoring = "whole images"});
  return shape;
}

DataShape packed_density_shape(int64_t side) {
  DataShape shape;
  shape.max_len = kColours * side * side;
  shape.vocabulary = kLevels;
  shape.zero_is_padding = false;
  shape.target = class_target(1);
  return shape;
}

std::unique_ptr<DataSource> density_source(std::unique_ptr<DataSource> packed, int64_t side) {
  return std::make_unique<DensitySource>(std::move(packed), side);
}

readers::Image density_picture(const Example& example, const DataInfo&) {
  const std::span<const int32_t> bytes = example.further[0].as<int32_t>();
  const auto side = std::lround(std::sqrt(static_cast<double>(bytes.size() / kColours)));
  return {side, side, kColours, {bytes.begin(), bytes.end()}};
}

std::string density_shown(const Example& example, const DataInfo&) {
  const std::span<const int32_t> bytes = example.further[0].as<int32_t>();
  std::vector<uint8_t> grey;
  for (size_t i = 0; i + 2 < bytes.size(); i += 3)
    grey.push_back(readers::cifar::grey(static_cast<uint8_t>(bytes[i]), static_cast<uint8_t>(bytes[i + 1]),
                                        static_cast<uint8_t>(bytes[i + 2])));
  return fmt::format("{}{} bytes", drawn_in_letters(grey), bytes.size());
}

}  // namespace xformer::data
