// What DeiT does to a training image before a model sees it (Touvron et al. 2021; tasks-more 7): each a function of the
// image and the numbers that it draws, so that (seed, epoch, index) decide everything.
#pragma once

#include "core/random.h"
#include "data/images/resample.h"

namespace xformer::data {

// A box of 8 to 100 % of the area and an aspect between 3/4 and 4/3, ten times tried, else the middle; resized to
// side x side (torchvision RandomResizedCrop).
[[nodiscard]] Box random_crop_box(int64_t height, int64_t width, Stream& numbers);
// The middle square of side x side from the image resized so that its shorter side is side / 0.875, rounded down. Only
// those pixels are made, so that a strip costs no more than a square.
[[nodiscard]] readers::Image centre_crop(const readers::Image& image, int64_t side);
// Where the middle `side` of `length` pixels begin: half of those spared, rounded as Python's round() does, to the even
// number (torchvision CenterCrop).
[[nodiscard]] int64_t crop_offset(int64_t length, int64_t side);

void flip(readers::Image& image);  // left to right

// RandAugment (Cubuk et al. 2020) as timm's rand-m9-mstd0.5-inc1: two of fifteen operations, one after the other, each
// done with probability 1/2 at a strength around 9 of 10.
[[nodiscard]] readers::Image rand_augment(readers::Image image, Stream& numbers);

// One operation of rand_augment, for tests: `which`, from 0 to 14, at a strength of 0 to 10; `sign` 1 or -1.
inline constexpr int kAugmentOperations = 15;
[[nodiscard]] std::string augment_name(int which);
[[nodiscard]] readers::Image augmented(const readers::Image& image, int which, double strength, int sign);

// With this probability a box of 2 to 33 % of the area becomes normal noise (Zhong et al. 2020, timm's mode pixel).
// `values` are [side, side, 3], normalised.
void random_erasing(std::span<float> values, int64_t side, double probability, Stream& numbers);

}  // namespace xformer::data
