#include "plan/task_defaults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/names.h"

namespace xformer::plan {

namespace {

bool names(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return matches_pattern(pattern, name); });
}

}  // namespace

// Not here: what no source prints (Nystromformer's landmarks and Linformer's k on the UEA archive); what is printed for
// one length and would mean something else at others (Routing Transformer's clusters of 512 among 8,192 tokens); what
// belongs to one table of another model's paper (experiments/); scales and sizes of models (protocols/).
const std::vector<TaskDefault>& task_defaults() {
  static const std::vector<TaskDefault> kDefaults{
      // Tay et al. 2020: blocks of 50, and of 64 where sequences are of 1,024 pixels or more.
      {{"local-block", "sinkhorn"},
       {"image", "pathfinder32*", "path-x"},
       "block",
       64,
       "google-research/long-range-arena, configs of image and pathfinder"},
      // The supplement's words: MRA-2 computes 25 % of the blocks.
      {{"mra2", "mra2-s"}, {"uea/*"}, "budget", 0.25, "MrsFormer, supplement A.1"},
      // Column "protocol" of the table: CDIL with so many links; Text's 9 are the option's default.
      {{"paramixer-cdil"}, {"image"}, "links", 3, "Paramixer, supplement Table 1"},
      // Column "hidden size"; the other tasks have the option's 32.
      {{"paramixer-chord", "paramixer-cdil"},
       {"text", "longdoc/*", "hfdna", "mtcdna"},
       "hidden",
       128,
       "Paramixer, supplement Table 1"},
      // Those of ListOps, 16 and 2, are left out (attention-third 11).
      {{"transformer-ls"}, {"text", "retrieval"}, "block", 1, "NVIDIA/transformer-ls, scripts of its best LRA rows"},
      {{"transformer-ls"}, {"text"}, "projected_len", 1, "NVIDIA/transformer-ls, scripts of its best LRA rows"},
      {{"transformer-ls"}, {"retrieval"}, "projected_len", 254, "NVIDIA/transformer-ls, scripts of its best LRA rows"},
      {{"mra2"}, {"text", "retrieval"}, "diag", 1, "mlpen/mra-attention, LRA configurations"},
      {{"mra2-s"}, {"image"}, "first", 0, "mlpen/mra-attention, LRA configurations"},
      {{"bpt"}, {"bytes/enwik8"}, "neighbours", 64, "yzh119/BPT, configuration of enwik8"},
      {{"bpt"}, {"bytes/enwik8"}, "level_clip", 6, "yzh119/BPT, configuration of enwik8"},
      {{"compressive"}, {"bytes/enwik8"}, "compression_rate", 3, "Rae et al. 2020, enwik8"},
      {{"adaptive-span"},
       {"bytes/enwik8", "bytes/text8"},
       "include_self",
       false,
       "facebookresearch/adaptive-span, whose rows begin with the token before"},
      // Child et al. 2019, section 7.
      {{"sparse-fixed"}, {"bytes/enwik8"}, "stride", 128, "Sparse Transformer, enwik8"},
      {{"sparse-fixed"}, {"bytes/enwik8"}, "summary", 32, "Sparse Transformer, enwik8"},
      {{"sparse-strided"}, {"imagenet64-density"}, "stride", 128, "Sparse Transformer, ImageNet 64 x 64"},
      {{"combiner-fixed"}, {"text-lm/*"}, "block", 128, "google-research/combiner, language model of 2,048 pieces"},
      // The one that nobody prints (attention-more 2).
      {{"combiner-axial-rowmajor", "combiner-axial-vertical", "combiner-axial-horizontal", "combiner-mixture"},
       {"text-lm/*", "text-mlm/*"},
       "columns",
       128,
       "this project's: a row has what a span of Combiner's language models has"},
  };
  return kDefaults;
}

std::vector<TaskDefault> task_defaults_of(const attention::Resolved& attention) {
  std::vector<TaskDefault> result;
  for (const TaskDefault& one : task_defaults())
    if (names(one.attentions, attention.base->name)) result.push_back(one);
  return result;
}

ValueLayer task_default_layer(const attention::Resolved& attention, const std::string& task) {
  Json values = Json::object();
  std::vector<std::string> sources;
  for (const TaskDefault& one : task_defaults_of(attention)) {
    if (!names(one.tasks, task)) continue;
    values["attention." + one.option] = one.value;
    if (std::find(sources.begin(), sources.end(), one.source) == sources.end()) sources.push_back(one.source);
  }
  return {{OriginKind::kProtocol, fmt::format("{} on {}: {}", attention.base->name, task, fmt::join(sources, "; "))},
          values};
}

}  // namespace xformer::plan
