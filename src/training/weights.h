// Weights on their way into a model: from a weights file, a checkpoint or a run's directory; whole (`eval`, `forward`)
// or by matching names and shapes (`train --init-from`). docs/weights.md describes the files.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "core/files.h"
#include "core/run_plan.h"
#include "models/model.h"
#include "training/run_directory.h"

namespace xformer::training {

using Say = std::function<void(const std::string&)>;

struct Weights {
  std::map<std::string, at::Tensor> tensors;    // by the model's names
  std::string source;                           // for messages: "FILE", "FILE (best weights, checkpoint of step 40)"
  std::map<std::string, std::string> metadata;  // of the file; of a checkpoint only its "step"
  std::string sha256;                           // of names, types, shapes and values; see weights_sha256
};

// Over all tensors in the order of their names: the line "name type shape", then the bytes. Files with the same tensors
// have the same hash, whatever the order of their data and their metadata.
[[nodiscard]] std::string weights_sha256(const std::map<std::string, at::Tensor>& tensors);

// A weights file; a checkpoint file (its best weights, else its last); or a run's directory (model.safetensors, else
// its newest whole checkpoint; `say` hears which). DataError for a damaged file, UserError for a directory without
// weights.
[[nodiscard]] Weights read_weights(const Path& path, const Say& say);

// Every tensor of the model by name and shape; more in the file does not matter. Floating types convert. DataError
// naming all that is missing or differs.
void load_weights(models::Model& model, const Weights& weights);

// Brings a freshly built model to where the plan has it begin: takes what matches from the weights of `init_from` (not
// read when `run_folder` holds a checkpoint to go on from), and freezes. `say` hears what matched. Returns the record's
// "init_from"; null when nothing was read. UserError or DataError when the weights are missing or not those of the
// plan, when shapes differ that training.reinit does not name, and for patterns that match nothing. Under
// Standing::kReplaced nothing of the folder is gone on from, and weights that would go with what it holds are refused.
Json prepare_model(models::Model& model, const RunPlan& plan, const Path& init_from, const Path& run_folder,
                   const Say& say, Standing standing = Standing::kNew);
// The same on a model of its own, only for the errors: before data is touched, where the shape is known without it.
void check_preparation(const RunPlan& plan, const Path& init_from, const Path& run_folder,
                       Standing standing = Standing::kNew);

}  // namespace xformer::training
