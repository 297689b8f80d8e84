// Questions about a text, byte by byte: `qa/<name>`, JSON lines of questions, contexts and answers (SQuAD's fields).
//
// The source is the question, a mark and the context, cut to data.length bytes; where the question alone has more than
// half of them, it is cut to that half. Right are all answers, as far as data.length bytes hold them, and the first is
// learnt; a question without an answer has the empty text. Answers are written as text: they need not stand in what is
// read of the context, and one that does need not stand there once.
#include "core/pair_symbols.h"
#include "data/text/text_pairs.h"
#include "readers/text_pairs.h"

namespace xformer::data::adapters::qa {
namespace {

PairLine parse_question(std::string_view line, const std::string& where, const PairOptions& options) {
  readers::QuestionLine read = readers::parse_question_line(line, where);
  PairLine pair;
  if (read.question.empty() || read.context.empty()) pair.nothing = read.question.empty() ? "a question" : "a context";
  pair.source = question_source(read.question, read.context, options.length);
  pair.source_cut = pair.source.size() < read.question.size() + 1 + read.context.size();
  if (read.answers.empty()) read.answers.emplace_back();
  pair.text_longer = static_cast<int64_t>(read.answers.front().size()) >= options.written;
  for (const std::string& answer : read.answers) {
    const int64_t room = options.length - static_cast<int64_t>(pair.texts.size());
    // Half an answer would be a wrong one; but the first has to be there.
    if (!pair.texts.empty() && static_cast<int64_t>(answer.size()) >= room) continue;
    append_text(pair.texts, answer, room);
  }
  return pair;
}

DatasetDescriptor qa_descriptor(const std::string& set) {
  DatasetDescriptor result;
  describe_pairs(result, {"qa/" + set, "a question, its context and its answers", Judged::kAnswer, parse_question});
  result.title = "questions about a text, byte by byte";
  result.paper = "Rajpurkar et al., SQuAD: 100,000+ Questions for Machine Comprehension of Text, 2016";
  result.source = "JSON lines with question, context and answers, as SQuAD's are published for lines, or any others";
  return result;
}

}  // namespace

std::vector<DatasetDescriptor> describe() {
  DatasetDescriptor any = qa_descriptor("<name>");
  any.member = [](const std::string& name) { return qa_descriptor(name); };
  return {any};
}

}  // namespace xformer::data::adapters::qa
