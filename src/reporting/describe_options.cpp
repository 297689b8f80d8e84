// Options as aligned text, Markdown and JSON.
#include "reporting/describe_options.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>

#include "core/text.h"

namespace xformer::reporting {
namespace {

constexpr size_t kColumns = 4;
constexpr size_t kGap = 2;
using Row = std::array<std::string, kColumns>;
using Widths = std::array<size_t, kColumns>;

constexpr std::array<std::string_view, kColumns> kTitles = {"option", "default", "range", "meaning"};
// What a column keeps when the window is narrow, and the order in which columns give way.
constexpr Widths kLeast = {8, 6, 8, 24};
constexpr std::array<size_t, kColumns> kShrinkOrder = {3, 2, 1, 0};

// A default as it would be typed: text without quotes, a list without brackets.
std::string shown(const Json& value) {
  if (value.is_string()) return value.get<std::string>().empty() ? "\"\"" : value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::string list;
  for (const Json& element : value) list += (list.empty() ? "" : ",") + shown(element);
  return list;
}

std::string range_of(const OptionInfo& option) {
  return option.rule.text.empty() ? type_name(option.type) : option.rule.text;
}

Row row_of(const Json& option) {
  std::string help = option["help"];
  std::replace(help.begin(), help.end(), '\n', ' ');
  return {option["name"].get<std::string>(), shown(option["default"]), option["range"].get<std::string>(), help};
}

Widths fit(const std::vector<Row>& rows, size_t limit) {
  Widths widths{};
  for (const Row& row : rows)
    for (size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], columns_of(row[i]));
  const auto total = [&] { return std::accumulate(widths.begin(), widths.end(), kGap * (kColumns - 1)); };
  for (const size_t column : kShrinkOrder) {
    if (total() <= limit) break;
    const size_t spare = widths[column] - std::min(widths[column], kLeast[column]);
    widths[column] -= std::min(spare, total() - limit);
  }
  return widths;
}

std::string escaped_for_markdown(std::string_view text) {
  std::string result;
  for (const char byte : text) {
    if (byte == '|') result += '\\';
    result += byte;
  }
  return result;
}

std::string_view json_type(OptionType type) {
  switch (type) {
    case OptionType::kBool:
      return "bool";
    case OptionType::kInteger:
      return "integer";
    case OptionType::kReal:
      return "real";
    case OptionType::kText:
      return "text";
    case OptionType::kIntegerList:
      return "integer-list";
  }
  return "?";
}

}  // namespace

std::string options_table_text(const Json& options, int width) {
  if (options.empty()) return "";
  std::vector<Row> rows(1);
  for (size_t i = 0; i < kColumns; ++i) rows[0][i] = kTitles[i];
  for (const Json& option : options) rows.push_back(row_of(option));
  const Widths widths = fit(rows, static_cast<size_t>(std::max(width, 0)));

  std::string table;
  for (const Row& row : rows) {
    std::array<std::vector<std::string>, kColumns> cells;
    size_t height = 0;
    for (size_t i = 0; i < kColumns; ++i) {
      cells[i] = wrapped(row[i], widths[i]);
      height = std::max(height, cells[i].size());
    }
    for (size_t line = 0; line < height; ++line) {
      size_t owed = 0;  // spaces before the next word: none are left at the end of a line
      for (size_t i = 0; i < kColumns; ++i) {
        const std::string cell = line < cells[i].size() ? cells[i][line] : "";
        if (!cell.empty()) {
          table.append(owed, ' ') += cell;
          owed = 0;
        }
        owed += widths[i] - columns_of(cell) + kGap;
      }
      table += '\n';
    }
  }
  return table;
}

std::string options_table_markdown(const Json& options) {
  if (options.empty()) return "";
  std::string table = fmt::format("| {} |\n| --- | --- | --- | --- |\n", fmt::join(kTitles, " | "));
  for (const Json& option : options) {
    Row row = row_of(option);
    for (std::string& cell : row) cell = escaped_for_markdown(cell);
    table += fmt::format("| `{}` | `{}` | {} | {} |\n", row[0], row[1], row[2], row[3]);
  }
  return table;
}

Json options_json(const std::vector<OptionInfo>& options, const std::string& prefix) {
  Json list = Json::array();
  for (const OptionInfo& option : options) {
    list.push_back({{"name", prefix + option.name},
                    {"type", json_type(option.type)},
                    {"default", option.fallback},
                    {"range", range_of(option)},
                    {"help", option.help},
                    {"choices", option.rule.choices}});
  }
  return list;
}

}  // namespace xformer::reporting
