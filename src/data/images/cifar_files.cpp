#include "data/images/cifar_files.h"

#include <algorithm>
#include <array>
#include <optional>

#include "core/error.h"
#include "core/names.h"
#include "core/text.h"
#include "data/what_is_there.h"
#include "readers/archive.h"
#include "readers/lfs_pointer.h"

namespace xformer::data {
namespace {

namespace fs = std::filesystem;
namespace format = readers::cifar;

constexpr std::array<const char*, CifarFiles::kBatches> kNames{"data_batch_1", "data_batch_2", "data_batch_3",
                                                               "data_batch_4", "data_batch_5", "test_batch"};
constexpr uint64_t kMostBatchBytes = uint64_t{100} << 20;  // in an archive; a batch has 31 MB

std::string file_name(size_t batch, bool python) { return fmt::format("{}{}", kNames[batch], python ? "" : ".bin"); }

// The number of a batch of that name, in either version.
std::optional<size_t> batch_of(const std::string& name) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (name == file_name(i, false) || name == file_name(i, true)) return i;
  return std::nullopt;
}

bool has_batches(const Path& folder, bool python) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (fs::is_regular_file(folder / file_name(i, python))) return true;
  return false;
}

CifarFiles batches_in(const Path& folder, bool python) {
  CifarFiles files;
  std::vector<std::string> missing;
  for (size_t i = 0; i < kNames.size(); ++i) {
    files.batches.push_back(folder / file_name(i, python));
    if (!fs::is_regular_file(files.batches.back())) missing.push_back(file_name(i, python));
  }
  XF_CHECK(missing.empty(), DataError, "CIFAR-10 in {} lacks {}; {}", folder.string(), fmt::join(missing, ", "),
           what_is_there(folder));
  return files;
}

CifarFiles find(const Path& place) {
  XF_CHECK(fs::exists(place), DataError, "no folder {}: expected one with CIFAR-10", place.string());
  if (!fs::is_directory(place)) return {{}, place};
  for (const bool python : {false, true})
    for (const char* below : {"", python ? "cifar-10-batches-py" : "cifar-10-batches-bin"})
      if (const Path folder = *below == '\0' ? place : place / below; has_batches(folder, python))
        return batches_in(folder, python);
  std::vector<Path> archives;
  for (const auto& entry : fs::directory_iterator(place))
    if (entry.is_regular_file() && matches_pattern("cifar-10-*.tar.gz", entry.path().filename().string()))
      archives.push_back(entry.path());
  XF_CHECK(!archives.empty(), DataError,
           "no CIFAR-10 in {}: expected cifar-10-batches-bin/ or cifar-10-batches-py/ (or the batches themselves), or "
           "cifar-10-binary.tar.gz or cifar-10-python.tar.gz; {}",
           place.string(), what_is_there(place));
  return {{}, *std::min_element(archives.begin(), archives.end())};
}

// What is kept of an image, and of a batch.
enum class Form { kGrey, kColours };
size_t bytes_of(Form form) { return (form == Form::kGrey ? 1 : format::kChannels) * format::kPixels; }

struct Batch {
  std::string name;
  std::vector<uint8_t> labels, pixels;
};

using AddPixels = std::function<void(Split split, int64_t label, std::span<const uint8_t> pixels)>;

Batch read_batch(std::string_view bytes, const std::string& origin, const std::string& name, Form form) {
  readers::refuse_lfs_pointer(bytes, origin);
  Batch batch;
  batch.name = name;
  const auto keep = [&](uint8_t label, std::span<const uint8_t, format::kChannels * format::kPixels> colours) {
    batch.labels.push_back(label);
    for (size_t i = 0; i < format::kPixels; ++i) {
      const std::array pixel{colours[i], colours[format::kPixels + i], colours[2 * format::kPixels + i]};
      if (form == Form::kColours) batch.pixels.insert(batch.pixels.end(), pixel.begin(), pixel.end());
      else batch.pixels.push_back(format::grey(pixel[0], pixel[1], pixel[2]));
    }
  };
  if (name.ends_with(".bin")) format::read_binary_batch(bytes, origin, keep);
  else format::read_python_batch(bytes, origin, keep);
  return batch;
}

void hand_over(const Batch& batch, size_t number, Form form, const AddPixels& add, std::vector<std::string>& notes) {
  const Split split = number + 1 == kNames.size() ? Split::kTest : Split::kTrain;
  for (size_t i = 0; i < batch.labels.size(); ++i)
    add(split, batch.labels[i], std::span(batch.pixels).subspan(i * bytes_of(form), bytes_of(form)));
  if (batch.labels.size() != CifarFiles::kImagesPerBatch)
    notes.push_back(fmt::format("{} has {} images, the publisher's has {}", batch.name,
                                format_count(batch.labels.size()), format_count(CifarFiles::kImagesPerBatch)));
}

// The batches of an archive come in any order, so all are held as they are kept (62 MB in grey, 184 MB in colours) and
// then handed over.
std::vector<std::string> read_archive(const Path& archive, Form form, const AddPixels& add,
                                      const ProgressCallback& progress) {
  std::array<std::optional<Batch>, CifarFiles::kBatches> batches;
  std::vector<std::string> seen;
  readers::for_each_entry(archive, {}, [&](const std::string& path, readers::EntryReader& reader) {
    if (progress) progress("reading " + archive.filename().string(), reader.archive_position(), reader.archive_bytes());
    seen.push_back(path);
    const std::string name = Path(path).filename().string();
    const auto number = batch_of(name);
    if (!number) return;
    XF_CHECK(!batches[*number], DataError, "{}: the archive has this batch twice, the other is {}", reader.where(),
             batches[*number]->name);
    batches[*number] = read_batch(reader.read_all(kMostBatchBytes), reader.where(), name, form);
  });
  std::vector<std::string> missing, notes;
  for (size_t i = 0; i < batches.size(); ++i)
    if (!batches[i]) missing.emplace_back(kNames[i]);
  XF_CHECK(missing.empty(), DataError, "CIFAR-10 in {} lacks {} (.bin in the binary version); {}", archive.string(),
           fmt::join(missing, ", "), found_names(std::move(seen), "the archive holds no file"));
  for (size_t i = 0; i < batches.size(); ++i) hand_over(*batches[i], i, form, add, notes);
  return notes;
}

std::vector<std::string> read_images(const CifarFiles& files, Form form, const AddPixels& add,
                                     const ProgressCallback& progress) {
  if (!files.archive.empty()) return read_archive(files.archive, form, add, progress);
  std::vector<std::string> notes;
  for (size_t i = 0; i < files.batches.size(); ++i) {
    const Path& path = files.batches[i];
    if (progress) progress("reading " + path.filename().string(), i, files.batches.size());
    const MappedFile file(path);
    const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    hand_over(read_batch(bytes, path.string(), path.filename().string(), form), i, form, add, notes);
  }
  return notes;
}

}  // namespace

CifarFiles find_cifar_files(const Path& place) {
  return find_or_offer(place, [](const Path& one) { return find(one); });
}

std::vector<std::string> read_cifar(const CifarFiles& files, const AddGreyImage& add,
                                    const ProgressCallback& progress) {
  const auto grey = [&](Split split, int64_t label, std::span<const uint8_t> pixels) {
    add(split, label, pixels.first<format::kPixels>());
  };
  return read_images(files, Form::kGrey, grey, progress);
}

std::vector<std::string> read_cifar_colours(const CifarFiles& files, const AddColourImage& add,
                                            const ProgressCallback& progress) {
  return read_images(files, Form::kColours, add, progress);
}

CheckReport check_cifar(const DataSource& source) {
  CheckReport report;
  compare_sizes(source, {45'000, 5'000, 10'000}, report);
  for (const Json& note : source.info().details.value("notes", Json::array()))
    report.add("every batch is whole", CheckOutcome::kNote, note.get<std::string>());
  check_duplicates(source, report);
  describe_splits(source, report);
  return report;
}

}  // namespace xformer::data
