// What stands before the plugin's sources in the translation unit that has them for the walked device: LibTorch, which
// must know CUDA by its name, and then the name by which they register their operators.
#pragma once

#include <ATen/Functions.h>
#include <ATen/OpMathType.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "device/walked_device.h"
#include "kernels/device/tensors.h"
#include "kernels/operator.h"

#define CUDA HPU
