// Files of sequences in classes: where they lie, which class each is, and their records in order.
//
// FASTA files (.fa, .fasta, .fna, .fas, .ffn, plain or .gz), a class each: of the name of the file, or as `patterns`
// say. Or, where there are none, a table (.tsv, .csv, .txt, plain or .gz) whose header has `sequence` and `class` (or
// `label`), by tabs, commas or semicolons. They lie in one folder, or in its folders train/, dev/ (val/, validation/)
// and test/; tables may be called train.tsv and so on. A single table may be named by itself.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/progress_callback.h"
#include "data/source.h"
#include "readers/fasta.h"

namespace xformer::data {

// A class by the names of its FASTA files (`*` is any text); of patterns that fit, the first class's counts.
struct ClassPattern {
  std::string name;
  std::vector<std::string> patterns;
};

// "made=*neg*|*non*,true=*pos*": classes in the order of their labels. UserError for anything else but "".
[[nodiscard]] std::vector<ClassPattern> parse_class_patterns(const std::string& text);

struct GenomeFiles {
  struct One {
    Path path;
    std::string class_name;  // of a FASTA file
    std::optional<Split> split;
  };
  std::vector<One> files;            // sorted by split, class and name
  std::vector<std::string> classes;  // by label; of tables none, their rows have them
  bool tables = false;

  [[nodiscard]] std::vector<Path> paths() const;
};

// DataErrors: neither kind, one class alone, a class of the patterns without a file, a class that train lacks.
[[nodiscard]] GenomeFiles find_genome_files(const std::string& task, const Path& place,
                                            const std::vector<ClassPattern>& patterns);

// Of promoters alone: one FASTA file, or every one in a folder or in those of its splits. DataError: none.
[[nodiscard]] GenomeFiles find_promoter_files(const std::string& task, const Path& place);

struct GenomeRecord {
  std::string class_name;
  std::optional<Split> split;
  const readers::Nucleotides* sequence = nullptr;  // during the call; the first `most` letters
  std::string where;                               // file and line
};

// Every record in the order of files and lines. A row without a sequence or class is a DataError.
void read_genome(const GenomeFiles& files, size_t most, const std::function<void(const GenomeRecord&)>& add,
                 const ProgressCallback& progress);

}  // namespace xformer::data
