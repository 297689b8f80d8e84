// Long texts, a file each, in folders by class: where they lie, and the first or last characters of one.
//
// <root>/<class>/<file>, or <root>/{train,test}/<class>/<file> with dev/ (val/, validation/) beside them or without. A
// text is any file in a class's folder whose name does not begin with a dot.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/source.h"

namespace xformer::data {

struct DocumentTree {
  struct One {
    std::string path;  // below the root
    int64_t label = 0;
    std::optional<Split> split;  // of the files; nothing: they do not say
  };
  Path root;
  std::vector<std::string> classes;
  std::vector<One> files;  // by split, class and name
};

// `classes`: those that are read, by label; empty: every folder, sorted by name.
// DataErrors: no folder (an archive is to be unpacked first), no class or one alone, a class without files or missing
// in train, another thing than a file among them.
[[nodiscard]] DocumentTree find_documents(const std::string& task, const Path& place,
                                          const std::vector<std::string>& classes);

enum class Characters { kBytes, kUnicode };
enum class End { kFirst, kLast };

struct DocumentPart {
  std::vector<char32_t> characters;  // at most as many as were asked for; of kBytes bytes
  bool whole = false;                // the text has no more
  int64_t damaged = 0;               // bytes that are no UTF-8, each of them U+FFFD
};

// The first or last `most` characters of a text, line ends left out; no more of the file is read than these need. A
// text without a character, a compressed file and UTF-16 are DataErrors.
[[nodiscard]] DocumentPart read_document(const Path& path, int64_t most, Characters characters, End end);

}  // namespace xformer::data
