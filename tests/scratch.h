// What tests of files share: a folder that goes away, faults at a chosen operation, environment variables.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/files.h"

namespace xformer::scratch {

// A fresh folder, removed with all it holds at the end of the scope.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "xformer-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder " + pattern);
    path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const Path& path() const { return path_; }
  [[nodiscard]] Path operator/(const std::string& name) const { return path_ / name; }

 private:
  Path path_;
};

inline Path put(const Path& path, std::string_view content) {
  std::ofstream(path, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
  return path;
}

inline std::string get(const Path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Names in a folder, sorted, hidden ones too.
inline std::vector<std::string> names_in(const Path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// While it lives, file operation number `at` (counted from 0 since its construction) fails with `error`.
class Fault {
 public:
  Fault(int64_t at, int error) {
    testing::file_fault = [this, at, error](std::string_view, int64_t) { return seen_++ == at ? error : 0; };
  }
  ~Fault() { testing::file_fault = nullptr; }
  Fault(const Fault&) = delete;
  Fault& operator=(const Fault&) = delete;
  [[nodiscard]] int64_t seen() const { return seen_; }

 private:
  int64_t seen_ = 0;
};

// Sets a variable (nullptr: takes it away) until the end of the scope.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    if (value != nullptr) ::setenv(name, value, 1);
    else ::unsetenv(name);
  }
  ~Variable() {
    if (old_) ::setenv(name_, old_->c_str(), 1);
    else ::unsetenv(name_);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

// The message of the Error of type E that `action` throws; "" when it throws none.
template <class E, class Action>
std::string message_of(const Action& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

// A folder of real data under $XFORMER_TEST_DATA, or nothing when that is not set or has no such folder.
inline std::optional<Path> real_data(const std::string& name) {
  const char* root = std::getenv("XFORMER_TEST_DATA");
  if (root == nullptr || *root == '\0' || !std::filesystem::exists(Path(root) / name)) return std::nullopt;
  return Path(root) / name;
}

}  // namespace xformer::scratch
