// The precompiled header of files with LibTorch: what of it this program uses. Never torch/torch.h, whose weight
// doubles the time of every file.
#pragma once

#include <ATen/Functions.h>
#include <ATen/TensorIndexing.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/generated/variable_factories.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>
