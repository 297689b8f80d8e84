// The precompiled header of the layers without LibTorch: what many of their files include of the standard library, fmt
// and JSON. No file relies on it: XFORMER_UNITY=OFF and scripts/fuzz compile without.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>
