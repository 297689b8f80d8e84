// ListOps (Nangia and Bowman 2018) at the lengths of the Long Range Arena (Tay et al. 2021): nested
// MIN, MAX, MED and SM over digits; the class is the value, 0 to 9.
#include <array>
#include <chrono>

#include "core/error.h"
#include "core/hash.h"
#include "data/batcher.h"
#include "data/cache.h"
#include "data/check.h"
#include "data/duplicates.h"
#include "data/listops_files.h"
#include "data/listops_generator.h"
#include "readers/listops.h"

namespace xformer::data::adapters::listops {
namespace {

namespace format = readers::listops;

constexpr int64_t kAdapterVersion = 1;  // part of the cache's key: raise it when the content made here changes

// The settings of Nystromformer, MRA and MrsFormer: one small model for every task of the arena.
Json mlpen_values() {
  return {
      {"training.steps", 5000},
      {"training.batch", 32},
      {"training.learning_rate", 1e-4},
      {"training.warmup", 1000},
      {"training.schedule", "onecycle_linear"},
      {"training.optimizer", "adamw"},
      {"training.beta1", 0.9},  // cycled between 0.95 and 0.85 by the schedule
      {"training.beta2", 0.999},
      {"training.epsilon", 1e-6},
      {"training.weight_decay", 0.0},
      {"training.cycle_beta1", true},
      {"training.selection", "best_dev"},
      {"training.eval_every", 50},
      {"eval.parity", false},
      {"eval.dev_batches", 62},  // of each dev evaluation when eval.parity is set
      {"model.dim", 64},
      {"model.heads", 2},
      {"model.head_dim", 32},
      {"model.layers", 2},
      {"model.ff_dim", 128},
      {"model.dropout", 0.1},
      {"model.attention_dropout", 0.1},
      {"model.positions", "learned"},
      {"model.pooling", "mean_padded"},
      {"model.classifier_dim", 128},
      {"model.vocabulary_rows", 32},
      {"model.norm_epsilon", 1e-5},
      {"model.activation", "gelu"},
      {"model.init", "mlpen"},
      {"model.attention_bias", true},
      {"model.mask_output", true},
      {"model.length_rule", "power_of_two"},
  };
}

// The official JAX code, without its faults.
Json glra_values() {
  Json values = mlpen_values();
  values.update({
      {"training.learning_rate", 0.05},
      {"training.schedule", "rsqrt"},
      {"training.beta2", 0.98},
      {"training.epsilon", 1e-9},
      {"training.weight_decay", 0.1},
      {"training.cycle_beta1", false},
      {"training.selection", "last"},
      {"model.dim", 512},
      {"model.heads", 8},
      {"model.head_dim", 64},
      {"model.layers", 4},
      {"model.ff_dim", 1024},
      {"model.positions", "sinusoidal"},
      {"model.pooling", "cls_vector"},
      {"model.classifier_dim", 1024},
      {"model.vocabulary_rows", 17},
      {"model.norm_epsilon", 1e-6},
      {"model.activation", "gelu_tanh"},
      {"model.init", "glra"},
      {"model.attention_bias", false},
      {"model.mask_output", false},
      {"model.length_rule", "exact"},
  });
  return values;
}

Json with(Json values, const char* key, const Json& value) {
  values[key] = value;
  return values;
}

std::vector<Protocol> protocols() {
  return {
      {"mlpen", "the PyTorch lineage (Nystromformer, MRA-2, MrsFormer): 2 layers of 64, 5,000 steps, best dev",
       mlpen_values()},
      {"mlpen-15k", "mlpen with the 15,000 steps of MrsFormer's Table 9",
       with(mlpen_values(), "training.steps", 15000)},
      {"glra", "the official JAX lineage: 4 layers of 512, class vector, inverse square root rate, last step",
       glra_values()},
      {"clean",
       "mlpen with the mean over valid tokens only; its other two corrections (black pixels, dev = test) do not touch "
       "ListOps",
       with(mlpen_values(), "model.pooling", "mean_valid")},
  };
}

ListOpsOptions read_options(const Json& options) { return listops_schema().read(without_batching(options)); }

std::unique_ptr<DataSource> open_generated(const ListOpsOptions& options, const DataLocation& location,
                                           const ProgressCallback& progress) {
  const ListOpsGenerator generator(options);  // refuses impossible settings before anything is written
  const Json settings = listops_schema().write(options);
  const Json key{{"adapter", kAdapterVersion}, {"generator", settings}};
  const auto build = [&](const AddExample& add, DataInfo& info) {
    info.origin = "generated";
    info.details = {
        {"vocabulary_sha256", format::vocabulary_sha256()}, {"generator", settings}, {"duplicates_across_splits", 0}};
    generator.generate(add, progress);
  };
  return open_cached({location.cache, "listops", key, format::kClasses}, build, progress);
}

// Path, size and time of each file stand for its content: reading it again would take longer than using it.
Json identity(const ListOpsFiles& files) {
  Json result = Json::array();
  for (const Split split : kAllSplits) {
    const auto& path = files.paths[static_cast<size_t>(split)];
    if (!path) continue;
    const auto changed = std::filesystem::last_write_time(*path).time_since_epoch();
    result.push_back({{"split", split_name(split)},
                      {"path", std::filesystem::canonical(*path).string()},
                      {"bytes", std::filesystem::file_size(*path)},
                      {"mtime_ns", std::chrono::duration_cast<std::chrono::nanoseconds>(changed).count()}});
  }
  return result;
}

void pack_files(const ListOpsFiles& files, int64_t max_length, const AddExample& add, DataInfo& info,
                const ProgressCallback& progress) {
  info.origin = "files";
  info.details["vocabulary_sha256"] = format::vocabulary_sha256();
  info.details["layout"] = files.layout == format::Layout::kLra ? "lra" : "original";
  DuplicateFinder duplicates(files.names());
  const uint64_t total = files.bytes();
  uint64_t done = 0;
  int64_t cut = 0;
  for (const Split split : kAllSplits) {
    const auto& path = files.paths[static_cast<size_t>(split)];
    if (!path) continue;
    format::RowReader rows(*path, files.layout);
    for (format::Row row; rows.next(row);) {
      duplicates.see(split, rows.line_number(), row.tokens);
      const size_t kept = std::min(row.tokens.size(), static_cast<size_t>(max_length));
      cut += kept < row.tokens.size() ? 1 : 0;
      add(split, std::span(row.tokens).first(kept), row.label);
      if (progress && rows.line_number() % 256 == 0) progress("packing ListOps", done + rows.bytes_read(), total);
    }
    done += rows.bytes_read();
    info.details["files"][split_name(split)] = {{"name", path->filename().string()},
                                                {"bytes", std::filesystem::file_size(*path)},
                                                {"sha256", sha256_of_file(*path)}};
  }
  info.details["cut_to_max_length"] = cut;
  info.details.update(duplicates.report());
  if (progress) progress("packing ListOps", total, total);
}

std::unique_ptr<DataSource> open_files(const ListOpsOptions& options, const DataLocation& location,
                                       const ProgressCallback& progress) {
  const ListOpsFiles files = find_listops_files(location.folder, location.require_all_splits);
  const Json key{{"adapter", kAdapterVersion}, {"max_length", options.max_length}, {"files", identity(files)}};
  const auto build = [&](const AddExample& add, DataInfo& info) {
    pack_files(files, options.max_length, add, info, progress);
  };
  return open_cached({location.cache, "listops", key, format::kClasses}, build, progress);
}

std::unique_ptr<DataSource> open(const Json& options, const DataLocation& location, const ProgressCallback& progress) {
  const ListOpsOptions settings = read_options(options);
  return location.folder.empty() ? open_generated(settings, location, progress)
                                 : open_files(settings, location, progress);
}

std::string show(const TokenExample& example) {
  std::string value;
  try {
    value = fmt::format("evaluates to {}", format::evaluate(example.tokens));
  } catch (const DataError& error) {  // cut by max_length, or a faulty file: both are worth looking at
    value = fmt::format("cannot be evaluated: {}", error.what());
  }
  return fmt::format("{}\nlength {}, label {}, {}", format::decode(example.tokens), example.tokens.size(),
                     example.label, value);
}

}  // namespace

std::vector<DatasetDescriptor> describe() {
  DatasetDescriptor listops;
  listops.name = "listops";
  listops.aliases = {"lra-listops"};
  listops.title = "ListOps: the value of a nested expression";
  listops.paper =
      "Nangia and Bowman, ListOps: A Diagnostic Dataset for Latent Tree Learning, 2018; lengths of Tay et al., "
      "Long Range Arena, 2021";
  listops.protocols = protocols();
  listops.options = listops_schema().options();
  for (const OptionInfo& option : listops.options)
    if (option.name != "max_length") listops.generator_options.push_back(option.name);
  for (const OptionInfo& option : batching_schema().options()) listops.options.push_back(option);
  listops.classes = format::kClasses;
  listops.vocabulary = format::kVocabulary;
  listops.max_tokens = [](const Json& options) { return read_options(options).max_length; };
  listops.check_generator = [](const Json& options) { static_cast<void>(ListOpsGenerator(read_options(options))); };
  listops.open = open;
  listops.check = check_listops;
  listops.show = show;
  return {listops};
}

}  // namespace xformer::data::adapters::listops
