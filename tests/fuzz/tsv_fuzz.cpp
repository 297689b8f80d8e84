// libFuzzer target: any bytes either give rows of ListOps or of AAN pairs or an xformer::Error, and rows that were
// read are written and read back unchanged. The first byte chooses the layout.
#include <vector>

#include "core/error.h"
#include "memory_file.h"
#include "readers/aan.h"
#include "readers/listops.h"

namespace {

using namespace xformer::readers;

std::vector<listops::Row> listops_rows(const std::string& bytes, listops::Layout layout) {
  const MemoryFile file(bytes);
  listops::RowReader reader(file.path(), layout);
  std::vector<listops::Row> rows;
  for (listops::Row row; reader.next(row);) rows.push_back(row);
  return rows;
}

void fuzz_listops(const std::string& bytes, listops::Layout layout) {
  std::vector<listops::Row> rows;
  try {
    rows = listops_rows(bytes, layout);
  } catch (const xformer::Error&) {
    return;
  }
  std::string text = layout == listops::Layout::kLra ? "Source\tTarget\n" : "";
  for (const listops::Row& row : rows) {
    if (row.tokens.empty() || row.label < 0 || row.label >= listops::kClasses) std::abort();
    try {
      if (const int64_t value = listops::evaluate(row.tokens); value < 0 || value > 9) std::abort();
    } catch (const xformer::Error&) {  // of the expression's form
    }
    const std::string expression = listops::decode(row.tokens), label = std::to_string(row.label);
    text += layout == listops::Layout::kLra ? expression + '\t' + label : label + '\t' + expression;
    text += '\n';
  }
  const std::vector<listops::Row> back = listops_rows(text, layout);
  if (back.size() != rows.size()) std::abort();
  for (size_t i = 0; i < rows.size(); ++i)
    if (back[i].tokens != rows[i].tokens || back[i].label != rows[i].label) std::abort();
}

// The rows as text: every field as it was but the label, which is 0 or 1.
std::string aan_rows(const std::string& bytes) {
  const MemoryFile file(bytes);
  aan::PairReader reader(file.path());
  std::string text;
  for (aan::Pair pair; reader.next(pair);) {
    if (pair.label != 0 && pair.label != 1) std::abort();
    text += std::to_string(pair.label);
    for (const std::string_view field : {pair.first_id, pair.second_id, pair.first, pair.second}) {
      if (field.empty() || field.find_first_of("\t\n") != std::string_view::npos) std::abort();
      (text += '\t') += field;
    }
    text += '\n';
  }
  return text;
}

void fuzz_aan(const std::string& bytes) {
  std::string text;
  try {
    text = aan_rows(bytes);
  } catch (const xformer::Error&) {
    return;
  }
  if (text.find("\r\n") != std::string::npos) return;  // a row that ended in two CRs would lose the other one
  if (aan_rows(text) != text) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string input(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 3 == 0) fuzz_listops(input, listops::Layout::kLra);
  else if (data[0] % 3 == 1) fuzz_listops(input, listops::Layout::kOriginal);
  else fuzz_aan(input);
  return 0;
}
