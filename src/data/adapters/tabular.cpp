// Tables: the eleven sets of the FT-Transformer and MrsFormer papers (tasks-more 6), and any other, `tabular/<name>`,
// by a schema. A row is its numbers, normalised by the training rows, and the codes of its categories.
#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/names.h"
#include "core/text.h"
#include "data/cache/cache.h"
#include "data/cache/packed_files.h"
#include "data/check.h"
#include "data/tables/table_csv.h"
#include "data/tables/table_files.h"
#include "data/tables/table_preprocess.h"

namespace xformer::data::adapters::tabular {
namespace {

constexpr int64_t kAdapterVersion = 2;  // part of the cache's key: raise it when the content made here changes

// What is known of a set without its files.
struct Known {
  const char* name;
  std::array<int64_t, 3> sizes;  // train, dev, test
  int64_t numbers;
  std::vector<int64_t> categories;
  int64_t classes;  // 0: a number
};

const std::vector<Known>& known_sets() {
  static const std::vector<Known> kSets{
      {"california-housing", {13209, 3303, 4128}, 8, {}, 0},
      {"adult", {26048, 6513, 16281}, 6, {9, 16, 7, 15, 6, 5, 2, 42}, 2},
      {"helena", {41724, 10432, 13040}, 27, {}, 100},
      {"jannis", {53588, 13398, 16747}, 54, {}, 4},
      {"higgs-small", {62752, 15688, 19610}, 28, {}, 2},
      {"aloi", {69120, 17280, 21600}, 128, {}, 1000},
      {"epsilon", {320000, 80000, 100000}, 2000, {}, 2},
      {"year", {370972, 92743, 51630}, 90, {}, 0},
      {"covertype", {371847, 92962, 116203}, 54, {}, 7},
      {"yahoo", {473134, 71083, 165660}, 699, {}, 0},
      {"microsoft", {723412, 235259, 241521}, 136, {}, 0},
  };
  return kSets;
}

struct Options {
  std::string normalisation = "quantile", schema;
  int64_t split_seed = 0;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::normalisation, "normalisation", "of numbers, fitted on the training rows",
               one_of({"quantile", "standard", "none"}))
          .add(&Options::schema, "schema",
               "columns of CSV files: target=NAME kind=regression|classification [categorical=A,B] [ignore=C] "
               "[header=yes|no] [delimiter=comma|tab|semicolon]; without it the folder holds arrays or the publisher's "
               "own files")
          .add(&Options::split_seed, "split_seed",
               "seed of splits that the files do not make, and of the quantiles' noise; apart from the run's seed",
               at_least(0));
  return kSchema;
}

Options read_options(const Json& options) { return schema().read(options); }

DataShape shape_of(int64_t numbers, const std::vector<int64_t>& categories, int64_t classes, double target_scale = 1) {
  DataShape shape;
  shape.max_len = numbers + static_cast<int64_t>(categories.size());
  shape.width = 1;
  shape.categories = categories;
  shape.target = classes == 0 ? number_target(target_scale) : classes == 2 ? binary_target() : class_target(classes);
  return shape;
}

void pack(const Table& table, const Options& options, const AddExample& add, DataInfo& info,
          const ProgressCallback& progress) {
  const TableMaps maps =
      fit_table(table, parse_normalisation(options.normalisation), static_cast<uint64_t>(options.split_seed));
  const std::vector<int64_t> sizes = category_sizes(maps, table);
  info.shape =
      shape_of(static_cast<int64_t>(table.numeric_names.size()), sizes,
               table.kind == TableKind::kRegression ? 0 : static_cast<int64_t>(maps.classes.size()), maps.target_std);
  info.origin = "files";
  info.details = {{"files", file_facts(table.files)},
                  {"kind", table_kind_name(table.kind)},
                  {"split", table.own_split ? "own" : "published"},
                  {"numeric_columns", table.numeric_names},
                  {"categorical_columns", table.categorical_names},
                  {"classes", maps.classes},
                  {"remarks", remarks_on(table)}};
  if (table.kind == TableKind::kRegression)
    info.details["target"] = {{"mean", maps.target_mean}, {"std", maps.target_std}};
  std::vector<float> values(static_cast<size_t>(info.shape.max_len));
  uint64_t total = 0, done = 0;
  for (const Split split : kAllSplits) total += static_cast<uint64_t>(table.part(split).rows);
  for (const Split split : kAllSplits) {
    const TablePart& part = table.part(split);
    for (int64_t row = 0; row < part.rows; ++row, ++done) {
      encode_row(maps, part, row, values);
      Example example{{}, values};
      if (table.kind == TableKind::kRegression)
        example.target = static_cast<float>(standard_target(maps, part.targets[static_cast<size_t>(row)]));
      else example.label = class_id(maps, part.labels[static_cast<size_t>(row)]);
      add(split, example);
      if (progress && done % 4096 == 0) progress("packing rows", done, total);
    }
    const std::vector<int64_t> unseen = count_unseen(maps, part);
    for (size_t i = 0; i < unseen.size(); ++i)
      if (unseen[i] > 0) info.details["unseen_categories"][split_name(split)][table.categorical_names[i]] = unseen[i];
  }
}

std::unique_ptr<DataSource> open(const std::string& name, const Json& given, const DataLocation& location,
                                 const ProgressCallback& progress) {
  const Options options = read_options(given);
  require_folder("tabular/" + name,
                 "N_train.npy, y_train.npy, ... and info.json, the publisher's own files, or CSV files with "
                 "data.schema",
                 location);
  XF_CHECK(std::filesystem::is_directory(location.folder), DataError,
           "--data: expected a folder, found the file {}; an archive is to be unpacked first",
           location.folder.string());
  const Path folder = find_table(name, location.folder, options.schema);
  // Which of them are read depends on which are there.
  const std::vector<Path> files = table_files_in(folder);
  Json key = schema().write(options);
  key.update({{"adapter", kAdapterVersion}, {"files", file_identity(files)}});
  const auto build = [&](const AddExample& add, DataInfo& info) {
    const Table table = read_table(name, folder, options.schema, static_cast<uint64_t>(options.split_seed));
    for (const Path& file : table.files)
      XF_ASSERT(std::find(files.begin(), files.end(), file) != files.end(), "{} is no file of a table", file.string());
    pack(table, options, add, info, progress);
  };
  return open_cached({location.cache, "tabular/" + canonical_name(name), key}, build, progress);
}

CheckReport check(const Known& known, const std::string& name, const Json& given, const DataLocation& location,
                  const ProgressCallback& progress) {
  const auto source = open(name, given, location, progress);
  const DataInfo& info = source->info();
  CheckReport report;
  if (known.sizes[0] > 0) compare_sizes(*source, known.sizes, report);
  report.add("the files say what is train, dev and test",
             info.details["split"] == "own" ? CheckOutcome::kNote : CheckOutcome::kPassed,
             info.details["split"] == "own"
                 ? "the split is drawn by data.split_seed: scores are not comparable to the third decimal"
                 : "given by the files");
  if (const Json unseen = info.details.value("unseen_categories", Json()); !unseen.is_null())
    for (const auto& [split, columns] : unseen.items())
      for (const auto& [column, count] : columns.items())
        report.add("every category occurs in train", CheckOutcome::kNote,
                   fmt::format("rows of {} whose category of {} occurs in no row of train: {}", split,
                               xformer::quoted(column), count.get<int64_t>()));
  for (const Json& remark : info.details["remarks"])
    report.add("columns have names of their own, and no value is missing", CheckOutcome::kNote,
               remark.get<std::string>());
  check_duplicates(*source, report);
  describe_splits(*source, report);
  return report;
}

std::string show(const Example& example, const DataInfo& info) {
  std::string text;
  size_t i = 0;
  for (const Json& column : info.details["numeric_columns"])
    text += fmt::format("{:<24} {:.4f}\n", column.get<std::string>(), example.values[i++]);
  for (const Json& column : info.details["categorical_columns"])
    text += fmt::format("{:<24} code {}\n", column.get<std::string>(), example.values[i++]);
  if (info.shape.target.has("target")) return fmt::format("{}target {:.4f} (standardised)", text, example.target);
  return fmt::format("{}label {} ({})", text, example.label,
                     info.details["classes"][static_cast<size_t>(example.label)].get<std::string>());
}

DatasetDescriptor descriptor(const Known& known, const std::string& name) {
  DatasetDescriptor tabular;
  tabular.name = "tabular/" + name;
  tabular.title = "table: " + name;
  tabular.paper = "Gorishniy et al., Revisiting Deep Learning Models for Tabular Data, 2021";
  tabular.source =
      "arrays of https://github.com/yandex-research/rtdl-revisiting-models, the publisher's own files, or CSV";
  tabular.shape_is_likely = known.sizes[0] == 0;
  tabular.default_family = "ft-transformer";
  tabular.options = schema().options();
  const DataShape shape = shape_of(known.numbers, known.categories, known.classes);
  tabular.shape = [shape](const Json&) { return shape; };
  tabular.check_options = [](const Json& options) {
    if (const Options given = read_options(options); !given.schema.empty())
      static_cast<void>(parse_csv_schema(given.schema));
  };
  tabular.open = [name](const Json& options, const DataLocation& location, const ProgressCallback& progress) {
    return open(name, options, location, progress);
  };
  tabular.check = [known, name](const Json& options, const DataLocation& location, const ProgressCallback& progress) {
    return check(known, name, options, location, progress);
  };
  tabular.show = show;
  return tabular;
}

}  // namespace

std::vector<DatasetDescriptor> describe() {
  std::vector<DatasetDescriptor> result;
  for (const Known& known : known_sets()) result.push_back(descriptor(known, known.name));
  // Any other table: its files and data.schema say what it is.
  const Known other{"<name>", {0, 0, 0}, 8, {}, 2};
  DatasetDescriptor any = descriptor(other, "<name>");
  any.title = "table: any other, by data.schema or as arrays";
  any.member = [other](const std::string& name) { return descriptor(other, name); };
  result.push_back(any);
  return result;
}

}  // namespace xformer::data::adapters::tabular
