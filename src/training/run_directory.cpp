#include "training/run_directory.h"

#include <algorithm>
#include <charconv>

#include "core/error.h"
#include "core/hash.h"
#include "core/names.h"

namespace xformer::training {

namespace {

// Step numbers of checkpoints/step-*.safetensors, newest first.
std::vector<int64_t> checkpoint_steps(const Path& folder) {
  std::vector<int64_t> steps;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "checkpoints", ignored)) {
    const std::string stem = entry.path().stem().string();
    int64_t step = 0;
    if (entry.path().extension() != ".safetensors" || !stem.starts_with("step-")) continue;
    const auto [end, error] = std::from_chars(stem.data() + 5, stem.data() + stem.size(), step);
    if (error == std::errc() && end == stem.data() + stem.size()) steps.push_back(step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

Path checkpoint_path(const Path& folder, int64_t step) {
  return folder / "checkpoints" / fmt::format("step-{:08}.safetensors", step);
}

// Of what the header says: the hash in a tensor file is of the content behind it.
std::string header_sha256(const std::string& state, const std::map<std::string, at::Tensor>& tensors) {
  std::string text = state;
  for (const auto& [name, tensor] : tensors)
    text += fmt::format("\n{} {} {}", name, at::toString(tensor.scalar_type()), fmt::join(tensor.sizes().vec(), ","));
  return sha256(text);
}

Checkpoint read_checkpoint(const Path& path) { return as_checkpoint(read_tensor_file(path), path); }

}  // namespace

bool is_checkpoint(const TensorFile& file) { return file.metadata.contains("header_sha256"); }

Checkpoint as_checkpoint(TensorFile file, const Path& path) {
  const auto text = file.metadata.find("state");
  XF_CHECK(text != file.metadata.end() && file.metadata.contains("content_sha256"), DataError,
           "{}: not a checkpoint: its header has no state", path.string());
  const auto hash = file.metadata.find("header_sha256");
  XF_CHECK(hash != file.metadata.end() && hash->second == header_sha256(text->second, file.tensors), DataError,
           "{}: damaged: its header is not what was written", path.string());
  Checkpoint result;
  result.state = parse_training_state(Json::parse(text->second, nullptr, /*allow_exceptions=*/false), path.string());
  result.tensors = std::move(file.tensors);
  return result;
}

Resume parse_resume(const std::string& name) {
  return static_cast<Resume>(choice("", "value of --resume", name, {"auto", "never", "must"}));
}

Json read_plan(const Path& run_folder) {
  XF_CHECK(std::filesystem::exists(run_folder / "plan.json"), UserError, "{} is no run directory: it has no plan.json",
           run_folder.string());
  return read_json_file(run_folder / "plan.json");
}

RunDirectory::RunDirectory(Path folder, const RunPlan& plan, Resume resume,
                           const std::function<void(const std::string&)>& warn)
    : folder_(std::move(folder)), warn_(warn) {
  std::error_code error;
  const bool existed = std::filesystem::exists(folder_ / "plan.json");
  XF_CHECK(existed || resume != Resume::kMust, UserError, "--resume must: {} holds no run to go on with",
           folder_.string());
  std::filesystem::create_directories(folder_ / "checkpoints", error);
  XF_CHECK(!error, ResourceError, "{}: cannot make the run directory: {}", folder_.string(), error.message());
  if (auto lock = FileLock::try_lock(folder_ / "lock")) lock_.emplace(std::move(*lock));
  XF_CHECK(lock_.has_value(), UserError,
           "{}: another process is running in this directory; give another --out, or wait for it", folder_.string());
  if (existed) {
    const auto differences = plan_differences(read_plan(folder_), plan);
    XF_CHECK(differences.empty(), UserError, "{} holds a run of another plan; give another --out. What differs:\n  {}",
             folder_.string(), fmt::join(differences, "\n  "));
    XF_CHECK(resume != Resume::kNever, UserError,
             "--resume never: {} already holds a run of this plan; give another --out or remove it", folder_.string());
    if (RunRecord record = read_run_record(record_path()); record.completed()) finished_ = std::move(record);
  } else {
    write_file_atomically(folder_ / "plan.json", plan.to_json().dump(2) + "\n");
  }
  remove_unfinished_files();
  log_.emplace(folder_ / "log.jsonl");
}

std::optional<Checkpoint> newest_checkpoint(const Path& run_folder,
                                            const std::function<void(const std::string&)>& warn) {
  for (const int64_t step : checkpoint_steps(run_folder)) {
    try {
      return read_checkpoint(checkpoint_path(run_folder, step));
    } catch (const DataError& damaged) {
      warn(fmt::format("{}; falling back to the checkpoint before it", damaged.what()));
    }
  }
  return std::nullopt;
}

void RunDirectory::remove_unfinished_files() const {
  // This process holds the lock, so whoever began these files was killed.
  for (const Path& folder : {folder_, folder_ / "checkpoints"}) {
    std::vector<Path> unfinished;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with('.') && name.find(".tmp-") != std::string::npos) unfinished.push_back(entry.path());
    }
    for (const Path& path : unfinished) std::filesystem::remove(path);
  }
}

void RunDirectory::save_checkpoint(const NamedTensors& tensors, TrainingState& state) {
  sync_log();
  state.log_bytes = log_bytes();
  const Path path = checkpoint_path(folder_, state.step);
  const std::string text = to_json(state).dump();
  write_tensor_file(path, tensors,
                    {{"state", text}, {"header_sha256", header_sha256(text, {tensors.begin(), tensors.end()})}});
  static_cast<void>(read_checkpoint(path));  // throws before anything older is removed
  const std::vector<int64_t> steps = checkpoint_steps(folder_);
  // Newer ones are damaged, or the run would have gone on from them; they must not count as the previous one.
  int older = 0;
  for (const int64_t other : steps)
    if (other > state.step || (other < state.step && ++older > 1))
      std::filesystem::remove(checkpoint_path(folder_, other));
}

void RunDirectory::log(const Json& entry) { log_->write(entry.dump() + "\n"); }

}  // namespace xformer::training
