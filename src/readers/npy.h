// Arrays in NumPy's .npy format, versions 1 to 3: one or two dimensions of numbers or of fixed-width text.
//
// Layout: "\x93NUMPY", major and minor version, the header's length, the header (a Python dictionary of descr,
// fortran_order and shape), the elements. Both byte orders and both orders of elements are read. An array of Python
// objects (dtype |O) is a pickle, which could run any code: it is refused. Errors are DataErrors that name the file.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/files.h"

namespace xformer::readers::npy {

using Numbers = std::vector<double>;
using Texts = std::vector<std::string>;  // UTF-8

struct Array {
  std::string type;                     // as the file states it: "<f4", "|u1", "<U12"
  std::vector<int64_t> shape;           // [rows] or [rows, columns]
  std::variant<Numbers, Texts> values;  // row by row, whatever the order in the file

  [[nodiscard]] int64_t rows() const { return shape[0]; }
  [[nodiscard]] int64_t columns() const { return shape.size() == 2 ? shape[1] : 1; }
  [[nodiscard]] bool is_text() const { return std::holds_alternative<Texts>(values); }
};

// Whole numbers that a double does not hold exactly are refused; NaN and infinities are the caller's to judge.
// `origin` is the file's name for messages.
[[nodiscard]] Array parse(std::span<const std::byte> file, const std::string& origin);
[[nodiscard]] Array read(const Path& path);

// An array of numbers that stays in its file: for tables that are larger than memory. Elements row by row.
class NumberFile {
 public:
  explicit NumberFile(const Path& path);
  ~NumberFile();
  NumberFile(const NumberFile&) = delete;
  NumberFile& operator=(const NumberFile&) = delete;

  [[nodiscard]] int64_t rows() const;
  [[nodiscard]] int64_t columns() const;
  [[nodiscard]] size_t size() const { return static_cast<size_t>(rows() * columns()); }
  // What `read` gives at this place, and as it refuses it.
  [[nodiscard]] double operator[](size_t i) const;

 private:
  struct Opened;
  std::unique_ptr<const Opened> opened_;
};

}  // namespace xformer::readers::npy
