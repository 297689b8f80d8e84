#include "engine/written_text.h"

#include <chrono>

#include "cli/byte_text.h"
#include "cli/printed.h"
#include "core/pair_symbols.h"
#include "core/text.h"
#include "core/utf8.h"
#include "data/text/text_pairs.h"
#include "kernels/policy.h"
#include "models/decoding.h"
#include "plan/options.h"
#include "training/run_directory.h"
#include "training/weights.h"

namespace xformer::engine {

namespace {

std::vector<uint16_t> source_of(const RunPlan& plan, const std::string& option, const std::string& prompt,
                                const WriteArguments& arguments) {
  const data::DataShape shape = plan::planned_shape(plan);
  const bool asked = shape.target.parameters.at("judged") == "answers";
  XF_CHECK(!prompt.empty(), UserError, "{} is missing: the text that {}", option,
           asked ? "the question is about" : "is to be summarised");
  XF_CHECK(asked || arguments.question.empty(), UserError, "--question: {} summarises, and is asked nothing",
           plan.task);
  XF_CHECK(!asked || !arguments.question.empty(), UserError, "--question is missing: what is asked about the text");
  std::vector<uint16_t> ids;
  if (asked) ids = data::question_source(arguments.question, prompt, shape.max_len);
  else append_bytes(ids, std::string_view(prompt).substr(0, static_cast<size_t>(shape.max_len)));
  const size_t all = prompt.size() + (asked ? arguments.question.size() + 1 : 0);
  if (ids.size() < all) cli::note(fmt::format("the model reads {} symbols of the {} that were given", ids.size(), all));
  return ids;
}

std::string shown_bytes(const std::string& bytes) {
  cli::ByteText text;
  std::string result = text.add(bytes);
  return result + text.rest();
}

}  // namespace

int write_text(const RunPlan& plan, const std::string& run, const std::string& option, const std::string& prompt,
               const WriteArguments& arguments, const ComputeArguments& compute, bool json) {
  const std::vector<uint16_t> source = source_of(plan, option, prompt, arguments);
  const training::Weights weights = training::read_weights(run, [](const std::string& text) { cli::note(text); });
  const at::Device device = compute.start();
  kernels::set_policy(kernels::parse_policy(compute.kernels));
  const auto model = plan::build_model(plan);
  training::load_weights(*model, weights);
  model->to(device);
  model->eval();
  auto* const writer = dynamic_cast<models::WritingModel*>(model.get());
  XF_ASSERT(writer != nullptr, "a model that writes no text");
  models::SearchOptions search = writer->search();
  search.beams = arguments.beams.value_or(search.beams);
  search.length_penalty = arguments.length_penalty.value_or(search.length_penalty);

  const int64_t places = plan::padded_len(plan), read = static_cast<int64_t>(source.size());
  models::ModelInput input{at::zeros({1, 2, places}, at::kLong), at::zeros({1, 2, places}, at::kBool)};
  for (int64_t i = 0; i < read; ++i) input.tokens[0][0][i] = static_cast<int64_t>(source[static_cast<size_t>(i)]);
  input.key_valid[0][0].narrow(0, 0, read).fill_(true);
  input.tokens = input.tokens.to(device);
  input.key_valid = input.key_valid.to(device);

  cli::ByteText printer;
  std::function<void(const std::vector<int64_t>&)> next;
  if (!json && search.beams == 1)
    next = [&](const std::vector<int64_t>& classes) {
      if (classes.front() <= kEndClass) return;
      fmt::print("{}", printer.add(std::string(1, static_cast<char>(classes.front() - 1))));
      std::fflush(stdout);
    };
  const auto start = std::chrono::steady_clock::now();
  const models::WrittenText written = models::write_texts(*writer, input, search, next).front();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::vector<int64_t> ids;
  for (const int64_t symbol : written.classes) ids.push_back(symbol + kEndId);
  const std::string text = bytes_of_ids(ids);
  if (!json) fmt::print("{}\n", next ? printer.rest() : shown_bytes(text));
  cli::note(fmt::format("{} symbols in {}: {:.1f} symbols/s", written.classes.size(), format_duration(seconds.count()),
                        static_cast<double>(written.classes.size()) / seconds.count()));
  if (!json) return 0;
  std::vector<int> bytes;
  for (const char byte : text) bytes.push_back(static_cast<uint8_t>(byte));
  Json answer{{"run", as_utf8(run)}, {"task", plan.task}, {"weights_sha256", weights.sha256}};
  answer["search"] = {{"beams", search.beams}, {"length_penalty", search.length_penalty}};
  answer["prompt"] = shown_bytes(prompt);
  if (!arguments.question.empty()) answer["question"] = shown_bytes(arguments.question);
  answer.update({{"text", shown_bytes(text)},
                 {"bytes", bytes},
                 {"ended", written.classes.back() == kEndClass},
                 {"log_probability", written.log_probability},
                 {"score", written.score}});
  fmt::print("{}\n", answer.dump(2));
  return 0;
}

}  // namespace xformer::engine
