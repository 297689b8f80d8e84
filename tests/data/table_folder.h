// A folder with the files of a table, and what reading it gives.
#pragma once

#include <map>
#include <string>

#include "core/error.h"
#include "data/tables/table_files.h"
#include "scratch.h"

namespace xformer::data::table_test {

using FileMap = std::map<std::string, std::string>;  // name -> content

// A folder with these files.
struct Files {
  scratch::Folder folder;
  Files() = default;
  explicit Files(const FileMap& files) { put(files); }
  void put(const FileMap& files) {
    for (const auto& [name, content] : files) {
      std::filesystem::create_directories((folder / name).parent_path());
      scratch::put(folder / name, content);
    }
  }
  [[nodiscard]] Table read(const std::string& schema = "", const std::string& dataset = "table",
                           uint64_t seed = 0) const {
    return read_table(dataset, folder.path(), schema, seed);
  }
  template <class E = DataError>
  [[nodiscard]] std::string refusal(const std::string& schema = "", const std::string& dataset = "table") const {
    return scratch::message_of<E>([&] { (void)read(schema, dataset); });
  }
};

}  // namespace xformer::data::table_test
