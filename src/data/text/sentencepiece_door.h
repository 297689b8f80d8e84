// What libxformer_pieces.so offers: SentencePiece (Kudo and Richardson, "SentencePiece: A simple and language
// independent subword tokenizer and detokenizer", EMNLP 2018) behind functions of C. A library of its own, opened when
// a text is to be cut into pieces: SentencePiece and LibTorch each define a global `FLAGS_minloglevel`, of different
// types, and in one program one of them would write over the other.
#pragma once

#include <cstddef>
#include <cstdint>

namespace xformer::data::sentencepiece_door {

// Where a function gives a `char*` that is an error, nullptr is success; such texts and all that is given in `into`
// belong to the caller, who hands them to `release`.
struct Text {
  char* begin;
  size_t size;
};
struct Ids {
  int32_t* begin;
  size_t size;
};
struct Option {
  const char *name, *value;
};
// The next line of the text to be learnt from, valid until the following call; false after the last.
using NextLine = bool (*)(void* context, const char** begin, size_t* size);

struct Functions {
  char* (*load)(const char* model, size_t size, void** into);
  void (*close)(void* model);
  int (*size)(const void* model);
  int (*end_of_text)(const void* model);  // the id of that piece, -1 where there is none
  bool (*is_unknown)(const void* model, int id);
  const char* (*piece)(const void* model, int id, size_t* size);  // the model's own
  char* (*encode)(const void* model, const char* text, size_t size, Ids* into);
  char* (*decode)(const void* model, const int32_t* ids, size_t count, Text* into);
  // With the options of spm_train, a serialised model. An exception that `next` threw is kept by whoever gave it: the
  // text then ends there.
  char* (*train)(const Option* options, size_t count, NextLine next, void* context, Text* into);
  void (*release)(void* memory);
};

// The library's only symbol.
inline constexpr const char* kEntry = "xformer_sentencepiece_functions";
using Entry = const Functions* (*)();

}  // namespace xformer::data::sentencepiece_door
