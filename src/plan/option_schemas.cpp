// The options of training and evaluation: names, ranges and help.
#include "plan/options.h"
#include "plan/schedule.h"
#include "plan/update_rule.h"

namespace xformer::plan {

namespace {

template <class Descriptor>
std::vector<std::string> names_of(const Registry<Descriptor>& registry) {
  std::vector<std::string> names;
  for (const Descriptor& one : registry.all()) names.push_back(one.name);
  return names;
}

// "adamw, Adam with decoupled weight decay (beta1, beta2); radam, ..."
template <class Descriptor>
std::string named(const Registry<Descriptor>& registry) {
  std::vector<std::string> parts;
  for (const Descriptor& one : registry.all())
    parts.push_back(fmt::format("{}, {} ({})", one.name, one.summary, fmt::join(one.options, ", ")));
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace

const Schema<TrainingOptions>& training_schema() {
  using O = TrainingOptions;
  static const Schema<O> kSchema =
      Schema<O>()
          .add(&O::steps, "steps", "optimiser steps of the whole schedule", at_least(1))
          .add(&O::epochs, "epochs", "passes over the training data; 0: count steps instead", at_least(0))
          .add(&O::batch, "batch", "examples per optimiser step", at_least(1))
          .add(&O::micro_batch, "micro_batch", "examples at once, accumulated to the batch; 0: the whole batch",
               at_least(0))
          .add(&O::buckets, "buckets", "length buckets that batches are drawn from, each padded to its own length",
               between(1, 64))
          .add(&O::learning_rate, "learning_rate", "peak or base rate of the schedule", above(0))
          .add(&O::schedule, "schedule", "learning rate over time: " + named(all_schedules()),
               one_of(names_of(all_schedules())))
          .add(&O::warmup, "warmup", "steps of rising rate", at_least(0))
          .add(&O::warmup_epochs, "warmup_epochs", "passes over the training data of rising rate; 0: warmup",
               at_least(0))
          .add(&O::optimizer, "optimizer", named(all_optimizers()), one_of(names_of(all_optimizers())))
          .add(&O::beta1, "beta1", "decay of the first moment, where it is not cycled", fraction_below_one())
          .add(&O::beta2, "beta2", "decay of the second moment", fraction_below_one())
          .add(&O::epsilon, "epsilon", "added to the root of the second moment", above(0))
          .add(&O::weight_decay, "weight_decay", "decoupled decay of every parameter", at_least(0))
          .add(&O::cycle_beta1, "cycle_beta1", "onecycle_linear: beta1 runs 0.95 -> 0.85 -> 0.95 against the rate")
          .add(&O::clip_norm, "clip_norm", "gradients are scaled down to this norm; 0: never", at_least(0))
          .add(&O::label_smoothing, "label_smoothing",
               "of classes in training: this share of the target is spread over all classes", fraction_below_one())
          .add(&O::precision, "precision",
               "arithmetic of products and activations; sums and softmax in the attention core stay in fp32; bf16 on a "
               "CPU: activations and factors of all products, with sums, softmax, norms and weights in fp32; fp16 with "
               "dynamic loss scaling; tf32: fp32 whose products are TF32, everywhere, on CUDA",
               one_of({"fp32", "tf32", "bf16", "fp16"}))
          .add(&O::selection, "selection", "weights that are tested: of the strictly best dev evaluation, or the last",
               one_of({"best_dev", "last"}))
          .add(&O::eval_every, "eval_every", "steps between dev evaluations", at_least(1))
          .add(&O::eval_epochs, "eval_epochs", "passes over the training data between dev evaluations; 0: eval_every",
               at_least(0))
          .add(&O::patience, "patience", "dev evaluations without a new best before training ends; 0: never",
               at_least(0))
          .add(&O::log_every, "log_every", "steps between lines of the metric log", at_least(1))
          .add(&O::max_skips, "max_skips",
               "steps in a row with a gradient that is not finite before the run is called diverged", at_least(0))
          .add(&O::init_sha256, "init_sha256", "hash of the weights that training begins with; set by --init-from")
          .add(&O::freeze, "freeze", "parameters that are not trained: patterns of names, separated by commas")
          .add(&O::reinit, "reinit",
               "tensors that keep their initial values under --init-from: patterns of names, separated by commas")
          .add(&O::extend, "extend",
               "tensors of more rows than those of --init-from, which are copied again and again until all are filled: "
               "patterns of names, separated by commas")
          .added("");
  return kSchema;
}

const Schema<EvalOptions>& eval_schema() {
  using O = EvalOptions;
  static const Schema<O> kSchema =
      Schema<O>()
          .add(&O::parity, "parity",
               "as mlpen's code: dev sees only dev_batches shuffled batches, test drops its last partial batch")
          .add(&O::dev_batches, "dev_batches", "batches per dev evaluation under parity; 0: all full ones", at_least(0))
          .add(&O::batch, "batch", "examples per evaluation batch; 0: as in training", at_least(0))
          .add(&O::shifts, "shifts",
               "the test once more on sequences that stand one place later: roll (cyclically), drop-newest (the newest "
               "goes, the oldest becomes padding), or both with a comma; what that changes is a metric of the record")
          .added("");
  return kSchema;
}

}  // namespace xformer::plan
