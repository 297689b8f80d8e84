// Names in experiment files, checked before cells are made of them.
#pragma once

#include "sweep/experiment.h"

namespace xformer::sweep {

// Whether one of the names is this one, however it is spelt.
[[nodiscard]] bool is_among(const std::vector<std::string>& names, const std::string& name);

// UserErrors: a name under waits_for that is registered, or that the experiment does not ask for; a pattern of cases or
// exclude that fits neither a name of the experiment nor any other; an exclude that leaves no run.
void check_names(const Experiment& experiment);

}  // namespace xformer::sweep
