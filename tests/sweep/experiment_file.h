// What tests of sweeps share: experiment files on plans that nobody trains.
#pragma once

#include <catch2/catch.hpp>

#include "scratch.h"
#include "sweep/cells.h"

namespace xformer::sweep_test {

using scratch::Folder;
using scratch::put;

// A file of the experiment "paper/table" in its folder.
class ExperimentFile {
 public:
  explicit ExperimentFile(const std::string& json) : path_(folder_ / "paper/table.json") {
    std::filesystem::create_directories(path_.parent_path());
    put(path_, json);
  }
  [[nodiscard]] const Path& path() const { return path_; }
  [[nodiscard]] Path beside(const std::string& name) const { return path_.parent_path() / name; }
  [[nodiscard]] sweep::Experiment read() const { return sweep::read_experiment(path_); }
  [[nodiscard]] std::vector<sweep::Cell> cells() const { return sweep::expand(read()); }
  // The message of the UserError that reading and expanding gives.
  [[nodiscard]] std::string refusal() const {
    return scratch::message_of<UserError>([&] { static_cast<void>(cells()); });
  }

 private:
  Folder folder_;
  Path path_;
};

}  // namespace xformer::sweep_test
