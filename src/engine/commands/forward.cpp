// `xformer forward`: a run's model, one attention core or one mixer on tensors from a file.
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "cli/printed.h"
#include "core/code_version.h"
#include "core/utf8.h"
#include "engine/commands.h"
#include "engine/plan_arguments.h"
#include "inspect/forward_attention.h"
#include "inspect/forward_model.h"
#include "kernels/policy.h"
#include "training/run_directory.h"

namespace xformer::engine {

namespace {

struct ForwardArguments {
  std::string run, model, core, mixer;  // exactly one
  std::string task, protocol, weights, input, output;
  std::vector<std::string> settings, captures;
  int64_t seed = 0, heads = 0, head_dim = 0, length = 0, max_len = 0, pinned = 0;
  bool causal = false, gradients = false, tells_inputs = false, lists_captures = false, json = false;
  ComputeArguments compute;

  const CLI::Option* seed_option = nullptr;
  struct Belongs {
    const CLI::Option* option;
    std::vector<std::string> to;  // of RUN_DIR, --model, --core, --mixer
  };
  std::vector<Belongs> belongs;

  [[nodiscard]] bool whole_model() const { return core.empty() && mixer.empty(); }
  // What is run, as the option that names it.
  [[nodiscard]] std::string mode() const {
    return !core.empty() ? "--core" : !mixer.empty() ? "--mixer" : !model.empty() ? "--model" : "RUN_DIR";
  }
};

void check_words(const ForwardArguments& arguments) {
  arguments.compute.check();
  int given = 0;
  for (const std::string* name : {&arguments.run, &arguments.model, &arguments.core, &arguments.mixer})
    given += name->empty() ? 0 : 1;
  XF_CHECK(given == 1, UserError, "expected one of RUN_DIR, --model NAME, --core NAME and --mixer NAME, got {}",
           given == 0 ? "none" : "several");
  for (const auto& [option, owners] : arguments.belongs)
    XF_CHECK(option->count() == 0 || std::find(owners.begin(), owners.end(), arguments.mode()) != owners.end(),
             UserError, "{} belongs to {}, not to {}", option->get_name(), fmt::join(owners, ", "), arguments.mode());
  if (arguments.mode() == "--model") {
    XF_CHECK(!arguments.task.empty(), UserError, "--task is missing, e.g. --task listops (`xformer list tasks`)");
    XF_CHECK(arguments.lists_captures || !arguments.weights.empty() || arguments.seed_option->count() > 0, UserError,
             "--model needs --weights FILE, or --seed N for the values that a training with this seed begins with");
  }
  if (arguments.tells_inputs || arguments.lists_captures) return;
  XF_CHECK(!arguments.input.empty(), UserError, "--input is missing: a safetensors file{}",
           arguments.whole_model() ? " with tokens [b,n]" : "; --template prints what it must hold");
  XF_CHECK(!arguments.output.empty(), UserError, "--output is missing: the safetensors file to write");
}

// What can be known of the output before anything is computed.
void check_output(const std::string& output, const std::string& input) {
  const std::string kind = kind_of_file(output);
  if (kind == "a pipe") return;
  const Path folder = std::filesystem::absolute(output).parent_path();
  XF_CHECK(std::filesystem::is_directory(folder), UserError, "--output: there is no folder {}", folder.string());
  XF_CHECK(kind.empty() || kind == "a plain file", UserError,
           "--output: expected a plain file, a pipe or nothing there, but {} is {}", output, kind);
  XF_CHECK(::access(folder.c_str(), W_OK) == 0, ResourceError, "--output: no permission to write in {}",
           folder.string());
  std::error_code not_there;
  XF_CHECK(!std::filesystem::equivalent(input, output, not_there), UserError,
           "--output: {} is the input; it would be lost", output);
}

inspect::AttentionForward attention_request(const ForwardArguments& arguments) {
  inspect::AttentionForward request;
  request.mixer = arguments.core.empty();
  request.attention = attention::resolve(request.mixer ? arguments.mixer : arguments.core);
  RunPlan plan;
  plan.options = resolve_options({{"attention", request.attention.name, request.attention.options()}},
                                 {settings_layer(arguments.settings)});
  request.options = plan.group("attention");
  request.heads = arguments.heads;
  request.head_dim = arguments.head_dim;
  request.length = arguments.length;
  request.max_len = arguments.max_len;
  request.pinned = arguments.pinned;
  request.causal = arguments.causal;
  if (arguments.seed_option->count() > 0) request.seed = arguments.seed;
  request.view = {arguments.captures, arguments.gradients};
  return request;
}

inspect::ModelForward model_request(const ForwardArguments& arguments) {
  const auto say = [](const std::string& text) { cli::note(text); };
  inspect::ModelForward request;
  if (!arguments.run.empty()) {
    request.plan = plan::stored_plan(training::read_plan(arguments.run));
    request.weights = training::read_weights(arguments.run, say);
  } else {
    plan::PlanRequest words;
    words.task = arguments.task;
    words.model = arguments.model;
    words.protocol = arguments.protocol;
    words.seed = arguments.seed;
    words.layers.push_back(settings_layer(arguments.settings));
    request.plan = plan::resolve_plan(words);
    if (!arguments.weights.empty()) request.weights = training::read_weights(arguments.weights, say);
  }
  request.view = {arguments.captures, arguments.gradients};
  return request;
}

void print_template(const inspect::AttentionForward& request, const inspect::TensorMap& inputs, bool json) {
  const std::vector<inspect::ExpectedTensor> expected = inspect::expected_tensors(request, inputs);
  if (json) {
    Json tensors = Json::array();
    for (const inspect::ExpectedTensor& tensor : expected)
      tensors.push_back({{"name", tensor.name},
                         {"kind", tensor.parameter ? "parameter" : "input"},
                         {"needed", tensor.needed},
                         {"shape", tensor.shape},
                         {"type", tensor.type_text()},
                         {"meaning", tensor.meaning}});
    fmt::print(
        "{}\n",
        Json{{"name", request.attention.name}, {"role", request.mixer ? "mixer" : "core"}, {"tensors", tensors}}.dump(
            2));
    return;
  }
  size_t names = 0, shapes = 0, types = 0;
  for (const inspect::ExpectedTensor& tensor : expected) {
    names = std::max(names, tensor.name.size());
    shapes = std::max(shapes, tensor.shape_text().size());
    types = std::max(types, tensor.type_text().size());
  }
  for (const inspect::ExpectedTensor& tensor : expected)
    fmt::print("{:<{}}  {:<{}}  {:<{}}  {}{}\n", tensor.name, names, tensor.type_text(), types, tensor.shape_text(),
               shapes, tensor.needed ? "" : "(optional) ", tensor.meaning);
}

// Whether that is where our own words go (/dev/stdout): then they have to go elsewhere.
bool is_standard_output(const std::string& path) {
  struct stat there {
  }, ours{};
  return ::stat(path.c_str(), &there) == 0 && ::fstat(STDOUT_FILENO, &ours) == 0 && there.st_dev == ours.st_dev &&
         there.st_ino == ours.st_ino;
}

void report(const inspect::ForwardResult& result, const std::string& output, bool json, std::FILE* out) {
  for (const std::string& note : result.notes) cli::note(fmt::format("note: {}", note));
  Json tensors = Json::array();
  for (const auto& [name, tensor] : result.tensors) {
    const std::string type = safetensors_type(tensor.scalar_type());
    if (json) tensors.push_back({{"name", name}, {"type", type}, {"shape", tensor.sizes().vec()}});
    else fmt::print(out, "{} {} [{}]\n", name, type, fmt::join(tensor.sizes(), ","));
  }
  if (json)
    fmt::print(out, "{}\n", Json{{"output", as_utf8(output)}, {"notes", result.notes}, {"tensors", tensors}}.dump(2));
}

// The names that --capture knows, in the order in which a forward pass comes by them, with type and shape. What is not
// given is zeros and drawn parameters.
int list_captures(const ForwardArguments& arguments) {
  inspect::TensorMap inputs;
  if (!arguments.input.empty()) inputs = read_tensor_file(arguments.input).tensors;
  const auto captured = [&](auto request, const auto& run, const std::vector<inspect::ExpectedTensor>& expected) {
    if (inputs.empty()) inputs = inspect::blank_inputs(expected);
    request.view = {{"*"}, false};
    request.device = arguments.compute.start();
    return run(request, inputs);
  };
  inspect::ForwardResult result;
  if (arguments.whole_model()) {
    const inspect::ModelForward request = model_request(arguments);
    result = captured(request, inspect::forward_model, inspect::expected_tensors(request));
  } else {
    inspect::AttentionForward request = attention_request(arguments);
    if (!request.seed) request.seed = 0;
    result = captured(request, inspect::forward_attention, inspect::expected_tensors(request, inputs));
  }
  NamedTensors named;
  for (const auto& [name, tensor] : result.tensors)
    if (std::find(result.captured.begin(), result.captured.end(), name) != result.captured.end())
      named.emplace_back(name, tensor);
  result.tensors = std::move(named);
  result.notes.clear();
  report(result, "", arguments.json, stdout);
  return 0;
}

int forward(const ForwardArguments& arguments) {
  check_words(arguments);
  if (arguments.lists_captures) return list_captures(arguments);
  if (arguments.tells_inputs) {
    const auto inputs = arguments.input.empty() ? inspect::TensorMap() : read_tensor_file(arguments.input).tensors;
    print_template(attention_request(arguments), inputs, arguments.json);
    return 0;
  }
  check_output(arguments.output, arguments.input);
  inspect::ForwardResult result;
  const auto start = [&] {
    kernels::set_policy(kernels::parse_policy(arguments.compute.kernels));
    return arguments.compute.start();
  };
  if (arguments.whole_model()) {
    inspect::ModelForward request = model_request(arguments);
    const TensorFile input = read_tensor_file(arguments.input);
    request.device = start();
    result = inspect::forward_model(request, input.tensors);
  } else {
    inspect::AttentionForward request = attention_request(arguments);
    const TensorFile input = read_tensor_file(arguments.input);
    request.device = start();
    result = inspect::forward_attention(request, input.tensors);
  }
  result.metadata["xformer"] = fmt::format("{} ({})", code_version().version, code_version().commit);
  std::FILE* const out = is_standard_output(arguments.output) ? stderr : stdout;
  write_tensor_file(arguments.output, result.tensors, result.metadata);
  report(result, arguments.output, arguments.json, out);
  return 0;
}

}  // namespace

std::function<int()> add_forward(CLI::App& program) {
  const auto arguments = std::make_shared<ForwardArguments>();
  ForwardArguments& a = *arguments;
  CLI::App& command = *program.add_subcommand(
      "forward", "a model, an attention core or a mixer on your own tensors, to compare with your own code");
  const auto belongs = [&](const CLI::Option* option, std::vector<std::string> to) {
    a.belongs.push_back({option, std::move(to)});
    return option;
  };
  command.add_option("RUN_DIR", a.run, "directory of a run: its model with its weights")->group("What");
  command.add_option("--model", a.model, "[family/]attention, with --task and --weights")->group("What");
  command.add_option("--core", a.core, "one attention core on q, k, v [b,h,n,d]")->group("What");
  command.add_option("--mixer", a.mixer, "one attention with its projections on x [b,n,m]")->group("What");
  belongs(command.add_option("--task", a.task, "of --model, e.g. listops")->group("What"), {"--model"});
  belongs(command.add_option("--protocol", a.protocol, "of --model; default: the task's first")->group("What"),
          {"--model"});
  belongs(command.add_option("--weights", a.weights, "weights file, checkpoint or run's directory, of --model")
              ->type_name("FILE")
              ->group("What"),
          {"--model"});
  belongs(command.add_option("--set", a.settings, "option, key=value; again for more (`xformer describe NAME`)")
              ->type_name("KEY=VALUE")
              ->allow_extra_args(true)
              ->group("What"),
          {"--model", "--core", "--mixer"});
  a.seed_option = belongs(command
                              .add_option("--seed", a.seed,
                                          "draw the parameters that are not given, as training "
                                          "with this seed does, and write them to the output too")
                              ->check(whole_number(0))
                              ->group("What"),
                          {"--model", "--core", "--mixer"});
  const auto size = [&](const char* name, int64_t& into, int64_t least, const char* help) {
    belongs(command.add_option(name, into, help)->check(whole_number(least))->group("Sizes of a core or mixer"),
            {"--core", "--mixer"});
  };
  size("--heads", a.heads, 1, "heads; default: those of q, 2 for x");
  size("--head-dim", a.head_dim, 1, "width of a head; default: that of q, that of x / heads");
  size("--length", a.length, 1, "tokens that --template assumes; default: the input's, else 2048");
  size("--max-len", a.max_len, 1, "longest length a fixed-length attention is built for; default: the input's");
  size("--pinned", a.pinned, 0, "leading tokens that are no part of the sequence (CLS); default: 0");
  belongs(command.add_flag("--causal", a.causal, "no token sees a later one")->group("Sizes of a core or mixer"),
          {"--core", "--mixer"});
  command.add_option("--input", a.input, "safetensors file of inputs and parameters")
      ->type_name("FILE")
      ->group("Tensors");
  command.add_option("--output", a.output, "safetensors file to write")->type_name("FILE")->group("Tensors");
  command
      .add_option(
          "--capture", a.captures,
          "write intermediate tensors of these names (--list-captures) too; * is any text: '*' for all, 'layer0.*'")
      ->type_name("PATTERN")
      ->allow_extra_args(false)
      ->delimiter(',')
      ->group("Tensors");
  command
      .add_flag("--grad", a.gradients, "write the gradients of inputs, parameters and captured tensors as grad.NAME")
      ->group("Tensors");
  command.add_flag("--list-captures", a.lists_captures, "print the names that --capture knows here, and stop")
      ->group("Tensors");
  belongs(command.add_flag("--template", a.tells_inputs, "print what --input must hold, and stop")->group("Tensors"),
          {"--core", "--mixer"});
  a.compute.add_to(command, /*batches=*/false);
  command.add_flag("--json", a.json, "print JSON");
  return [arguments] { return forward(*arguments); };
}

}  // namespace xformer::engine
