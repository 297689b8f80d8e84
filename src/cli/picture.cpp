#include "cli/picture.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

#include "core/error.h"
#include "core/files.h"
#include "core/text.h"

namespace xformer::cli {
namespace {

void convert(const std::string& svg, const Path& path, const std::string& options) {
  const Path drawing = std::filesystem::temp_directory_path() / fmt::format("xformer-plot-{}.svg", ::getpid());
  write_file_atomically(drawing, svg);
  const std::string command = "rsvg-convert " + options + " --output " + shell_word(path.string()) + " " +
                              shell_word(drawing.string()) + " 2>/dev/null";
  const int status = std::system(command.c_str());
  std::error_code ignored;
  std::filesystem::remove(drawing, ignored);
  XF_CHECK(status == 0, ResourceError,
           "--out {}: PNG and PDF need rsvg-convert (Debian: librsvg2-bin) and leave to write there; else give a name "
           "that ends in .svg",
           path.string());
}

}  // namespace

void check_picture_name(const std::string& out) {
  const std::string ending = Path(out).extension();
  XF_CHECK(out.empty() || ending == ".svg" || ending == ".png" || ending == ".pdf", UserError,
           "--out {}: a picture's name ends in .svg, .png or .pdf", out);
  check_named_file("--out", out);
}

void write_picture(const std::string& svg, const std::string& out) {
  check_picture_name(out);
  const std::string ending = Path(out).extension();
  if (out.empty()) fmt::print("{}", svg);
  else if (ending == ".png") convert(svg, out, "--zoom 2");
  else if (ending == ".pdf") convert(svg, out, "--format pdf");
  else write_file_atomically(out, svg);
}

}  // namespace xformer::cli
