// Markdown of ours as text for a terminal.
#pragma once

#include <string>

namespace xformer::reporting {

// Tables aligned (as_text of a Table), paragraphs, items and footnotes wrapped to `width` columns; code, bold and links
// without their marks. Knows what this program writes: headings, items, tables, <sup>marks</sup>, and no more.
[[nodiscard]] std::string markdown_as_text(const std::string& markdown, size_t width);

}  // namespace xformer::reporting
