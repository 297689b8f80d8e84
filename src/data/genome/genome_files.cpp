#include "data/genome/genome_files.h"

#include <algorithm>
#include <tuple>

#include "core/error.h"
#include "core/names.h"
#include "core/plain_files.h"
#include "core/text.h"
#include "core/utf8.h"
#include "data/class_splits.h"
#include "data/what_is_there.h"
#include "readers/csv.h"

namespace xformer::data {
namespace {

namespace fs = std::filesystem;

// Without .gz: the ending says what a file holds.
std::pair<std::string, std::string> stem_and_ending(const Path& path) {
  const Path plain = path.extension() == ".gz" ? path.stem() : path.filename();
  return {plain.stem().string(), plain.extension().string()};
}

bool is_one_of(const std::string& ending, std::initializer_list<const char*> endings) {
  return std::find(endings.begin(), endings.end(), ending) != endings.end();
}
bool is_fasta(const Path& path) {
  return is_one_of(stem_and_ending(path).second, {".fa", ".fasta", ".fna", ".fas", ".ffn"});
}
bool is_table(const Path& path) { return is_one_of(stem_and_ending(path).second, {".tsv", ".csv", ".txt"}); }

struct Candidates {
  std::vector<GenomeFiles::One> fasta, tables;
};

void look_into(const Path& folder, const std::optional<Split>& split, Candidates& found) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const Path& path = entry.path();
    const std::string stem = stem_and_ending(path).first;
    if (is_fasta(path)) found.fasta.push_back({path, stem, split});
    if (is_table(path)) found.tables.push_back({path, "", split ? split : split_by_name(stem)});
  }
}

// Those of a folder, or where it has no FASTA those of its splits.
Candidates candidates(const Path& place) {
  Candidates all, in_splits;
  look_into(place, std::nullopt, all);
  if (!all.fasta.empty()) return all;
  for (const Path& folder : subfolders(place))
    if (const auto split = split_by_name(folder.filename().string())) look_into(folder, split, in_splits);
  return in_splits.fasta.empty() && in_splits.tables.empty() ? all : in_splits;
}

// Those that a pattern fits, by its class.
std::vector<GenomeFiles::One> matching(const std::vector<GenomeFiles::One>& files,
                                       const std::vector<ClassPattern>& patterns) {
  std::vector<GenomeFiles::One> result;
  for (GenomeFiles::One file : files)
    for (const ClassPattern& one : patterns) {
      const std::string name = file.path.filename().string();
      const bool fits = std::any_of(one.patterns.begin(), one.patterns.end(),
                                    [&](const std::string& pattern) { return matches_pattern(pattern, name); });
      if (!fits) continue;
      file.class_name = one.name;
      result.push_back(file);
      break;
    }
  return result;
}

// Whether the files of the splits go together: all of them in a split, train and test among them, or none.
void check_splits(const Path& place, const std::vector<GenomeFiles::One>& files) {
  const auto in = [&](std::optional<Split> split) {
    return std::find_if(files.begin(), files.end(), [&](const auto& file) { return file.split == split; });
  };
  const auto free = in(std::nullopt);
  const bool any = std::any_of(files.begin(), files.end(), [](const auto& file) { return file.split.has_value(); });
  if (!any) return;
  XF_CHECK(free == files.end(), DataError, "{}: {} lies beside files of splits, and its own is not said",
           place.string(), free->path.filename().string());
  for (const Split split : {Split::kTrain, Split::kTest})
    XF_CHECK(in(split) != files.end(), DataError, "{}: expected files of train and of test, found none of {}",
             place.string(), split_name(split));
}

void check_classes(const GenomeFiles& found, const Path& place) {
  XF_CHECK(found.classes.size() >= 2, DataError,
           "{}: expected a FASTA file for each of two classes or more, found {} alone", place.string(),
           found.files.front().path.filename().string());
  if (!found.files.front().split) return;
  for (const std::string& name : found.classes) {
    const bool there = std::any_of(found.files.begin(), found.files.end(), [&](const GenomeFiles::One& file) {
      return file.split == Split::kTrain && file.class_name == name;
    });
    XF_CHECK(there, DataError, "{}: the class {} has no file in train/", place.string(), name);
  }
}

GenomeFiles find(const std::string& task, const Path& place, const std::vector<ClassPattern>& patterns) {
  GenomeFiles found;
  if (!fs::is_directory(place)) {
    XF_CHECK(!is_fasta(place), DataError,
             "{}: a FASTA file holds one class; expected a folder with a file for each, or a table", place.string());
    found.files.push_back({place, "", std::nullopt});
    found.tables = true;
    return found;
  }
  Candidates all = candidates(place);
  if (!patterns.empty()) {
    const std::vector<GenomeFiles::One> classed = matching(all.fasta, patterns);
    if (!classed.empty()) {
      for (const ClassPattern& one : patterns) {
        const bool there =
            std::any_of(classed.begin(), classed.end(), [&](const auto& file) { return file.class_name == one.name; });
        XF_CHECK(there, DataError, "{}: expected a FASTA file of the class {} (a name like {}); {}", place.string(),
                 one.name, fmt::join(one.patterns, " or "), what_is_there(place));
        found.classes.push_back(one.name);
      }
      all = {classed, {}};
    } else {
      all.fasta.clear();
    }
  }
  const std::string like =
      patterns.empty() ? "" : fmt::format(" (like {} and {})", patterns[0].patterns[0], patterns.back().patterns[0]);
  XF_CHECK(!all.fasta.empty() || !all.tables.empty(), DataError,
           "no sequences of {} in {}: expected a FASTA file (.fa, .fa.gz) for each class{}, or a table (.tsv, .csv) of "
           "sequence and class; {}",
           task, place.string(), like, what_is_there(place));
  found.tables = all.fasta.empty();
  found.files = found.tables ? all.tables : all.fasta;
  check_splits(place, found.files);
  XF_CHECK(!found.tables || found.files.size() == 1 || found.files.front().split, DataError,
           "{}: expected a FASTA file for each class{}, or one table, or those of train, test and perhaps dev; {}",
           place.string(), like, what_is_there(place));
  if (!found.tables && found.classes.empty()) {
    for (const GenomeFiles::One& file : found.files) found.classes.push_back(file.class_name);
    std::sort(found.classes.begin(), found.classes.end());
    found.classes.erase(std::unique(found.classes.begin(), found.classes.end()), found.classes.end());
  }
  if (!found.tables) check_classes(found, place);
  std::sort(found.files.begin(), found.files.end(), [](const auto& left, const auto& right) {
    return std::tie(left.split, left.class_name, left.path) < std::tie(right.split, right.class_name, right.path);
  });
  return found;
}

void read_fasta(const GenomeFiles::One& file, size_t most, const std::function<void(const GenomeRecord&)>& add,
                const std::function<void(uint64_t)>& step) {
  readers::FastaReader reader(file.path, most);
  for (readers::FastaRecord record; reader.next(record);) {
    add({file.class_name, file.split, &record.sequence, reader.where(record)});
    step(reader.bytes_read());
  }
}

// The first of those that may be, in the header.
char delimiter_of(const Path& table) {
  readers::LineReader lines(table);
  std::string_view header;
  XF_CHECK(lines.next(header), DataError, "{} is empty: expected a header and rows", table.string());
  const size_t first = header.find_first_of("\t,;");
  return first == header.npos ? '\t' : header[first];
}

void read_table(const GenomeFiles::One& file, size_t most, const std::function<void(const GenomeRecord&)>& add,
                const std::function<void(uint64_t)>& step) {
  readers::CsvReader rows(file.path, {delimiter_of(file.path), true, {}});
  const auto column = [&](const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      const auto found = std::find_if(rows.header().begin(), rows.header().end(),
                                      [&](const std::string& one) { return canonical_name(one) == name; });
      if (found != rows.header().end()) return static_cast<size_t>(found - rows.header().begin());
    }
    throw DataError(fmt::format("{}: expected a column '{}', found {}", rows.where(), fmt::join(names, "' or '"),
                                fmt::join(rows.header(), ", ")));
  };
  const size_t sequence = column({"sequence"}), label = column({"class", "label"});
  for (std::vector<std::string_view> fields; rows.next(fields);) {
    readers::Nucleotides letters;
    size_t foreign = 0;
    XF_CHECK(letters.add(fields[sequence], most, foreign), DataError, "{}: {}", rows.where(),
             readers::foreign_letter(fields[sequence], foreign));
    XF_CHECK(letters.length > 0, DataError, "{}: expected a sequence, found none", rows.where());
    XF_CHECK(!fields[label].empty(), DataError, "{}: expected a class, found none", rows.where());
    XF_CHECK(is_utf8(fields[label]), DataError, "{}: expected a class in UTF-8, found {}", rows.where(),
             xformer::quoted(fields[label]));
    add({std::string(fields[label]), file.split, &letters, rows.where()});
    step(rows.bytes_read());
  }
}

}  // namespace

std::vector<ClassPattern> parse_class_patterns(const std::string& text) {
  std::vector<ClassPattern> result;
  for (const std::string& part : listed_names("data.classes", text)) {
    const size_t equals = part.find('=');
    XF_CHECK(equals != part.npos && equals > 0 && equals + 1 < part.size(), UserError,
             "data.classes: expected NAME=PATTERN, or several with commas between them, got '{}'", part);
    ClassPattern one{part.substr(0, equals), {}};
    for (const ClassPattern& other : result)
      XF_CHECK(other.name != one.name, UserError, "data.classes: '{}' comes twice in '{}'", one.name, text);
    for (const std::string_view pattern : split(std::string_view(part).substr(equals + 1), '|'))
      one.patterns.emplace_back(pattern);
    result.push_back(one);
  }
  XF_CHECK(result.size() != 1, UserError, "data.classes: expected two classes or more, got '{}'", text);
  return result;
}

std::vector<Path> GenomeFiles::paths() const {
  std::vector<Path> result;
  for (const One& file : files) result.push_back(file.path);
  return result;
}

GenomeFiles find_genome_files(const std::string& task, const Path& place, const std::vector<ClassPattern>& patterns) {
  return find_or_offer(place, [&](const Path& one) { return find(task, one, patterns); });
}

GenomeFiles find_promoter_files(const std::string& task, const Path& place) {
  return find_or_offer(place, [&](const Path& one) {
    GenomeFiles found;
    if (!fs::is_directory(one) && is_fasta(one)) found.files.push_back({one, "", std::nullopt});
    if (fs::is_directory(one)) found.files = candidates(one).fasta;
    XF_CHECK(!found.files.empty(), DataError, "no promoters of {} in {}: expected FASTA files (.fa, .fa.gz); {}", task,
             one.string(), fs::is_directory(one) ? what_is_there(one) : "found another file");
    check_splits(one, found.files);
    std::sort(found.files.begin(), found.files.end(), [](const auto& left, const auto& right) {
      return std::tie(left.split, left.path) < std::tie(right.split, right.path);
    });
    return found;
  });
}

void read_genome(const GenomeFiles& files, size_t most, const std::function<void(const GenomeRecord&)>& add,
                 const ProgressCallback& progress) {
  uint64_t total = 0, done = 0, records = 0;
  for (const GenomeFiles::One& file : files.files) total += size_of_plain_file(file.path);
  for (const GenomeFiles::One& file : files.files) {
    const auto step = [&](uint64_t read) {
      if (progress && ++records % 256 == 0) progress("reading sequences", done + read, total);
    };
    if (files.tables) read_table(file, most, add, step);
    else read_fasta(file, most, add, step);
    done += size_of_plain_file(file.path);
  }
}

}  // namespace xformer::data
