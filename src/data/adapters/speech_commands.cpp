// Raw sound in classes, sample by sample (tasks-more 17): `speech-commands`, the 35 words of Warden's "Speech
// Commands" (2018), and `speech-commands/<name>`, any WAV files in folders by class.
//
// A sound is cut to its first data.length samples; a shorter one is filled up with zeros behind its end. With
// standardise=global a sample x becomes (x - mean) / deviation, both of the samples of train, filling left out.
#include <cmath>

#include "core/error.h"
#include "data/audio/audio_files.h"
#include "data/cache/cache.h"
#include "data/cache/packed_files.h"
#include "data/check.h"
#include "data/class_splits.h"
#include "data/generated_source.h"
#include "readers/wav.h"

namespace xformer::data::adapters::speech_commands {
namespace {

constexpr int64_t kAdapterVersion = 1;  // part of the cache's key: raise it when the content made here changes
// In the order of the labels that S4's code gives them.
constexpr const char* kWords =
    "bed,cat,down,five,forward,go,house,left,marvin,no,on,right,sheila,tree,up,visual,yes,backward,bird,dog,eight,"
    "follow,four,happy,learn,nine,off,one,seven,six,stop,three,two,wow,zero";

struct Options {
  int64_t length = 16000, rate = 16000, split_seed = 0;
  std::string standardise = "global", filling = "zeros", classes;
  double dev_share = 0.15, test_share = 0.15;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::length, "length", "samples of a sound (N)", between(1, 1e6))
          .add(&Options::rate, "rate", "samples a second that every file must have: none is resampled", at_least(1))
          .add(&Options::standardise, "standardise",
               "global: by the mean and deviation of train's samples; none: as they are, from -1 to 1",
               one_of({"global", "none"}))
          .add(
              &Options::filling, "filling",
              "what follows a sound that is shorter: zeros that count as samples, as in the published code, or nothing",
              one_of({"zeros", "nothing"}))
          .add(&Options::classes, "classes", "folders that are read, by label (a,b,c); empty: every one, by name")
          .add(&Options::dev_share, "dev_share", "part of every class that is dev where no lists say it",
               fraction_below_one())
          .add(&Options::test_share, "test_share", "part of every class that is test where no lists say it",
               fraction_below_one())
          .add(&Options::split_seed, "split_seed", "seed of these parts, apart from the run's seed", at_least(0));
  return kSchema;
}

Options read_options(bool words, const Json& given) {
  Options options = schema().read(given);
  if (words && options.classes.empty()) options.classes = kWords;
  check_shares(options.dev_share, options.test_share);
  return options;
}

DataShape shape_of(const Options& options, int64_t classes) {
  DataShape shape;
  shape.max_len = options.length;
  shape.width = 1;
  shape.target = class_target(classes);
  return shape;
}

// Sounds as the cache has them, filled up and standardised.
class SoundSource : public DataSource {
 public:
  SoundSource(std::unique_ptr<DataSource> packed, const Options& options)
      : packed_(std::move(packed)), filled_(options.filling == "zeros") {
    if (options.standardise != "global") return;
    mean_ = info().details["mean"].get<double>();
    deviation_ = info().details["deviation"].get<double>();
  }
  [[nodiscard]] int64_t size(Split split) const override { return packed_->size(split); }
  [[nodiscard]] const DataInfo& info() const override { return packed_->info(); }
  [[nodiscard]] std::string name(Split split, int64_t index) const override { return packed_->name(split, index); }
  [[nodiscard]] Example read(Split split, int64_t index) const override {
    static thread_local ExampleBuffers buffers;
    Example example = packed_->read(split, index);
    const size_t length = filled_ ? static_cast<size_t>(info().shape.max_len) : example.values.size();
    buffers.values.assign(length, standardised(0));
    for (size_t i = 0; i < example.values.size(); ++i) buffers.values[i] = standardised(example.values[i]);
    example.values = buffers.values;
    return example;
  }

 private:
  [[nodiscard]] float standardised(float sample) const {
    return static_cast<float>((static_cast<double>(sample) - mean_) / deviation_);
  }

  std::unique_ptr<DataSource> packed_;
  bool filled_;
  double mean_ = 0, deviation_ = 1;
};

void pack(const AudioTree& tree, const Options& options, const AddExample& add, DataInfo& info,
          const ProgressCallback& progress) {
  std::vector<int64_t> labels;
  std::vector<std::optional<Split>> made;
  for (const AudioTree::One& file : tree.files) {
    labels.push_back(file.label);
    made.push_back(file.split);
  }
  const std::vector<Split> splits =
      class_splits(labels, made, options.dev_share, options.test_share, static_cast<uint64_t>(options.split_seed));
  info.shape = shape_of(options, static_cast<int64_t>(tree.classes.size()));
  info.origin = "files";
  double sum = 0, squares = 0, samples = 0;
  int64_t cut = 0, shorter = 0;
  for (size_t i = 0; i < tree.files.size(); ++i) {
    const Path path = tree.root / tree.files[i].path;
    const readers::Wav wav = readers::read_wav(path, static_cast<size_t>(options.length));
    XF_CHECK(
        wav.rate == options.rate, DataError,
        "{}: expected {} samples a second, found {}; nothing is resampled: `sox IN -r {} OUT` does it, or data.rate "
        "says what all files have",
        path.string(), options.rate, wav.rate, options.rate);
    cut += wav.length > options.length ? 1 : 0;
    shorter += wav.length < options.length ? 1 : 0;
    if (splits[i] == Split::kTrain) {
      samples += static_cast<double>(wav.samples.size());
      for (const float sample : wav.samples) {
        sum += sample;
        squares += static_cast<double>(sample) * sample;
      }
    }
    Example example;
    example.values = wav.samples;
    example.label = labels[i];
    example.name = tree.files[i].path;
    add(splits[i], example);
    if (progress && i % 64 == 0) progress("packing sounds", i, tree.files.size());
  }
  XF_CHECK(samples > 0, DataError, "{}: the lists leave no sound to train on", tree.root.string());
  const double mean = sum / samples, deviation = std::sqrt(std::max(squares / samples - mean * mean, 0.0));
  info.details = {{"files", tree.files.size()},
                  {"classes", tree.classes},
                  {"split", tree.lists.empty() ? "own" : "lists"},
                  {"other_files", tree.other_files},
                  {"cut", cut},
                  {"shorter", shorter},
                  {"mean", mean},
                  {"deviation", deviation > 0 ? deviation : 1}};
}

std::unique_ptr<DataSource> open(const std::string& name, bool words, const Json& given, const DataLocation& location,
                                 const ProgressCallback& progress) {
  const Options options = read_options(words, given);
  require_folder(name, "a folder of WAV files for each class", location);
  const AudioTree tree = find_audio(name, location.folder, listed_names("data.classes", options.classes));
  std::vector<std::string> names = tree.lists;
  for (const AudioTree::One& file : tree.files) names.push_back(file.path);
  Json key = schema().write(options);
  key.update(
      {{"adapter", kAdapterVersion}, {"files", tree_identity(tree.root, names)}, {"other_files", tree.other_files}});
  for (const char* later : {"standardise", "filling"}) key.erase(later);  // of reading
  const auto build = [&](const AddExample& add, DataInfo& info) { pack(tree, options, add, info, progress); };
  return std::make_unique<SoundSource>(open_cached({location.cache, "speech-commands", key}, build, progress), options);
}

CheckReport check(const std::string& name, bool words, const Json& given, const DataLocation& location,
                  const ProgressCallback& progress) {
  const auto source = open(name, words, given, location, progress);
  const Json& details = source->info().details;
  const auto count = [&](const char* key) { return details[key].get<int64_t>(); };
  CheckReport report;
  if (words) compare_sizes(*source, {84'843, 9'981, 11'005}, report);
  report.add("every sound is read", CheckOutcome::kPassed,
             fmt::format("{} sounds, mean {:.3g}, deviation {:.3g}", count("files"), details["mean"].get<double>(),
                         details["deviation"].get<double>()));
  const auto note = [&](const char* key, const char* claim, const std::string& what) {
    if (count(key) > 0) report.add(claim, CheckOutcome::kNote, fmt::format("{}: {}", what, count(key)));
  };
  note("cut", "every sound is read whole",
       fmt::format("sounds longer than data.length, of which {} samples are read", source->info().shape.max_len));
  note("shorter", "every sound is long enough", "sounds shorter than data.length, which are filled up");
  note("other_files", "every file is a sound", "files whose names do not end in .wav, which are left out");
  check_drawn_splits(*source, report);
  return report;
}

// How loud it is, from its beginning to its end.
std::string show(const Example& example, const DataInfo& info) {
  constexpr std::string_view kLoud = " .:-=+*#%@";
  constexpr size_t kColumns = 64;
  std::string text;
  float most = 0;
  std::vector<float> peaks;
  const size_t count = std::min(kColumns, example.values.size());
  for (size_t column = 0; column < count; ++column) {
    float peak = 0;
    for (size_t i = column * example.values.size() / count; i < (column + 1) * example.values.size() / count; ++i)
      peak = std::max(peak, std::abs(example.values[i]));
    peaks.push_back(peak);
    most = std::max(most, peak);
  }
  for (const float peak : peaks)
    text += kLoud[most > 0 ? static_cast<size_t>(std::lround(peak / most * static_cast<float>(kLoud.size() - 1))) : 0];
  return fmt::format("{}\n{} samples, label {} ({})", text, example.values.size(), example.label,
                     info.details["classes"][static_cast<size_t>(example.label)].get<std::string>());
}

DatasetDescriptor descriptor(const std::string& name, bool words) {
  DatasetDescriptor result;
  result.name = name;
  result.title =
      words ? "Speech Commands: one of 35 words, sample by sample" : "sounds in folders by class, sample by sample";
  result.paper = words ? "Warden, Speech Commands: A Dataset for Limited-Vocabulary Speech Recognition, 2018"
                       : "this project's own";
  result.source = words ? "speech_commands_v0.02.tar.gz, http://download.tensorflow.org/data, unpacked"
                        : "WAV files of one channel in folders by class";
  result.options = schema().options();
  result.accepts_length = true;
  result.shape_is_likely = !words;
  result.shape = [words](const Json& given) {
    const Options options = read_options(words, given);
    const auto named = static_cast<int64_t>(listed_names("data.classes", options.classes).size());
    return shape_of(options, named > 0 ? named : 2);
  };
  result.check_options = [words](const Json& given) {
    static_cast<void>(listed_names("data.classes", read_options(words, given).classes));
  };
  result.open = [name, words](const Json& options, const DataLocation& location, const ProgressCallback& progress) {
    return open(name, words, options, location, progress);
  };
  result.check = [name, words](const Json& options, const DataLocation& location, const ProgressCallback& progress) {
    return check(name, words, options, location, progress);
  };
  result.show = show;
  return result;
}

}  // namespace

std::vector<DatasetDescriptor> describe() {
  DatasetDescriptor any = descriptor("speech-commands/<name>", false);
  any.member = [](const std::string& name) { return descriptor("speech-commands/" + name, false); };
  return {descriptor("speech-commands", true), any};
}

}  // namespace xformer::data::adapters::speech_commands
