// A small CNN on part of a set of images: what can be learnt is, noise is not, and it can be stopped.
#include "inspect/learnability.h"

#include <catch2/catch.hpp>

#include "core/error.h"
#include "core/random.h"

namespace xformer::inspect {

namespace {

// 32 x 32 images of noise; class 1 has a bright square somewhere, unless nothing can be learnt.
class Squares : public data::DataSource {
 public:
  Squares(bool learnable, std::array<int64_t, 3> sizes) : learnable_(learnable) {
    info_.sizes = sizes;
    info_.shape = {.max_len = 1024, .vocabulary = 256, .zero_is_padding = false, .target = data::class_target(2)};
  }
  int64_t size(data::Split split) const override { return info_.sizes[static_cast<size_t>(split)]; }
  data::Example read(data::Split split, int64_t index) const override {
    static thread_local std::vector<uint8_t> pixels;
    if (split == data::Split::kTrain) last_read_ = std::max(last_read_, index);
    Stream numbers(static_cast<uint64_t>(split), static_cast<uint64_t>(index));
    pixels.resize(1024);
    for (uint8_t& pixel : pixels) pixel = static_cast<uint8_t>(numbers.next_below(160));
    const auto label = static_cast<int64_t>(numbers.next_below(2));
    const uint64_t row = numbers.next_below(26), column = numbers.next_below(26);
    for (uint64_t at = 0; at < 36 && label == 1 && learnable_; ++at)
      pixels[(row + at / 6) * 32 + column + at % 6] = 250;
    return {{pixels}, {}, label};
  }
  const data::DataInfo& info() const override { return info_; }
  [[nodiscard]] int64_t last_read() const { return last_read_; }

 private:
  bool learnable_;
  data::DataInfo info_;
  mutable int64_t last_read_ = -1;
};

LearnabilityOptions small() {
  LearnabilityOptions options;
  options.images = 256;
  options.epochs = 3;
  options.batch = 16;
  return options;
}

}  // namespace

TEST_CASE("a small CNN finds what there is to learn, from the images that it may use") {
  const data::DatasetDescriptor& dataset = data::find_dataset("pathfinder32");
  const Squares squares(true, {1000, 200, 0});
  const Learnability result = learnability(dataset, squares, small());
  CHECK(result.dev_accuracy > 0.95);
  CHECK((result.dev_examples == 200 && result.images == 256 && result.epochs == 3));
  CHECK(squares.last_read() == 255);
  CHECK(learnability(dataset, Squares(true, {1000, 200, 0}), small()).dev_accuracy == result.dev_accuracy);
}

TEST_CASE("it does not find what is not there") {
  LearnabilityOptions options = small();
  options.epochs = 1;
  const double accuracy =
      learnability(data::find_dataset("pathfinder32"), Squares(false, {256, 200, 0}), options).dev_accuracy;
  CHECK((accuracy > 0.35 && accuracy < 0.65));
}

TEST_CASE("it needs train and dev, tells how far it is and stops when it is asked to") {
  const data::DatasetDescriptor& dataset = data::find_dataset("pathfinder32");
  CHECK_THROWS_AS(learnability(dataset, Squares(true, {100, 0, 10}), small()), DataError);
  LearnabilityOptions options = small();
  int64_t told = 0;
  options.progress = [&](int64_t step, int64_t steps) {
    told = step;
    CHECK(steps == 48);
  };
  options.stop_requested = [&] { return told == 2; };
  CHECK_THROWS_AS(learnability(dataset, Squares(true, {1000, 10, 0}), options), Interrupted);
  CHECK(told == 2);
  CHECK_THROWS_AS(learnability(data::find_dataset("listops"), Squares(true, {10, 10, 0}), small()), UserError);
}

}  // namespace xformer::inspect
