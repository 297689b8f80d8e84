#include "data/text/piece_vocabulary.h"

#include <dlfcn.h>

#include <algorithm>
#include <exception>
#include <filesystem>

#include "core/error.h"
#include "core/hash.h"
#include "core/utf8.h"
#include "data/text/sentencepiece_door.h"
#include "readers/piece_model.h"

namespace xformer::data {
namespace {

namespace door = sentencepiece_door;
namespace fs = std::filesystem;

constexpr const char* kFile = "libxformer_pieces.so";
constexpr std::string_view kBlank = "\xE2\x96\x81";  // U+2581

// Beside the program (a build), in the folder around it (a build's tests) and in ../lib (a package).
const door::Functions& library() {
  static const door::Functions& kFunctions = [&]() -> const door::Functions& {
    std::error_code ignored;
    const fs::path folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
    const std::vector<fs::path> places{folder / kFile, folder.parent_path() / kFile,
                                       folder.parent_path() / "lib" / kFile};
    const auto found =
        std::find_if(places.begin(), places.end(), [&](const fs::path& one) { return fs::exists(one, ignored); });
    XF_CHECK(found != places.end(), ResourceError,
             "a vocabulary of pieces needs {}, looked for in {}, {} and {}; scripts/setup --build-only builds it",
             kFile, places[0].parent_path().string(), places[1].parent_path().string(),
             places[2].parent_path().string());
    // Its own symbols before those of the same name that the program has (sentencepiece_door.h).
    void* const handle = dlopen(found->c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    XF_CHECK(handle != nullptr, ResourceError, "{} cannot be loaded: {}", found->string(), dlerror());
    const auto entry = reinterpret_cast<door::Entry>(dlsym(handle, door::kEntry));
    XF_CHECK(entry != nullptr, ResourceError, "{} is not this program's: it has no {}", found->string(), door::kEntry);
    return *entry();
  }();
  return kFunctions;
}

// The error that a function of the library gave, without the place in its sources in front; "" for none.
std::string taken(char* error) {
  if (error == nullptr) return "";
  std::string message = error;
  library().release(error);
  if (const size_t end = message.find("] "); end < message.size() && message.find(".cc(") < end)
    message.erase(0, end + 2);
  return message.empty() ? "it says nothing more" : message;
}

struct Training {
  const NextTextLine& next;
  std::exception_ptr failure = nullptr;
};

bool next_line(void* context, const char** begin, size_t* size) {
  auto& training = *static_cast<Training*>(context);
  if (training.failure) return false;
  try {
    std::string_view line;
    if (!training.next(line)) return false;
    *begin = line.data(), *size = line.size();
    return true;
  } catch (...) {
    training.failure = std::current_exception();
    return false;
  }
}

}  // namespace

PieceVocabulary::PieceVocabulary(std::string_view model, const std::string& origin) : sha256_(xformer::sha256(model)) {
  static_cast<void>(readers::look_through_piece_model(model, origin));
  const door::Functions& functions = library();
  void* loaded = nullptr;
  const std::string error = taken(functions.load(model.data(), model.size(), &loaded));
  XF_CHECK(error.empty(), DataError, "{}: a model that SentencePiece does not read: {}", origin, error);
  model_ = std::shared_ptr<void>(loaded, functions.close);
  end_of_text_ = functions.end_of_text(loaded);
  for (int id = 0; id < functions.size(loaded); ++id) {
    size_t size = 0;
    const char* const piece = functions.piece(loaded, id, &size);
    pieces_.emplace_back(piece, size);
    if (functions.is_unknown(loaded, id)) unknown_ = id;
    int64_t words = 0;
    for (size_t at = 0; (at = pieces_.back().find(kBlank, at)) != std::string::npos; at += kBlank.size()) ++words;
    words_.push_back(static_cast<uint8_t>(std::min<int64_t>(words, 255)));
  }
}

void PieceVocabulary::encode(std::string_view text, std::vector<int32_t>& into) const {
  door::Ids ids{nullptr, 0};
  const std::string error = taken(library().encode(model_.get(), text.data(), text.size(), &ids));
  const std::unique_ptr<int32_t, void (*)(void*)> held(ids.begin, library().release);
  XF_CHECK(error.empty(), DataError, "SentencePiece does not cut a text of {} bytes into pieces: {}", text.size(),
           error);
  into.insert(into.end(), ids.begin, ids.begin + ids.size);
}

std::string PieceVocabulary::decode(std::span<const int32_t> ids) const {
  door::Text text{nullptr, 0};
  const std::string error = taken(library().decode(model_.get(), ids.data(), ids.size(), &text));
  const std::unique_ptr<char, void (*)(void*)> held(text.begin, library().release);
  XF_ASSERT(error.empty(), "{} pieces are no text: {}", ids.size(), error);
  return {text.begin, text.size};
}

std::string train_pieces(const PieceTraining& options, const NextTextLine& next) {
  const std::string pieces = std::to_string(options.pieces), coverage = fmt::format("{}", options.coverage);
  // A count of threads decides how sums are rounded, so it is one for all machines.
  const std::vector<door::Option> words{{"vocab_size", pieces.c_str()},
                                        {"model_type", options.kind.c_str()},
                                        {"normalization_rule_name", options.normalization.c_str()},
                                        {"character_coverage", coverage.c_str()},
                                        {"byte_fallback", options.byte_fallback ? "true" : "false"},
                                        {"num_threads", "4"},
                                        {"minloglevel", "2"}};
  Training training{next};
  door::Text model{nullptr, 0};
  const std::string error = taken(library().train(words.data(), words.size(), next_line, &training, &model));
  const std::unique_ptr<char, void (*)(void*)> held(model.begin, library().release);
  if (training.failure) std::rethrow_exception(training.failure);
  XF_CHECK(error.empty(), DataError, "data.pieces: SentencePiece makes no vocabulary of {} pieces of this text: {}",
           options.pieces, error);
  return {model.begin, model.size};
}

}  // namespace xformer::data
