#include "data/shifted_source.h"

#include <algorithm>

#include "core/error.h"
#include "core/names.h"
#include "core/text.h"

namespace xformer::data {
namespace {

class ShiftedSource : public DataSource {
 public:
  ShiftedSource(const DataSource& source, const Shift& shift)
      : source_(source), shift_(shift), parts_(parts_of(source.info().shape)) {}

  [[nodiscard]] int64_t size(Split split) const override { return source_.size(split); }
  [[nodiscard]] const DataInfo& info() const override { return source_.info(); }
  [[nodiscard]] std::string name(Split split, int64_t index) const override { return source_.name(split, index); }
  [[nodiscard]] std::string shown(const Example& example) const override { return source_.shown(example); }
  [[nodiscard]] bool slow() const override { return source_.slow(); }

  [[nodiscard]] Example read(Split split, int64_t index) const override {
    static thread_local std::vector<std::vector<char>> buffers;
    buffers.resize(std::max(buffers.size(), parts_.size()));
    Example example = source_.read(split, index);
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Field& field = parts_[i].field;
      if (!field.of_tokens()) continue;
      const Elements elements = parts_[i].elements(example);
      const std::string_view bytes = elements.bytes();
      if (bytes.empty()) continue;
      const int64_t place = field.k * element_bytes(field.element), all = static_cast<int64_t>(bytes.size());
      const int64_t moved = shift_.drop_newest ? std::min(shift_.places * place, all) : shift_.places * place % all;
      std::vector<char>& buffer = buffers[i];
      buffer.resize(bytes.size());
      std::rotate_copy(bytes.begin(), bytes.end() - moved, bytes.end(), buffer.begin());
      if (shift_.drop_newest) std::fill_n(buffer.begin(), moved, char{0});
      parts_[i].set_elements(example, Elements(field.element, buffer.data(), elements.size()));
    }
    return example;
  }

 private:
  const DataSource& source_;
  Shift shift_;
  std::vector<Part> parts_;
};

}  // namespace

Shift parse_shift(const std::string& name, int64_t places, const std::string& origin) {
  return {name, choice(origin + ": ", "shift", name, {"roll", "drop-newest"}) == 1, places, origin};
}

std::vector<Shift> parse_shifts(const std::string& names, const std::string& origin) {
  std::vector<Shift> result;
  for (const std::string_view name : split(names, ','))
    if (!trim(name).empty()) result.push_back(parse_shift(std::string(trim(name)), 1, origin));
  return result;
}

void check_shift(const Shift& shift, const DataShape& shape) {
  const bool events = shape.width > 1 && !shape.categories.empty();
  const bool ids = shape.vocabulary > 0 && shape.zero_is_padding && shape.id_offset == 0;
  XF_CHECK(!shape.target.of_places(), UserError, "{}: the task has an answer at every place, which would not move",
           shift.origin);
  XF_CHECK(!shift.drop_newest || events || ids, UserError,
           "{}: drop-newest: in the task's sequences nothing means padding; roll needs none", shift.origin);
}

std::unique_ptr<DataSource> shifted(const DataSource& source, const Shift& shift) {
  check_shift(shift, source.info().shape);
  return std::make_unique<ShiftedSource>(source, shift);
}

}  // namespace xformer::data
