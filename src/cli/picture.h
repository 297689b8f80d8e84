// Pictures in files: SVG as it is, PNG and PDF by rsvg-convert, from librsvg.
#pragma once

#include <string>

namespace xformer::cli {

// UserError of a name that ends in none of .svg, .png and .pdf; "" is standard output.
void check_picture_name(const std::string& out);
// ResourceError where there is no rsvg-convert, or no place to write.
void write_picture(const std::string& svg, const std::string& out);

}  // namespace xformer::cli
