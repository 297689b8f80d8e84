#include "readers/listops.h"

#include <algorithm>

#include "core/error.h"
#include "core/hash.h"
#include "core/names.h"
#include "core/text.h"

namespace xformer::readers::listops {
namespace {

constexpr std::string_view kHeader = "Source\tTarget";

bool is_digit(uint8_t id) { return id >= kFirstDigit && id < kMin; }
bool is_operator(uint8_t id) { return id >= kMin && id <= kSm; }

// 0 for a symbol that is not in the table.
uint8_t id_of(std::string_view symbol) {
  if (symbol.size() == 1) {
    if (symbol[0] >= '0' && symbol[0] <= '9') return static_cast<uint8_t>(kFirstDigit + (symbol[0] - '0'));
    return symbol[0] == ']' ? kClose : 0;
  }
  for (uint8_t id = kMin; id <= kSm; ++id)
    if (kSymbols[id] == symbol) return id;
  return 0;
}

[[noreturn]] void refuse_symbol(std::string_view symbol, std::string_view where) {
  const std::vector<std::string> known(kSymbols.begin() + 1, kSymbols.end());
  const std::string near = symbol.size() > 1 && symbol.size() < 40 ? nearest_name(symbol, known) : std::string();
  const std::string hint = near.empty() ? "" : fmt::format("; did you mean '{}'?", near);
  throw DataError(fmt::format("{}: expected the symbols {} (and round brackets), found {}{}", where,
                              fmt::join(known, " "), quoted(symbol), hint));
}

int64_t apply(uint8_t operation, std::span<uint8_t> values) {
  switch (operation) {
    case kMin:
      return *std::min_element(values.begin(), values.end());
    case kMax:
      return *std::max_element(values.begin(), values.end());
    case kSm: {
      int64_t sum = 0;
      for (const uint8_t value : values) sum += value;
      return sum % 10;
    }
    default: {  // the median; of an even count the integer part of the mean of the middle two
      std::sort(values.begin(), values.end());
      const size_t middle = values.size() / 2;
      return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
    }
  }
}

}  // namespace

std::string vocabulary_sha256() {
  std::string table;
  for (size_t id = 0; id < kSymbols.size(); ++id) table += fmt::format("{}\t{}\n", id, kSymbols[id]);
  return sha256(table);
}

void encode(std::string_view expression, std::string_view where, std::vector<uint8_t>& ids) {
  ids.clear();
  size_t begin = 0;
  while (begin < expression.size()) {
    if (expression[begin] == ' ') {
      ++begin;
      continue;
    }
    const size_t end = std::min(expression.find(' ', begin), expression.size());
    const std::string_view symbol = expression.substr(begin, end - begin);
    begin = end;
    if (symbol == "(" || symbol == ")") continue;
    const uint8_t id = id_of(symbol);
    if (id == 0) refuse_symbol(symbol, where);
    ids.push_back(id);
  }
}

std::string decode(std::span<const uint8_t> ids) {
  std::string text;
  for (const uint8_t id : ids) {
    XF_CHECK(id > 0 && id < kVocabulary, DataError, "expected ids 1 to {}, found {}", kVocabulary - 1, id);
    if (!text.empty()) text += ' ';
    text += kSymbols[id];
  }
  return text;
}

int64_t evaluate(std::span<const uint8_t> ids) {
  // An explicit stack: the depth of a file's expression is not ours to bound.
  struct Open {
    uint8_t operation;
    size_t first_value;  // in `values`
    size_t position;
  };
  std::vector<Open> open;
  std::vector<uint8_t> values;
  XF_CHECK(!ids.empty(), DataError, "expected an expression, found none");
  for (size_t i = 0; i < ids.size(); ++i) {
    const uint8_t id = ids[i];
    XF_CHECK(i == 0 || !open.empty(), DataError, "expected the end of the expression, found more at symbol {}", i + 1);
    if (is_digit(id)) {
      values.push_back(static_cast<uint8_t>(id - kFirstDigit));
    } else if (is_operator(id)) {
      open.push_back({id, values.size(), i});
    } else {
      XF_CHECK(id == kClose, DataError, "expected ids 1 to {}, found {} at symbol {}", kVocabulary - 1, id, i + 1);
      XF_CHECK(!open.empty(), DataError, "expected an operator or a digit, found ']' at symbol {}", i + 1);
      const Open last = open.back();
      open.pop_back();
      XF_CHECK(values.size() > last.first_value, DataError, "expected arguments of {} at symbol {}, found none",
               kSymbols[last.operation], last.position + 1);
      const int64_t value = apply(last.operation, std::span(values).subspan(last.first_value));
      values.resize(last.first_value);
      values.push_back(static_cast<uint8_t>(value));
    }
  }
  XF_CHECK(open.empty(), DataError, "expected ']' for the {} at symbol {}, found the end of the expression",
           kSymbols[open.empty() ? 0 : open.back().operation], open.empty() ? 0 : open.back().position + 1);
  return values.front();
}

RowReader::RowReader(const Path& path, Layout layout) : lines_(path), layout_(layout) {
  if (layout_ != Layout::kLra) return;
  std::string_view line;
  XF_CHECK(lines_.next(line), DataError, "{} is empty: expected the header {} and rows", path.string(),
           quoted(kHeader));
  XF_CHECK(line == kHeader, DataError, "{}: expected the header {}, found {}", where(), quoted(kHeader), quoted(line));
}

bool RowReader::next(Row& row) {
  std::string_view line;
  if (!lines_.next(line)) {
    XF_CHECK(any_row_, DataError, "{} is empty: expected at least one row{}", lines_.path().string(),
             layout_ == Layout::kLra ? " after the header" : "");
    return false;
  }
  any_row_ = true;
  const std::string_view order = layout_ == Layout::kLra ? "expression<TAB>answer" : "answer<TAB>expression";
  const size_t tab = line.find('\t');
  XF_CHECK(tab != std::string_view::npos && line.find('\t', tab + 1) == std::string_view::npos, DataError,
           "{}: expected two fields, {}, found {} in {}", where(), order, split(line, '\t').size(), quoted(line));
  std::string_view expression = line.substr(0, tab), answer = line.substr(tab + 1);
  if (layout_ == Layout::kOriginal) std::swap(expression, answer);
  answer = trim(answer);
  XF_CHECK(answer.size() == 1 && answer[0] >= '0' && answer[0] <= '9', DataError,
           "{}: expected a label from 0 to 9 ({}), found {}", where(), order, quoted(answer));
  row.label = answer[0] - '0';
  encode(expression, where(), row.tokens);
  XF_CHECK(!row.tokens.empty(), DataError, "{}: expected an expression, found none", where());
  return true;
}

}  // namespace xformer::readers::listops
