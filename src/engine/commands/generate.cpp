// `xformer generate RUN_DIR`: texts that a trained run continues, images that it draws (docs/generate.md).
#include "inspect/generate.h"
#include "cli/printed.h"

#include <unistd.h>

#include <charconv>
#include <chrono>
#include <optional>

#include "cli/byte_text.h"
#include "cli/progress.h"
#include "core/text.h"
#include "core/utf8.h"
#include "data/text/stream_symbols.h"
#include "engine/commands.h"
#include "engine/plan_arguments.h"
#include "engine/written_text.h"
#include "kernels/policy.h"
#include "training/run_directory.h"
#include "training/weights.h"

namespace xformer::engine {

namespace {

constexpr int64_t kTextLength = 256;

struct GenerateArguments {
  std::string run, prompt, prompt_file, pictures;
  int64_t count = 1, length = 0, seed = 0;
  inspect::SamplingOptions sampling;
  WriteArguments writing;
  ComputeArguments compute;
  bool json = false;
  std::vector<const CLI::Option*> drawing;                    // what --greedy leaves without a meaning
  std::vector<const CLI::Option*> not_writing, writing_only;  // of runs that write a text about another
};

constexpr const char* kTasks =
    "bytes/<name>, cifar10-density, image-density, imagenet64-density, summarise/<name> or qa/<name>";

// What the run's task has to say.
struct SequenceKind {
  const data::DatasetDescriptor* dataset = nullptr;
  data::DataShape shape;
  data::StreamSymbols symbols{false};
  std::string symbol;  // "byte"
  bool images = false;
};

SequenceKind kind_of(const RunPlan& plan, const std::string& run) {
  SequenceKind kind;
  kind.dataset = &data::find_dataset(plan.task);
  kind.shape = plan::planned_shape(plan);
  const data::TargetSpec& target = kind.shape.target;
  kind.symbol = target.parameters.value("symbol", "");
  kind.images = kind.symbol == "dim" && kind.dataset->picture;
  XF_CHECK(
      kind.images || kind.symbol == "byte" || kind.symbol == "character", UserError,
      "{} is a run of {} ({}); expected one of a task that predicts its own sequence byte by byte or writes a text: {}",
      run, plan.task, target.text, kTasks);
  if (kind.images) kind.symbol = "byte";
  kind.symbols = data::StreamSymbols(kind.symbol == "character");
  return kind;
}

// Its option and its bytes.
std::pair<std::string, std::string> read_prompt(const GenerateArguments& arguments) {
  XF_CHECK(arguments.prompt.empty() || arguments.prompt_file.empty(), UserError,
           "--prompt and --prompt-file: one of them");
  if (arguments.prompt_file.empty()) return {"--prompt", arguments.prompt};
  return {"--prompt-file", read_file(arguments.prompt_file)};
}

inspect::GenerationRequest request_of(const GenerateArguments& arguments, const SequenceKind& kind, int64_t places,
                                      const std::string& option, const std::string& prompt) {
  inspect::GenerationRequest request;
  request.places = places;
  request.first_id = kind.shape.vocabulary - kind.shape.target.classes();
  // Images begin with the id in front of all; a text's prompt is a window of some longer text.
  if (kind.images || prompt.empty()) request.begin.push_back(0);
  for (size_t i = 0; i < prompt.size(); ++i) {
    const int16_t symbol = kind.symbols.of(static_cast<uint8_t>(prompt[i]));
    XF_CHECK(symbol >= 0, UserError, "{}: byte {} is {}, expected a blank or a letter from a to z", option, i,
             xformer::quoted(prompt.substr(i, 1)));
    request.begin.push_back(symbol + request.first_id);
  }
  XF_CHECK(static_cast<int64_t>(request.begin.size()) <= places, UserError,
           "{}: the model reads {} {}s at once; expected at most {}, got {}", option, places, kind.symbol,
           places - (kind.images ? 1 : 0), prompt.size());
  request.count = arguments.count;
  request.length = arguments.length > 0 ? arguments.length
                   : kind.images        ? places - static_cast<int64_t>(prompt.size())
                                        : kTextLength;
  request.sampling = arguments.sampling;
  request.seed = static_cast<uint64_t>(arguments.seed);
  return request;
}

void check_words(const GenerateArguments& arguments, const SequenceKind& kind, const std::string& task) {
  for (const CLI::Option* option : arguments.drawing)
    XF_CHECK(!arguments.sampling.greedy || option->count() == 0, UserError,
             "{} has no meaning beside --greedy, which takes the likeliest {}", option->get_name(), kind.symbol);
  XF_CHECK(arguments.sampling.top_k <= kind.shape.target.classes(), UserError, "--top-k: there are {} {}s, got {}",
           kind.shape.target.classes(), kind.symbol, arguments.sampling.top_k);
  XF_CHECK(!kind.images || arguments.length == 0, UserError, "--length: an image of {} has its own length", task);
  XF_CHECK(kind.images || arguments.pictures.empty(), UserError, "--png: a run of {} makes texts", task);
  XF_CHECK(!kind.images || !arguments.pictures.empty(), UserError,
           "--png DIR is missing: the folder for the images of {}", task);
  if (!kind.images) return;
  std::error_code error;
  std::filesystem::create_directories(arguments.pictures, error);
  XF_CHECK(!error, ResourceError, "--png: cannot make the folder {}: {}", arguments.pictures, error.message());
}

Path write_image(const GenerateArguments& arguments, const SequenceKind& kind, size_t number,
                 const std::string& bytes) {
  std::vector<int32_t> labels;
  for (const char byte : bytes) labels.push_back(static_cast<uint8_t>(byte));
  data::Example example;
  example.further = {labels};
  data::DataInfo info;
  info.shape = kind.shape;
  const Path file =
      Path(arguments.pictures) / fmt::format("{}-seed{}-{}.png", kind.dataset->name, arguments.seed, number);
  write_file_atomically(file, readers::encode_png(kind.dataset->picture(example, info)));
  return file;
}

std::string shown(const std::string& bytes) {
  ByteText text;
  std::string result = text.add(bytes);
  return result + text.rest();
}

// The first text while it is made, the others behind it.
class TextPrinter {
 public:
  TextPrinter(const std::string& prompt, size_t count) : prompt_(prompt), count_(count) {
    begin(0);
    print(prompt);
  }
  void print(std::string_view bytes) {
    fmt::print("{}", text_.add(bytes));
    std::fflush(stdout);
  }
  void finish(const std::vector<std::string>& texts) {
    fmt::print("{}\n", text_.rest());
    for (size_t i = 1; i < texts.size(); ++i) {
      begin(i);
      fmt::print("{}\n", shown(prompt_ + texts[i]));
    }
  }

 private:
  void begin(size_t number) const {
    if (count_ > 1) fmt::print("{}--- {} of {}\n", number > 0 ? "\n" : "", number + 1, count_);
  }
  const std::string& prompt_;
  size_t count_;
  ByteText text_;
};

int generate_from_run(const GenerateArguments& arguments) {
  arguments.compute.check();
  const auto [option, prompt] = read_prompt(arguments);
  const RunPlan plan = plan::stored_plan(training::read_plan(arguments.run));
  if (plan::planned_shape(plan).target.kind == "written-text") {
    for (const CLI::Option* one : arguments.not_writing)
      XF_CHECK(one->count() == 0, UserError, "{}: a run of {} writes the text that its search finds (--beams)",
               one->get_name(), plan.task);
    return write_text(plan, arguments.run, option, prompt, arguments.writing, arguments.compute, arguments.json);
  }
  for (const CLI::Option* one : arguments.writing_only)
    XF_CHECK(one->count() == 0, UserError, "{} is for runs of summarise/<name> and qa/<name>; {} is one of {}",
             one->get_name(), arguments.run, plan.task);
  const SequenceKind kind = kind_of(plan, arguments.run);
  inspect::GenerationRequest request = request_of(arguments, kind, plan::padded_len(plan), option, prompt);
  check_words(arguments, kind, plan.task);
  const training::Weights weights =
      training::read_weights(arguments.run, [](const std::string& text) { cli::note(text); });
  request.device = arguments.compute.start();
  kernels::set_policy(kernels::parse_policy(arguments.compute.kernels));
  const auto model = plan::build_model(plan);
  training::load_weights(*model, weights);
  model->to(request.device);

  std::vector<std::string> made(static_cast<size_t>(request.count));
  std::optional<ProgressLine> line;
  std::optional<TextPrinter> printer;
  if (kind.images) line.emplace(terminal_options(STDERR_FILENO));
  else if (!arguments.json) printer.emplace(prompt, made.size());
  request.next = [&](const std::vector<int64_t>& classes) {
    for (size_t i = 0; i < made.size(); ++i) made[i] += kind.symbols.byte(classes[i]);
    if (printer) printer->print(std::string_view(made.front()).substr(made.front().size() - 1));
    if (line)
      line->update(fmt::format("drawing {} images  {}/{} bytes", made.size(), made.front().size(), request.length),
                   static_cast<double>(made.front().size()) / static_cast<double>(request.length));
  };
  const auto start = std::chrono::steady_clock::now();
  inspect::generate(*model, request);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (line) line->clear();
  if (printer) printer->finish(made);

  Json sequences = Json::array();
  for (size_t i = 0; i < made.size(); ++i) {
    std::vector<int> bytes;
    for (const char byte : made[i]) bytes.push_back(static_cast<uint8_t>(byte));
    Json sequence{{"bytes", bytes}};
    if (kind.images) {
      const std::string file = write_image(arguments, kind, i, prompt + made[i]).string();
      sequence["file"] = as_utf8(file);
      if (!arguments.json) fmt::print("{}\n", file);
    } else {
      sequence["text"] = shown(made[i]);
    }
    sequences.push_back(std::move(sequence));
  }
  const double all = static_cast<double>(request.count) * static_cast<double>(request.length);
  cli::note(fmt::format("{0} {1}s in {2}: {3:.1f} {1}s/s", format_count(static_cast<uint64_t>(all)), kind.symbol,
                        format_duration(seconds.count()), all / seconds.count()));
  if (!arguments.json) return 0;
  Json sampling{{"greedy", true}};
  if (!request.sampling.greedy)
    sampling = {{"temperature", request.sampling.temperature}, {"top_p", request.sampling.top_p}};
  if (request.sampling.top_k > 0) sampling["top_k"] = request.sampling.top_k;
  fmt::print("{}\n", Json{{"run", as_utf8(arguments.run)},
                          {"task", plan.task},
                          {"weights_sha256", weights.sha256},
                          {"seed", arguments.seed},
                          {"sampling", sampling},
                          {"prompt", shown(prompt)},
                          {"sequences", sequences}}
                         .dump(2));
  return 0;
}

// For options that take a number above 0, and up to `most`.
CLI::Validator number_above_zero(double most, const std::string& expected) {
  return {[most, expected](std::string& text) -> std::string {
            double value = 0;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            const bool whole = error == std::errc() && end == text.data() + text.size();
            return whole && value > 0 && value <= most ? "" : fmt::format("expected {}, got '{}'", expected, text);
          },
          ""};
}

}  // namespace

std::function<int()> add_generate(CLI::App& program) {
  const auto arguments = std::make_shared<GenerateArguments>();
  GenerateArguments& a = *arguments;
  CLI::App& command = *program.add_subcommand("generate", "texts that a trained run continues, images that it draws");
  command.add_option("RUN_DIR", a.run, fmt::format("directory of a run of {}", kTasks))->required();
  command.add_option("--prompt", a.prompt, "text to be continued, summarised or asked about")->type_name("TEXT");
  command.add_option("--prompt-file", a.prompt_file, "the same, the bytes of a file")->type_name("FILE");
  const auto not_writing = [&](CLI::Option* option) { a.not_writing.push_back(option); };
  const auto writing_only = [&](CLI::Option* option) { a.writing_only.push_back(option); };
  not_writing(command.add_option("--count", a.count, "texts or images")->check(whole_number(1))->capture_default_str());
  not_writing(
      command
          .add_option("--length", a.length, fmt::format("bytes or characters of each text; default: {}", kTextLength))
          ->check(whole_number(1)));
  const auto drawing = [&](CLI::Option* option) {
    a.drawing.push_back(option);
    not_writing(option);
  };
  drawing(command.add_option("--temperature", a.sampling.temperature, "scores are divided by it before all else")
              ->check(number_above_zero(std::numeric_limits<double>::max(), "a number above 0"))
              ->capture_default_str());
  drawing(command.add_option("--top-k", a.sampling.top_k, "draw from so many, the likeliest; default: all")
              ->check(whole_number(1)));
  drawing(command
              .add_option("--top-p", a.sampling.top_p,
                          "draw from the likeliest that have this share together, of those that --top-k leaves")
              ->check(number_above_zero(1, "a number above 0 and up to 1"))
              ->capture_default_str());
  not_writing(command.add_flag("--greedy", a.sampling.greedy, "always the likeliest"));
  drawing(command.add_option("--seed", a.seed, "of the draws")->check(whole_number(0))->capture_default_str());
  not_writing(command.add_option("--png", a.pictures, "folder that images are written into")->type_name("DIR"));
  writing_only(command.add_option("--question", a.writing.question, "of qa/<name>: what is asked about --prompt")
                   ->type_name("TEXT"));
  writing_only(command.add_option("--beams", a.writing.beams, "texts that the search follows; default: the run's")
                   ->check(whole_number(1)));
  writing_only(command
                   .add_option("--length-penalty", a.writing.length_penalty,
                               "of several beams, how far longer texts are preferred; default: the run's")
                   ->check(CLI::NonNegativeNumber));
  a.compute.add_to(command, /*batches=*/false);
  command.add_flag("--json", a.json, "print JSON");
  return [arguments] { return generate_from_run(*arguments); };
}

}  // namespace xformer::engine
