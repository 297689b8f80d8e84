// Compiling what the program writes as LaTeX, where a TeX is there.
#pragma once

#include <cstdlib>
#include <string>

#include "core/text.h"
#include "scratch.h"

namespace xformer::latex {

[[nodiscard]] inline bool is_there() {
  return std::system("command -v pdflatex >/dev/null && kpsewhich siunitx.sty booktabs.sty >/dev/null") == 0;
}

// The log of an article that holds the table; in `folder`, document.pdf beside it.
[[nodiscard]] inline std::string log_of(const std::string& table, const Path& folder) {
  scratch::put(folder / "document.tex",
               "\\documentclass{article}\n\\usepackage{siunitx,booktabs,graphicx}\n\\begin{document}\n" + table +
                   "\\end{document}\n");
  const std::string command = "cd " + shell_word(folder.string()) +
                              " && pdflatex -interaction=nonstopmode -halt-on-error document.tex >/dev/null 2>&1";
  const int status = std::system(command.c_str());
  std::string log = scratch::get(folder / "document.log");
  return status == 0 ? log : "! pdflatex failed\n" + log;
}

}  // namespace xformer::latex
