// What tasks share whose examples are a source and texts about it, in JSON lines: where their files lie, and how
// examples of two sequences (core/pair_symbols.h) are made of them.
//
// <folder>/{train,dev,test}.jsonl (or .json, .txt, each also with .gz; val, valid or validation for dev), or a folder
// of each name with any such files in it, at any depth, as BigPatent has them.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "data/check.h"
#include "data/source.h"

namespace xformer::data {

struct PairOptions {
  int64_t length = 4096, written = 256;
  std::string empty = "error";
};
[[nodiscard]] const Schema<PairOptions>& pair_schema();

// A line as it will be read; ids [source] and [right texts, each with its end].
struct PairLine {
  std::vector<uint16_t> source, texts;
  std::string nothing;       // what has no character although it must, "" mostly
  bool source_cut = false;   // it is longer than what is read of it
  bool text_longer = false;  // the first right text and its end are longer than what is written
};

// A task whose lines `parse` reads.
struct PairTask {
  std::string name;   // "summarise/arxiv"
  std::string lines;  // what a line holds: "an article and its abstract"
  Judged judged = Judged::kSummary;
  std::function<PairLine(std::string_view line, const std::string& where, const PairOptions&)> parse;
};

// `bytes` of a text, as many as there is room for; then its end, if there still is.
void append_text(std::vector<uint16_t>& ids, std::string_view bytes, int64_t room);

// The source of a question about a text: the question (at most half of `length`), a mark, the text, cut to `length`
// ids.
[[nodiscard]] std::vector<uint16_t> question_source(std::string_view question, std::string_view context,
                                                    int64_t length);

// Everything of the descriptor but title, paper and source.
void describe_pairs(DatasetDescriptor& descriptor, const PairTask& task);

}  // namespace xformer::data
