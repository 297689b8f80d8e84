// All datasets by name, from data/adapters/*.cpp.
#pragma once

#include "core/registry.h"
#include "data/source.h"

namespace xformer::data {

[[nodiscard]] const Registry<DatasetDescriptor>& datasets();

// By name or alias; of `uea/<name>` and the like any name (its letters' case is kept). UserError with the nearest name.
[[nodiscard]] const DatasetDescriptor& find_dataset(const std::string& name);

}  // namespace xformer::data
