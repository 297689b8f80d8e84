// libFuzzer target: any line either is an example of a text and what is written about it or an xformer::Error that says
// where. The first byte chooses summaries or questions.
#include <cstdlib>

#include "core/error.h"
#include "readers/text_pairs.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view line(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    if (data[0] % 2 == 0) (void)xformer::readers::parse_summary_line(line, "here:1");
    else (void)xformer::readers::parse_question_line(line, "here:1");
  } catch (const xformer::DataError& error) {
    if (!std::string_view(error.what()).starts_with("here:1")) std::abort();
  }
  return 0;
}
