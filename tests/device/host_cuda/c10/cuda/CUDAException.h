#pragma once

#define C10_CUDA_CHECK(error) TORCH_CHECK((error) == cudaSuccess, "a walk does not fail")
