// `xformer data list|describe|fetch|make|check|stats|show`: datasets before anything is trained on them.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>

#include "cli/printed.h"
#include "cli/progress.h"
#include "core/names.h"
#include "core/option_names.h"
#include "core/text.h"
#include "data/fetch.h"
#include "engine/catalogue.h"
#include "engine/commands.h"
#include "engine/plan_arguments.h"
#include "engine/signals.h"
#include "inspect/learnability.h"
#include "plan/protocols.h"
#include "tensor/memory.h"

namespace xformer::engine {

namespace {

struct DataCommandArguments {
  std::string name, protocol, split = "train";
  int64_t index = 0, count = 1;
  std::string pictures, into, from, certificates;
  std::vector<std::string> mirrors;
  int64_t stall_seconds = 30;
  DataArguments data;
  std::vector<std::string> settings;
  bool json = false, learnable = false, augmented = false, dry_run = false;
};

// What the task's protocol says of the data, by plan keys.
ValueLayer protocol_layer(const data::DatasetDescriptor& dataset, const std::string& name) {
  const plan::Protocol& protocol = plan::find_protocol(dataset.name, name);
  ValueLayer layer{"protocol " + protocol.name, Json::object()};
  for (const auto& [key, value] : protocol.values.items())
    if (key.starts_with("data.")) layer.values[key] = value;
  return layer;
}

// The data options of a dataset as training has them: its defaults, the protocol's, and --set data.*.
Json data_options(const data::DatasetDescriptor& dataset, const DataCommandArguments& arguments) {
  const OptionGroup group{"data", dataset.name, dataset.options};
  const ResolvedOptions resolved =
      resolve_options({group}, {protocol_layer(dataset, arguments.protocol), settings_layer(arguments.settings)});
  Json result = Json::object();
  for (const auto& [key, value] : resolved.values.items()) result[key.substr(5)] = value;
  return result;
}

// Shows progress, and ends the work when a signal came: what was begun in the cache goes with it.
ProgressCallback interruptible(ProgressLine& line) {
  catch_stop_signals();
  return [show = progress_callback(line)](std::string_view what, uint64_t done, uint64_t total) {
    show(what, done, total);
    if (stop_signal_came())
      throw Interrupted("stopped by a signal; nothing is left behind, the same command begins anew");
  };
}

struct OpenedData {
  const data::DatasetDescriptor& dataset;
  std::unique_ptr<data::DataSource> source;
};

// Makes or packs the data where it is not in the cache.
OpenedData open(const DataCommandArguments& arguments) {
  const data::DatasetDescriptor& dataset = data::find_dataset(arguments.name);
  const Json options = data_options(dataset, arguments);
  dataset.check_options(options);
  data::DataLocation location = arguments.data.location(dataset.name);
  location.require_all_splits = false;
  if (location.folder.empty()) dataset.check_generator(options);
  ProgressLine line(terminal_options(STDERR_FILENO));
  auto source = dataset.open(options, location, interruptible(line));
  line.finish();
  return {dataset, std::move(source)};
}

int list() {
  const char* root = std::getenv("XFORMER_DATA");
  std::vector<std::vector<std::string>> rows;
  for (const data::DatasetDescriptor& dataset : data::datasets().all()) {
    std::error_code ignored;
    const bool here = root != nullptr && *root != '\0' && std::filesystem::exists(Path(root) / dataset.name, ignored);
    const bool fetched = !data::files_to_fetch(dataset.name, {}).empty();
    rows.push_back({dataset.name,
                    here                ? "files"
                    : dataset.generated ? "made"
                                        : "needs --data",
                    fetched ? "yes" : "-", dataset.title});
  }
  print_table({"task", "data", "fetch", "title"}, rows, /*markdown=*/false);
  fmt::print("\n");
  print_wrapped(
      "data: files, $XFORMER_DATA holds a folder of the name; made, generated without files. fetch: yes, `xformer data "
      "fetch TASK` gets the files; with --dry-run it says from where, how many bytes and which hash");
  return 0;
}

// What there is to say of splits in one line each; --json has the rest.
void print_splits(const Json& splits) {
  if (splits.empty()) return;
  std::vector<std::vector<std::string>> rows;
  for (const auto& [split, facts] : splits.items()) {
    const Json length = facts.value("length", Json::object());
    const auto number = [&](const char* key) {
      return length.contains(key) ? fmt::format("{:g}", length[key].get<double>()) : std::string("-");
    };
    int64_t seen = 0;
    const Json labels = facts.value("labels", Json::object());  // by label, or a list
    for (const Json& count : labels) seen += count.get<int64_t>() > 0 ? 1 : 0;
    rows.push_back({split, format_count(facts["examples"].get<uint64_t>()), seen == 0 ? "-" : std::to_string(seen),
                    number("min"), number("median"), number("max")});
  }
  fmt::print("\n");
  print_table({"split", "examples", "classes", "shortest", "median", "longest"}, rows, /*markdown=*/false);
}

int make(const DataCommandArguments& arguments) {
  const OpenedData opened = open(arguments);
  const data::DataInfo& info = opened.source->info();
  const data::DataShape& shape = info.shape;
  fmt::print("{}: {} from {}\n", opened.dataset.name, shape.target.text, info.origin);
  for (const data::Split split : data::kAllSplits)
    fmt::print("  {:<6}{} examples\n", data::split_name(split),
               format_count(static_cast<uint64_t>(opened.source->size(split))));
  fmt::print(
      "  longest {} places{}\n  sha256 {}\n", format_count(static_cast<uint64_t>(shape.max_len)),
      shape.vocabulary > 0 ? fmt::format(" of {} ids", shape.vocabulary) : fmt::format(" of {} numbers", shape.width),
      info.sha256);
  for (const data::Dropped& item : info.dropped)
    fmt::print("  dropped from {}: {} ({})\n", data::split_name(item.split), item.count, item.reason);
  return 0;
}

int stats(const DataCommandArguments& arguments) {
  const OpenedData opened = open(arguments);
  Json result = Json::object();
  for (const data::Split split : data::kAllSplits)
    result[data::split_name(split)] = data::split_facts(*opened.source, split);
  if (arguments.json) {
    fmt::print("{}\n", result.dump(2));
    return 0;
  }
  const Json names = opened.source->info().details.value("classes", Json::array());
  for (const auto& [split, facts] : result.items()) {
    fmt::print("{}: {} examples{}\n", split, format_count(facts["examples"].get<uint64_t>()),
               split == "dev" && opened.source->info().dev_is_test() ? ", those of the test split" : "");
    if (!facts.contains("length")) continue;
    const Json& length = facts["length"];
    fmt::print("  length {} to {}, median {:g}, mean {:.1f}; {} longer than the model reads\n", length["min"].dump(),
               length["max"].dump(), length["median"].get<double>(), length["mean"].get<double>(),
               length["longer_than_the_model_reads"].dump());
    if (facts.contains("mean_target")) fmt::print("  mean target {:.4f}\n", facts["mean_target"].get<double>());
    if (!facts.contains("labels")) continue;
    const double all = facts["examples"].get<double>();
    for (const auto& [label, count] : facts["labels"].items()) {
      const auto place = static_cast<size_t>(std::stoul(label));
      fmt::print("  class {:<6}{:>9}  {:5.1f} %  {}\n", label, format_count(count.get<uint64_t>()),
                 100 * count.get<double>() / all, place < names.size() ? names[place].get<std::string>() : "");
    }
    fmt::print("  loss of the best constant answer: {:.4f}\n", facts["label_entropy"].get<double>());
  }
  if (const auto cut = opened.source->info().details.value("cut", uint64_t{0}); cut > 0)
    fmt::print("{} sequences were longer, and cut when they were packed\n", format_count(cut));
  return 0;
}

// A small network trained on part of the data. What it does not learn may still be learnable: nothing is refused.
void check_learnable(const data::DatasetDescriptor& dataset, const data::DataSource& source, ProgressLine& line,
                     data::CheckReport& report) {
  constexpr double kLearnt = 0.8;
  inspect::LearnabilityOptions options;
  options.stop_requested = stop_signal_came;
  options.progress = [show = progress_callback(line)](int64_t step, int64_t steps) {
    show("training a small CNN", static_cast<uint64_t>(step), static_cast<uint64_t>(steps));
  };
  const inspect::Learnability result = inspect::learnability(dataset, source, options);
  const bool learnt = result.dev_accuracy >= kLearnt;
  report.add("a small CNN learns it", learnt ? data::CheckOutcome::kPassed : data::CheckOutcome::kNote,
             fmt::format("{}{:.2f}% of {} dev images after {} epochs of {} images",
                         learnt ? "" : "not shown learnable at this budget: ", 100 * result.dev_accuracy,
                         result.dev_examples, result.epochs, result.images));
}

// "protocol clean: data.dev=holdout"; "" where the protocol leaves the data as it is.
std::string protocol_text(const data::DatasetDescriptor& dataset, const std::string& name) {
  const ValueLayer layer = protocol_layer(dataset, name);
  std::vector<std::string> words;
  for (const auto& [key, value] : layer.values.items()) words.push_back(fmt::format("{}={}", key, value_word(value)));
  return words.empty() ? "" : fmt::format("{}: {}", layer.origin.text, fmt::join(words, ", "));
}

int check(const DataCommandArguments& arguments) {
  const data::DatasetDescriptor& dataset = data::find_dataset(arguments.name);
  XF_CHECK(!arguments.learnable || dataset.picture, UserError, "--learnable: the examples of {} are no images",
           dataset.name);
  data::DataLocation location = arguments.data.location(dataset.name);
  location.require_all_splits = false;
  const auto start = std::chrono::steady_clock::now();
  ProgressLine line(terminal_options(STDERR_FILENO));
  data::CheckReport report = dataset.check(data_options(dataset, arguments), location, interruptible(line));
  data::check_known_files(dataset.name, location.folder, report);
  if (arguments.learnable)
    check_learnable(
        dataset, *dataset.open(data::without_batching(data_options(dataset, arguments)), location, interruptible(line)),
        line, report);
  line.finish();
  if (arguments.json) {
    Json answer = report.json();
    answer["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    answer["peak_process_bytes"] = peak_process_bytes();
    fmt::print("{}\n", answer.dump(2));
  } else {
    if (const std::string text = protocol_text(dataset, arguments.protocol); !text.empty()) fmt::print("{}\n", text);
    fmt::print("{}", report.text());
    print_splits(report.splits);
  }
  return static_cast<int>(report.passed ? ExitCode::kDone : ExitCode::kData);
}

void print_wanted(const std::vector<data::FileToFetch>& files, const Path& folder) {
  const Json first = folder.empty() ? Json::object() : data::first_hashes(folder);
  for (const data::FileToFetch& file : files) {
    const std::string fetched = first.value(file.name, "");
    fmt::print("{}\n  from    {}\n  size    {}\n  hash    {}\n", file.name, fmt::join(file.urls, ", or "),
               file.bytes         ? fmt::format("{} bytes ({})", format_count(*file.bytes), format_bytes(*file.bytes))
               : file.about_bytes ? fmt::format("about {}", format_bytes(*file.about_bytes))
                                  : "unknown",
               !file.sha256.empty() ? "sha256 " + file.sha256
               : !file.md5.empty()  ? "md5 " + file.md5
               : !fetched.empty()   ? fmt::format("sha256 {}, as first fetched", fetched)
                                    : "unknown: the one found is recorded in fetched.json");
    if (!folder.empty()) fmt::print("  to      {}\n", (folder / file.name).string());
    if (!file.unpack.empty())
      fmt::print("  unpacks {} into {}\n",
                 file.only.empty() ? "all of it" : fmt::format("what has '{}' in its path", file.only),
                 (folder / file.unpack).string());
  }
}

int fetch(const DataCommandArguments& arguments) {
  const data::DatasetDescriptor& dataset = data::find_dataset(arguments.name);
  const char* root = std::getenv("XFORMER_DATA");
  XF_CHECK(!arguments.into.empty() || (root != nullptr && *root != '\0') || arguments.dry_run, UserError,
           "say where to with --into FOLDER, or set XFORMER_DATA: it would then be $XFORMER_DATA/{}", dataset.name);
  const Path folder = !arguments.into.empty()            ? Path(arguments.into)
                      : root != nullptr && *root != '\0' ? Path(root) / dataset.name
                                                         : Path();
  const std::vector<data::FileToFetch> wanted = data::files_to_fetch(dataset.name, arguments.mirrors, arguments.from);
  XF_CHECK(!wanted.empty() || !dataset.generated, UserError,
           "there is nothing to fetch: {} is generated, a run makes it without files", dataset.name);
  XF_CHECK(!wanted.empty(), UserError, "no address of {}'s files is known: {}", dataset.name, dataset.source);
  if (arguments.dry_run) {
    print_wanted(wanted, folder);
    if (const auto others = data::other_publishers(dataset.name); arguments.from.empty() && !others.empty())
      fmt::print("also to be had --from {}\n", fmt::join(others, ", "));
    return 0;
  }
  ProgressLine line(terminal_options(STDERR_FILENO));
  catch_stop_signals();
  readers::DownloadOptions options;
  options.progress = progress_callback(line);
  options.stop_requested = stop_signal_came;
  options.stall_seconds = arguments.stall_seconds;
  options.certificates = arguments.certificates;
  std::vector<data::FetchedFile> files;
  for (const data::FileToFetch& file : wanted) files.push_back(data::fetch(file, folder, options));
  line.finish();
  for (const data::FetchedFile& file : files) {
    fmt::print("{}  {}{}\n  sha256 {}{}\n", file.downloaded.path.string(),
               format_bytes(std::filesystem::file_size(file.downloaded.path)),
               file.downloaded.was_there ? ", was there already" : "", file.downloaded.sha256,
               file.hash_known ? ", as known" : ", not known before: fixed in fetched.json");
    if (!file.unpacked.empty()) fmt::print("  unpacked into {}\n", file.unpacked.string());
  }
  fmt::print("use it with --data {}\n", folder.string());
  return 0;
}

int show(const DataCommandArguments& arguments) {
  const data::Split split = data::parse_split(arguments.split);
  const Path folder = arguments.pictures;
  XF_CHECK(folder.empty() || data::find_dataset(arguments.name).picture, UserError,
           "--png: the examples of {} are no images", arguments.name);
  const OpenedData opened = open(arguments);
  const auto& [dataset, source] = opened;
  const int64_t size = source->size(split);
  XF_CHECK(size > 0, DataError, "{} has no {} split here", dataset.name, data::split_name(split));
  XF_CHECK(arguments.index < size, UserError, "--index: the {} split has examples 0 to {}, got {}",
           data::split_name(split), size - 1, arguments.index);
  XF_CHECK(folder.empty() || !arguments.json, UserError, "--json and --png: one of them");
  XF_CHECK(folder.empty() || !source->info().shape.masks, UserError,
           "--png: what data.objective=masked hides has no colour; without --png the ids are shown");
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  XF_CHECK(!error, ResourceError, "--png: cannot make the folder {}: {}", folder.string(), error.message());
  Json shown = Json::array();
  const int64_t end = arguments.index + std::min(size - arguments.index, arguments.count);
  for (int64_t i = arguments.index; i < end; ++i) {
    Stream numbers(0, static_cast<uint64_t>(i));
    const data::Example example = arguments.augmented ? source->augmented(split, i, numbers) : source->read(split, i);
    if (!folder.empty()) {
      const Path file = folder / fmt::format("{}-{}-{}.png", dataset.name, data::split_name(split), i);
      write_file_atomically(file, readers::encode_png(dataset.picture(example, source->info())));
      fmt::print("{}\n", file.string());
      continue;
    }
    if (arguments.json) {
      shown.push_back(data::example_json(example, *source, split, i));
      continue;
    }
    std::string words = source->shown(example);
    if (words.empty()) words = dataset.show(example, source->info());
    fmt::print("{} {} of {}\n{}\n", data::split_name(split), i, size, words);
  }
  if (arguments.json) fmt::print("{}\n", shown.dump(2));
  return 0;
}

}  // namespace

std::function<int()> add_data(CLI::App& program) {
  CLI::App& command = *program.add_subcommand("data", "datasets: list, describe, fetch, make, check, stats, show");
  command.require_subcommand(1);
  CLI::App* const listing = command.add_subcommand("list", "what there is, and what needs files");
  std::vector<std::pair<CLI::App*, std::function<int()>>> verbs{{listing, list}};
  const auto add = [&](const char* verb, const char* help, int (*run)(const DataCommandArguments&)) {
    const auto arguments = std::make_shared<DataCommandArguments>();
    CLI::App& own = *command.add_subcommand(verb, help);
    own.add_option("NAME", arguments->name, "task, e.g. listops (`xformer data list`)")->required();
    arguments->data.add_to(own);
    own.add_option("--protocol", arguments->protocol, "whose data options are taken; default: the task's first")
        ->type_name("NAME");
    own.add_option("--set", arguments->settings, "data options, data.key=value; again for more")
        ->type_name("KEY=VALUE")
        ->allow_extra_args(true);
    verbs.emplace_back(&own, [arguments, run] { return run(*arguments); });
    return std::pair{&own, arguments};
  };
  const auto describing = std::make_shared<std::string>();
  CLI::App& description = *command.add_subcommand("describe", "what a dataset is, its protocols and options");
  description.add_option("NAME", *describing, "task, e.g. listops (`xformer data list`)")->required();
  verbs.emplace_back(&description, [describing] {
    print_description(task_json(data::find_dataset(*describing)), /*markdown=*/false);
    return 0;
  });
  add("make", "make or pack it into the cache, and say what is in it", make);
  const auto [checking, check_arguments] = add("check", "read everything and say what is right, odd or wrong", check);
  checking->add_flag("--json", check_arguments->json, "print JSON");
  checking->add_flag("--learnable", check_arguments->learnable,
                     "of a task of images: also train a small CNN on 20,000 of them for five epochs (minutes)");
  const auto [fetching, fetch_arguments] =
      add("fetch", "its files from their publisher, checked and gone on with", fetch);
  fetching->add_option("--into", fetch_arguments->into, "folder; default: $XFORMER_DATA/NAME")->type_name("FOLDER");
  fetching->add_option("--from", fetch_arguments->from, "of a set with several publishers, another than the usual one")
      ->type_name("PUBLISHER");
  fetching->add_option("--mirror", fetch_arguments->mirrors, "take the files from this address instead; again for more")
      ->type_name("URL")
      ->allow_extra_args(false);
  fetching->add_option("--stall", fetch_arguments->stall_seconds, "seconds without a byte that end an attempt")
      ->check(whole_number(1))
      ->capture_default_str();
  fetching
      ->add_option("--certificates", fetch_arguments->certificates, "authorities to trust, PEM; default: the system's")
      ->type_name("FILE");
  fetching->add_flag("--dry-run", fetch_arguments->dry_run,
                     "say which files from where, how large and of which hash, and stop");
  const auto [counting, stats_arguments] = add("stats", "sizes, classes and lengths of the splits", stats);
  counting->add_flag("--json", stats_arguments->json, "print JSON");
  const auto [showing, show_arguments] = add("show", "examples as a person would look at them", show);
  showing->add_option("--split", show_arguments->split, "train, dev or test")->capture_default_str();
  showing->add_option("--index", show_arguments->index, "the first example, from 0")->check(whole_number(0));
  showing->add_option("--count", show_arguments->count, "how many")->check(whole_number(1))->capture_default_str();
  showing->add_option("--png", show_arguments->pictures, "of a task of images: write PNGs into this folder instead")
      ->type_name("FOLDER");
  showing->add_flag("--json", show_arguments->json, "print JSON: every value of the examples");
  showing->add_flag("--augmented", show_arguments->augmented,
                    "of a task whose training augments: as training may see them");
  return [verbs] {
    for (const auto& [verb, run] : verbs)
      if (verb->parsed()) return run();
    return 0;
  };
}

}  // namespace xformer::engine
