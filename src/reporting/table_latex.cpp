// A table as LaTeX: booktabs, numbers aligned at the point by siunitx or plain, no wider than the line.
#include <fmt/ranges.h>

#include <algorithm>

#include "reporting/table.h"

namespace xformer::reporting {
namespace {

// TeX's own ten, four that its oldest fonts print as others, and what Unicode our notes hold. Control characters would
// be errors.
std::string escaped(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    const auto starts = [&](std::string_view word) { return text.compare(i, word.size(), word) == 0; };
    if (std::string_view("&%$#_{}").find(letter) != std::string_view::npos) result += std::string("\\") + letter;
    else if (letter == '\\') result += "\\textbackslash{}";
    else if (letter == '^') result += "\\textasciicircum{}";
    else if (letter == '~') result += "\\textasciitilde{}";
    else if (letter == '<') result += "\\textless{}";
    else if (letter == '>') result += "\\textgreater{}";
    else if (letter == '|') result += "\\textbar{}";
    else if (letter == '"') result += "''";
    else if (starts("±")) result += "$\\pm$", i += std::string_view("±").size() - 1;
    else if (starts("≥")) result += "$\\geq$", i += std::string_view("≥").size() - 1;
    else if (starts("×")) result += "$\\times$", i += std::string_view("×").size() - 1;
    else result += static_cast<unsigned char>(letter) < ' ' ? ' ' : letter;
  }
  return result;
}

std::string superscript(const std::string& marks) { return marks.empty() ? "" : "\\textsuperscript{" + marks + "}"; }

std::string bold(const std::string& text, bool strong) { return strong ? "\\textbf{" + text + "}" : text; }

class Latex {
 public:
  Latex(const Table& table, LatexNumbers numbers)
      : table_(table), siunitx_(numbers == LatexNumbers::kSiunitx), notes_(footnotes(table)) {}

  [[nodiscard]] std::string text() const {
    std::string text = fmt::format("% Needs \\usepackage{{{}booktabs,graphicx}}.\n\\begin{{table}}\n\\centering\n",
                                   siunitx_ ? "siunitx," : "");
    if (siunitx_) text += "\\sisetup{retain-explicit-plus=true}\n";
    if (!table_.title.empty())
      text += "\\setlength{\\belowcaptionskip}{6pt}\n\\caption{" + escaped(table_.title) + "}\n";
    if (!table_.name.empty()) text += "\\label{tab:" + table_.name + "}\n";
    text += "\\setlength{\\tabcolsep}{4pt}\n\\sbox0{%\n\\begin{tabular}{";
    for (size_t column = 0; column < table_.columns.size(); ++column) text += column_type(column);
    text += "}\n\\toprule\n" + heads() + "\\midrule\n";
    for (const auto& row : table_.rows) {
      std::vector<std::string> cells;
      for (size_t column = 0; column < row.size(); ++column) cells.push_back(cell(row[column], column));
      text += fmt::format("{} \\\\\n", fmt::join(cells, " & "));
    }
    text +=
        "\\bottomrule\n\\end{tabular}}%\n"
        "\\ifdim\\wd0>\\linewidth\\resizebox{\\linewidth}{!}{\\usebox0}\\else\\usebox0\\fi\n";
    return text + foot() + "\\end{table}\n";
  }

 private:
  [[nodiscard]] bool aligned(size_t column) const { return siunitx_ && table_.columns[column].numbers; }

  // Behind a number: siunitx's own form of a spread is 98.56(16), and its separate one is set unevenly (3.2.0).
  [[nodiscard]] std::string behind_number(const TableCell& one) const {
    return (one.spread.empty() ? "" : "\\,$\\pm$\\," + one.spread) + superscript(marks_of(one, notes_));
  }

  // Digits before and behind the point of the widest number, and the longest that stands behind one.
  [[nodiscard]] std::string column_type(size_t column) const {
    if (!table_.columns[column].numbers) return "l";
    if (!siunitx_) return "r";
    size_t before = 1, behind = 0;
    bool sign = false;
    double widest = 0;  // in figures
    std::string text;
    for (const auto& row : table_.rows) {
      const TableCell& one = row[column];
      if (!one.value) continue;
      const double width = (one.spread.empty() ? 0 : 3 + static_cast<double>(one.spread.size())) +
                           0.7 * static_cast<double>(marks_of(one, notes_).size());
      if (width > widest) widest = width, text = behind_number(one);
      sign |= one.text.starts_with('-') || one.text.starts_with('+');
      const std::string number = one.text.substr(one.text.find_first_not_of("-+"));
      const size_t point = std::min(number.find('.'), number.size());
      before = std::max(before, point);
      behind = std::max(behind, number.size() - std::min(number.size(), point + 1));
    }
    return fmt::format("S[table-format={}{}{}{}]", sign ? "-" : "", before,
                       behind > 0 ? fmt::format(".{}", behind) : "",
                       text.empty() ? "" : ",table-space-text-post={" + text + "}");
  }

  [[nodiscard]] std::string cell(const TableCell& one, size_t column) const {
    const std::string marks = superscript(marks_of(one, notes_));
    if (!one.value) {
      const std::string text = (one.text == "-" ? "--" : bold(escaped(one.text), one.strong)) + marks;
      return aligned(column) ? "{" + text + "}" : text;
    }
    if (aligned(column)) {
      const std::string behind = behind_number(one);
      return fmt::format("{}{}{}", one.strong ? "\\bfseries " : "", one.text, behind.empty() ? "" : "{" + behind + "}");
    }
    const std::string number = one.text.starts_with('-') ? "$-$" + one.text.substr(1) : one.text;
    return bold(number + (one.spread.empty() ? "" : " $\\pm$ " + one.spread), one.strong) + marks;
  }

  [[nodiscard]] static std::string with_unit(const std::string& text, const std::string& unit) {
    return escaped(text) + (unit.empty() ? "" : " (" + escaped(unit) + ")");
  }

  // One line, or two where columns share a heading.
  [[nodiscard]] std::string heads() const {
    const auto& columns = table_.columns;
    std::vector<std::string> upper, lower;
    std::string rules;
    bool two = false;
    for (size_t first = 0, last = 0; first < columns.size(); first = last) {
      last = first + 1;
      const std::string& group = columns[first].group;
      while (!group.empty() && last < columns.size() && columns[last].group == group) ++last;
      const auto braced = [&](size_t column, const std::string& text) {
        return aligned(column) ? "{" + text + "}" : text;
      };
      if (last - first == 1) {
        const TableColumn& only = columns[first];
        const std::string within = group.empty() || group == only.label ? only.label : group + " " + only.label;
        upper.emplace_back();
        lower.push_back(braced(first, with_unit(within, only.unit)));
        continue;
      }
      two = true;
      const bool same = std::all_of(columns.begin() + static_cast<std::ptrdiff_t>(first),
                                    columns.begin() + static_cast<std::ptrdiff_t>(last),
                                    [&](const TableColumn& one) { return one.unit == columns[first].unit; });
      upper.push_back(fmt::format("\\multicolumn{{{}}}{{c}}{{{}}}", last - first,
                                  with_unit(group, same ? columns[first].unit : "")));
      rules += fmt::format("\\cmidrule(lr){{{}-{}}}", first + 1, last);
      for (size_t column = first; column < last; ++column)
        lower.push_back(braced(column, with_unit(columns[column].label == group ? "ours" : columns[column].label,
                                                 same ? "" : columns[column].unit)));
    }
    const std::string below = fmt::format("{} \\\\\n", fmt::join(lower, " & "));
    return two ? fmt::format("{} \\\\\n{}\n{}", fmt::join(upper, " & "), rules, below) : below;
  }

  [[nodiscard]] std::string foot() const {
    if (notes_.empty() && table_.notes.empty()) return "";
    std::string text = "\\par\\smallskip\n\\begin{minipage}{\\linewidth}\\footnotesize\\raggedright\n";
    for (size_t i = 0; i < notes_.size(); ++i) text += superscript(note_mark(i)) + " " + escaped(notes_[i]) + "\\par\n";
    for (const std::string& note : table_.notes) text += escaped(note) + "\\par\n";
    return text + "\\end{minipage}\n";
  }

  const Table& table_;
  bool siunitx_;
  std::vector<std::string> notes_;
};

}  // namespace

std::string as_latex(const Table& table, LatexNumbers numbers) { return Latex(table, numbers).text(); }

}  // namespace xformer::reporting
