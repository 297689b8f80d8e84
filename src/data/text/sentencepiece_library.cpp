// libxformer_pieces.so (cmake/Pieces.cmake): SentencePiece's functions as sentencepiece_door.h has them. Nothing is
// thrown out of here.
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/text/sentencepiece_door.h"

namespace xformer::data::sentencepiece_door {
namespace {

using sentencepiece::SentencePieceProcessor;
using sentencepiece::util::Status;

const SentencePieceProcessor& model_of(const void* model) { return *static_cast<const SentencePieceProcessor*>(model); }

// nullptr where there is no memory for it: an empty text then.
char* copied(const char* begin, size_t size) {
  auto* const text = static_cast<char*>(std::malloc(size + 1));
  if (text == nullptr) throw std::bad_alloc();
  std::memcpy(text, begin, size);
  text[size] = '\0';
  return text;
}

// What an action's status or exception says.
template <class Action>
char* said(const Action& action) {
  try {
    const Status status = action();
    if (status.ok()) return nullptr;
    const std::string message = status.error_message();
    return copied(message.data(), message.size());
  } catch (const std::exception& error) {
    return copied(error.what(), std::strlen(error.what()));
  } catch (...) {
    constexpr const char* kUnknown = "an unknown exception";
    return copied(kUnknown, std::strlen(kUnknown));
  }
}

class Lines : public sentencepiece::SentenceIterator {
 public:
  Lines(NextLine next, void* context) : next_(next), context_(context) { Next(); }
  bool done() const override { return done_; }
  void Next() override {
    const char* begin = nullptr;
    size_t size = 0;
    done_ = !next_(context_, &begin, &size);
    line_.assign(begin == nullptr ? "" : begin, size);
  }
  const std::string& value() const override { return line_; }
  Status status() const override { return {}; }

 private:
  NextLine next_;
  void* context_;
  std::string line_;
  bool done_ = false;
};

char* load(const char* model, size_t size, void** into) {
  return said([&] {
    auto processor = std::make_unique<SentencePieceProcessor>();
    const Status status = processor->LoadFromSerializedProto(std::string_view(model, size));
    if (status.ok()) *into = processor.release();
    return status;
  });
}

char* encode(const void* model, const char* text, size_t size, Ids* into) {
  return said([&] {
    std::vector<int> ids;
    const Status status = model_of(model).Encode(std::string_view(text, size), &ids);
    static_assert(sizeof(int) == sizeof(int32_t));
    into->begin =
        reinterpret_cast<int32_t*>(copied(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int)));
    into->size = ids.size();
    return status;
  });
}

char* decode(const void* model, const int32_t* ids, size_t count, Text* into) {
  return said([&] {
    std::string text;
    const Status status = model_of(model).Decode(std::vector<int>(ids, ids + count), &text);
    *into = {copied(text.data(), text.size()), text.size()};
    return status;
  });
}

char* train(const Option* options, size_t count, NextLine next, void* context, Text* into) {
  return said([&] {
    std::unordered_map<std::string, std::string> words;
    for (size_t i = 0; i < count; ++i) words[options[i].name] = options[i].value;
    Lines lines(next, context);
    std::string model;
    const Status status = sentencepiece::SentencePieceTrainer::Train(words, &lines, &model);
    *into = {copied(model.data(), model.size()), model.size()};
    return status;
  });
}

constexpr Functions kFunctions{
    .load = load,
    .close = [](void* model) { delete static_cast<SentencePieceProcessor*>(model); },
    .size = [](const void* model) { return model_of(model).GetPieceSize(); },
    .end_of_text = [](const void* model) { return model_of(model).eos_id(); },
    .is_unknown = [](const void* model, int id) { return model_of(model).IsUnknown(id); },
    .piece =
        [](const void* model, int id, size_t* size) {
          const std::string& piece = model_of(model).IdToPiece(id);
          *size = piece.size();
          return piece.data();
        },
    .encode = encode,
    .decode = decode,
    .train = train,
    .release = [](void* memory) { std::free(memory); },
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const Functions* xformer_sentencepiece_functions() {
  return &kFunctions;
}

}  // namespace xformer::data::sentencepiece_door
