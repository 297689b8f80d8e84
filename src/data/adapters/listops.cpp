// ListOps (Nangia and Bowman 2018) at the lengths of the Long Range Arena (Tay et al. 2021): nested
// MIN, MAX, MED and SM over digits; the class is the value, 0 to 9.
#include <array>
#include <chrono>

#include "core/error.h"
#include "core/hash.h"
#include "core/plain_files.h"
#include "data/cache/cache.h"
#include "data/check.h"
#include "data/duplicates.h"
#include "data/listops/listops_files.h"
#include "data/listops/listops_generator.h"
#include "readers/listops.h"

namespace xformer::data::adapters::listops {
namespace {

namespace format = readers::listops;

constexpr int64_t kAdapterVersion = 1;  // part of the cache's key: raise it when the content made here changes

ListOpsOptions read_options(const Json& options) { return listops_schema().read(options); }

DataShape shape_of(const ListOpsOptions& options) {
  DataShape shape;
  shape.max_len = options.max_length;
  shape.vocabulary = format::kVocabulary;
  shape.target = class_target(format::kClasses);
  return shape;
}

std::unique_ptr<DataSource> open_generated(const ListOpsOptions& options, const DataLocation& location,
                                           const ProgressCallback& progress) {
  const ListOpsGenerator generator(options);  // refuses impossible settings before anything is written
  const Json settings = listops_schema().write(options);
  const Json key{{"adapter", kAdapterVersion}, {"generator", settings}};
  const auto build = [&](const AddExample& add, DataInfo& info) {
    info.origin = "generated";
    info.details = {
        {"vocabulary_sha256", format::vocabulary_sha256()}, {"generator", settings}, {"duplicates_across_splits", 0}};
    info.shape = shape_of(options);
    generator.generate(
        [&](Split split, std::span<const uint8_t> ids, int64_t label) {
          add(split, {{ids}, {}, label});
        },
        progress);
  };
  return open_cached({location.cache, "listops", key}, build, progress);
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
                      {"bytes", size_of_plain_file(*path)},
                      {"mtime_ns", std::chrono::duration_cast<std::chrono::nanoseconds>(changed).count()}});
  }
  return result;
}

void pack_files(const ListOpsFiles& files, const ListOpsOptions& options, const AddExample& add, DataInfo& info,
                const ProgressCallback& progress) {
  info.origin = "files";
  info.shape = shape_of(options);
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
      duplicates.see(split, rows.line_number(), row.tokens, static_cast<double>(row.label));
      const size_t kept = std::min(row.tokens.size(), static_cast<size_t>(options.max_length));
      cut += kept < row.tokens.size() ? 1 : 0;
      add(split, {{std::span(row.tokens).first(kept)}, {}, row.label});
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
  const auto build = [&](const AddExample& add, DataInfo& info) { pack_files(files, options, add, info, progress); };
  return open_cached({location.cache, "listops", key}, build, progress);
}

std::unique_ptr<DataSource> open(const Json& options, const DataLocation& location, const ProgressCallback& progress) {
  const ListOpsOptions settings = read_options(options);
  return location.folder.empty() ? open_generated(settings, location, progress)
                                 : open_files(settings, location, progress);
}

std::string show(const Example& example, const DataInfo&) {
  const std::span<const uint8_t> tokens = example.ids[0];
  std::string value;
  try {
    value = fmt::format("evaluates to {}", format::evaluate(tokens));
  } catch (const DataError& error) {  // cut by max_length, or a faulty file: both are worth looking at
    value = fmt::format("cannot be evaluated: {}", error.what());
  }
  return fmt::format("{}\nlength {}, label {}, {}", format::decode(tokens), tokens.size(), example.label, value);
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
  listops.source = "generated; or the TSV files of the Long Range Arena's release";
  listops.options = listops_schema().options();
  for (const OptionInfo& option : listops.options)
    if (option.name != "max_length") listops.generator_options.push_back(option.name);
  listops.generated = true;
  listops.masked_share = 0.1;
  listops.shape = [](const Json& options) { return shape_of(read_options(options)); };
  listops.check_generator = [](const Json& options) { static_cast<void>(ListOpsGenerator(read_options(options))); };
  listops.open = open;
  listops.check = check_listops;
  listops.show = show;
  return {listops};
}

}  // namespace xformer::data::adapters::listops
