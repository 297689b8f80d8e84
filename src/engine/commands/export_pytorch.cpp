// `xformer export-pytorch RUN_DIR FILE.py`: a run's model as a Python file for PyTorch, with its weights beside it.
#include <fmt/format.h>

#include <filesystem>

#include "cli/printed.h"
#include "core/error.h"
#include "core/files.h"
#include "engine/commands.h"
#include "inspect/pytorch_module.h"
#include "plan/options.h"
#include "training/run_directory.h"

namespace xformer::engine {

namespace {

struct ExportArguments {
  std::string run, file;
};

int export_pytorch(const ExportArguments& arguments) {
  const Path file = arguments.file, weights_file = Path(file).replace_extension(".safetensors");
  XF_CHECK(file.extension() == ".py", UserError, "{}: expected the name of a Python file, e.g. model.py",
           file.string());
  for (const Path& path : {file, weights_file})
    XF_CHECK(!std::filesystem::exists(path), UserError, "{} is there already", path.string());
  const RunPlan plan = plan::stored_plan(training::read_plan(arguments.run));
  const training::Weights weights =
      training::read_weights(arguments.run, [](const std::string& text) { cli::note(text); });
  const inspect::PytorchModule module = inspect::pytorch_module(plan, weights, file.stem().string());
  write_tensor_file(weights_file, module.tensors, {{"plan", plan.to_json().dump()}});
  write_file_atomically(file, module.text);
  fmt::print("{}\n{}\n", file.string(), weights_file.string());
  return 0;
}

}  // namespace

std::function<int()> add_export_pytorch(CLI::App& program) {
  const auto arguments = std::make_shared<ExportArguments>();
  CLI::App& command =
      *program.add_subcommand("export-pytorch", "a run's model as a plain PyTorch module, in a Python file of its own");
  command.add_option("RUN_DIR", arguments->run, "directory of the run")->required();
  command.add_option("FILE", arguments->file, "e.g. model.py; the weights are written beside it")->required();
  return [arguments] { return export_pytorch(*arguments); };
}

}  // namespace xformer::engine
