#include "readers/named_rows.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>

#include "core/error.h"
#include "core/json.h"
#include "core/names.h"
#include "core/text.h"

namespace xformer::readers {
namespace {

constexpr int64_t kDay = 86400, kFurthest = 10000 * 366 * kDay;

// So many digits in front, taken away.
std::optional<int> take_digits(std::string_view& text, size_t count) {
  int value = 0;
  if (text.size() < count || !std::all_of(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(count),
                                          [](char letter) { return letter >= '0' && letter <= '9'; }))
    return std::nullopt;
  std::from_chars(text.data(), text.data() + count, value);
  text.remove_prefix(count);
  return value;
}

bool take(std::string_view& text, std::string_view front) {
  if (!text.starts_with(front)) return false;
  text.remove_prefix(front.size());
  return true;
}

// "13:45", with seconds and their decimals, which are dropped, and Z or without; all of the text.
std::optional<int64_t> time_of_day(std::string_view text) {
  const auto hour = take_digits(text, 2);
  if (!hour || !take(text, ":")) return std::nullopt;
  const auto minute = take_digits(text, 2);
  std::optional<int> second = 0;
  if (take(text, ":")) {
    second = take_digits(text, 2);
    if (take(text, ".") && !take_digits(text, 1)) return std::nullopt;
    while (take_digits(text, 1)) continue;
  }
  static_cast<void>(take(text, "Z"));
  if (!minute || !second || !text.empty() || *hour > 23 || *minute > 59 || *second > 59) return std::nullopt;
  return (*hour * 60 + *minute) * 60 + *second;
}

}  // namespace

class NamedRowReader::JsonLines {
 public:
  explicit JsonLines(const Path& path) : lines_(path, CsvReader::kLongestLine) {
    read();
    XF_CHECK(!row_.is_null(), DataError, "{} is empty: expected a JSON object a line", path.string());
    XF_CHECK(!row_.empty(), DataError, "{}: expected named fields, found an empty object", lines_.where());
    for (const auto& [name, value] : row_.items()) columns_.push_back(name);
    fields_.resize(columns_.size());
  }

  bool next(std::vector<std::string_view>& fields) {
    if (!first_) read();
    first_ = false;
    if (row_.is_null()) return false;
    size_t found = 0;
    for (size_t i = 0; i < columns_.size(); ++i) {
      const auto value = row_.find(columns_[i]);
      found += value != row_.end() ? 1 : 0;
      XF_CHECK(value == row_.end() || value->is_primitive(), DataError,
               "{}: expected a text or a number in {}, found an {}", lines_.where(), xformer::quoted(columns_[i]),
               value->type_name());
      const bool none = value == row_.end() || value->is_null();
      fields_[i] = none ? "" : value->is_string() ? value->get<std::string>() : value->dump();
    }
    if (found != row_.size())
      for (const auto& [name, value] : row_.items())
        XF_CHECK(std::find(columns_.begin(), columns_.end(), name) != columns_.end(), DataError,
                 "{}: a field {} that line 1 has not; there are {}", lines_.where(), xformer::quoted(name),
                 first_names(columns_, 12));
    fields.assign(fields_.begin(), fields_.end());
    return true;
  }

  [[nodiscard]] const std::vector<std::string>& columns() const { return columns_; }
  [[nodiscard]] const LineReader& lines() const { return lines_; }

 private:
  // The next line that is not empty; null after the last.
  void read() {
    row_ = Json();
    for (std::string_view line; lines_.next(line);) {
      if (trim(line).empty()) continue;
      row_ = Json::parse(line, nullptr, /*allow_exceptions=*/false);
      XF_CHECK(row_.is_object(), DataError, "{}: expected a JSON object, found {}", lines_.where(), quoted(line));
      return;
    }
  }

  LineReader lines_;
  Json row_;
  bool first_ = true;
  std::vector<std::string> columns_, fields_;
};

NamedRowReader::NamedRowReader(const Path& path, char delimiter) {
  if (is_json_lines(path)) json_ = std::make_unique<JsonLines>(path);
  else csv_ = std::make_unique<CsvReader>(path, CsvFormat{delimiter, /*header=*/true, {}});
}

NamedRowReader::~NamedRowReader() = default;

const std::vector<std::string>& NamedRowReader::columns() const { return json_ ? json_->columns() : csv_->header(); }
bool NamedRowReader::next(std::vector<std::string_view>& fields) {
  return json_ ? json_->next(fields) : csv_->next(fields);
}
std::string NamedRowReader::where() const { return json_ ? json_->lines().where() : csv_->where(); }
uint64_t NamedRowReader::bytes_read() const { return json_ ? json_->lines().bytes_read() : csv_->bytes_read(); }

bool is_json_lines(const Path& path) {
  return path.extension() == ".jsonl" || (path.extension() == ".gz" && path.stem().extension() == ".jsonl");
}

std::optional<int64_t> parse_date(std::string_view text, DateFormat format) {
  if (format == DateFormat::kDays || format == DateFormat::kSeconds) {
    const auto number = parse_number(text);
    const double seconds = number.value_or(NAN) * (format == DateFormat::kDays ? static_cast<double>(kDay) : 1.0);
    if (!(std::abs(seconds) <= static_cast<double>(kFurthest))) return std::nullopt;
    return std::llround(std::floor(seconds));
  }
  const bool iso = format == DateFormat::kIso;
  const auto year = take_digits(text, iso ? 4 : 2);
  if (!year || (iso && !take(text, "-"))) return std::nullopt;
  const auto month = take_digits(text, 2);
  if (!month || (iso && !take(text, "-"))) return std::nullopt;
  const auto day = take_digits(text, 2);
  if (!day) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(iso ? *year : 1900 + *year),
                                         std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  if (!date.ok()) return std::nullopt;
  int64_t seconds = std::chrono::sys_days(date).time_since_epoch().count() * kDay;
  if (text.empty()) return seconds;
  if (!take(text, " ") && !take(text, "T")) return std::nullopt;
  const auto time = time_of_day(text);
  if (!time) return std::nullopt;
  return seconds + *time;
}

std::string date_text(int64_t seconds, DateFormat format) {
  if (format == DateFormat::kSeconds) return fmt::format("second {}", seconds);
  const int64_t days = seconds / kDay - (seconds % kDay < 0 ? 1 : 0), within = seconds - days * kDay;
  if (format == DateFormat::kDays)
    return fmt::format("day {:.{}f}", static_cast<double>(seconds) / static_cast<double>(kDay), within == 0 ? 0 : 3);
  const std::chrono::year_month_day date{std::chrono::sys_days(std::chrono::days(days))};
  std::string text = fmt::format("{:04}-{:02}-{:02}", static_cast<int>(date.year()),
                                 static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
  if (within > 0) text += fmt::format(" {:02}:{:02}:{:02}", within / 3600, within / 60 % 60, within % 60);
  return text;
}

}  // namespace xformer::readers
