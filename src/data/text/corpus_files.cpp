#include "data/text/corpus_files.h"

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "core/plain_files.h"
#include "data/class_splits.h"
#include "data/what_is_there.h"
#include "readers/documents.h"

namespace xformer::data {
namespace {

namespace fs = std::filesystem;

std::vector<Path> documents_in(const Path& folder) {
  std::vector<Path> result;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!readers::is_document_file(entry.path()) || entry.path().filename().string().starts_with('.')) continue;
    const std::string other = other_than_a_file(entry.path());
    XF_CHECK(other.empty(), DataError, "{}: expected a file of documents, found {}", entry.path().string(), other);
    result.push_back(entry.path());
  }
  std::sort(result.begin(), result.end());
  return result;
}

CorpusFiles find(const std::string& task, const Path& place) {
  CorpusFiles result;
  if (!fs::is_directory(place)) {
    result.of[0].push_back(place);
    return result;
  }
  std::vector<std::pair<Path, std::optional<Split>>> found;
  const auto look_in = [&](const Path& folder) {
    for (const Path& file : documents_in(folder)) found.emplace_back(file, split_in_name(file.filename().string()));
    for (const Path& below : subfolders(folder))
      if (const auto split = split_in_name(below.filename().string()))
        for (const Path& file : documents_in(below)) found.emplace_back(file, split);
  };
  look_in(place);
  if (const std::vector<Path> below = subfolders(place); found.empty() && below.size() == 1) look_in(below.front());
  XF_CHECK(
      !found.empty(), DataError,
      "no documents of {} in {}: expected files .txt, .json or .jsonl, .gz behind it or not, such as train.txt and "
      "test.txt; {}",
      task, place.string(), what_is_there(place));
  result.named = std::any_of(found.begin(), found.end(), [](const auto& one) { return one.second.has_value(); });
  for (const auto& [file, split] : found) {
    XF_CHECK(split || !result.named, DataError,
             "{}: its name says no split (train, dev, validation, test), those of files beside it do", file.string());
    result.of[static_cast<size_t>(split.value_or(Split::kTrain))].push_back(file);
  }
  XF_CHECK(!result.files(Split::kTrain).empty(), DataError, "{}: no file whose name says train; {}", place.string(),
           what_is_there(place));
  return result;
}

}  // namespace

std::vector<Path> CorpusFiles::all() const {
  std::vector<Path> result;
  for (const auto& files : of) result.insert(result.end(), files.begin(), files.end());
  return result;
}

CorpusFiles find_corpus(const std::string& task, const Path& place) {
  return find_or_offer(place, [&](const Path& one) { return find(task, one); });
}

Path find_piece_model(const Path& place) {
  const Path folder = fs::is_directory(place) ? place : fs::absolute(place).parent_path();
  std::vector<Path> models;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".model") models.push_back(entry.path());
  XF_CHECK(!models.empty(), DataError,
           "no vocabulary (a file .model of SentencePiece's) in {}; {}; data.vocabulary=trained makes one of the text",
           folder.string(), what_is_there(folder));
  XF_CHECK(models.size() == 1, DataError, "{} vocabularies in {}: expected one file .model; {}", models.size(),
           folder.string(), what_is_there(folder));
  return models.front();
}

}  // namespace xformer::data
