// The records that belong to an experiment.
#pragma once

#include "cli/experiments.h"

namespace xformer::engine {

// As cli::ExperimentReader says. UserErrors of the experiment's file.
[[nodiscard]] cli::ReportedExperiment reported_experiment(const Path& file, const Path& folder);

}  // namespace xformer::engine
