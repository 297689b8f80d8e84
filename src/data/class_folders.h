// Examples that lie in folders by class: <root>/<class>/<file>.
#pragma once

#include <string>
#include <vector>

#include "core/files.h"

namespace xformer::data {

// What is looked for, in the words of messages.
struct ClassFolders {
  std::string task;      // "longdoc/arxiv"
  std::string examples;  // "texts"
  std::string expected;  // "a folder for each of two classes or more"
};

// DataError where `place` is a file.
void require_class_folders(const ClassFolders& wanted, const Path& place);

// The classes that are read, by label: those asked for, or all that are `there`. DataError for fewer than two, and for
// one that is not there, with the nearest name.
[[nodiscard]] std::vector<std::string> chosen_classes(const ClassFolders& wanted, const Path& place,
                                                      const std::vector<std::string>& there,
                                                      const std::vector<std::string>& asked);

}  // namespace xformer::data
