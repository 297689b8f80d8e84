#include "training/run_directory.h"

#include <algorithm>
#include <charconv>

#include "core/error.h"
#include "core/hash.h"
#include "core/names.h"
#include "core/text.h"
#include "training/record.h"

namespace xformer::training {

namespace {

constexpr size_t kLogTail = 4096;  // bytes that hold a line of log.jsonl, and more

// What a run writes beside its plan, record and checkpoints.
constexpr const char* kRunFiles[] = {"model.safetensors", "predictions.csv", "log.jsonl"};

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

int64_t logged_step(const Path& run_folder) {
  std::error_code ignored;
  const Path path = run_folder / "log.jsonl";
  if (!std::filesystem::exists(path, ignored)) return 0;
  std::string text = read_file(path);
  if (text.size() > kLogTail) text.erase(0, text.size() - kLogTail);
  int64_t step = 0;
  for (const std::string_view line : split(text, '\n')) {
    const Json entry = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (entry.is_object()) step = entry.value("step", step);
  }
  return step;
}

// What of a run's files is in a folder that has no plan: somebody else's, or of a run that nothing is known of.
std::string file_without_plan(const Path& folder) {
  std::error_code ignored;
  for (const char* name : kRunFiles)
    if (std::filesystem::exists(folder / name, ignored)) return name;
  return checkpoint_steps(folder).empty() ? "" : "checkpoints";
}

RunStanding standing_of(const Path& folder, const RunPlan& plan, Resume resume) {
  if (!std::filesystem::exists(folder / "plan.json")) {
    XF_CHECK(resume != Resume::kMust, UserError, "--resume must: {} holds no run to go on with", folder.string());
    const std::string found = file_without_plan(folder);
    if (!found.empty() && resume == Resume::kOverwrite) return {Standing::kReplaced};
    XF_CHECK(found.empty(), UserError,
             "{} has {}, which a run would write over, and no plan.json that says what it is of; give another --out, "
             "or --overwrite to lose it",
             folder.string(), found);
    check_folder_can_be_made(folder, "the run directory");  // before the data is made ready, which may take a while
    return {};
  }
  if (resume == Resume::kOverwrite) return {Standing::kReplaced};
  const std::vector<int64_t> checkpoints = checkpoint_steps(folder);
  const int64_t step = checkpoints.empty() ? 0 : checkpoints.front();
  const bool begun = step > 0 || logged_step(folder) > 0;
  const auto differences = plan_differences(read_plan(folder), plan);
  if (!begun && resume != Resume::kMust && (!differences.empty() || resume == Resume::kNever))
    return {Standing::kReplaced};
  XF_CHECK(differences.empty(), UserError,
           "{} holds a run of another plan; give another --out, or --overwrite to lose that run. What differs:\n  {}",
           folder.string(), fmt::join(differences, "\n  "));
  XF_CHECK(resume != Resume::kNever, UserError,
           "--resume never: {} already holds a run of this plan; give another --out, or --overwrite to lose that run",
           folder.string());
  return {read_run_record(folder / "record.json").completed() ? Standing::kFinished : Standing::kGoesOn, step};
}

RunDirectory::RunDirectory(Path folder, const RunPlan& plan, Resume resume,
                           const std::function<void(const std::string&)>& warn)
    : folder_(std::move(folder)), must_go_on_(resume == Resume::kMust), warn_(warn) {
  static_cast<void>(standing_of(folder_, plan, resume));
  std::error_code error;
  std::filesystem::create_directories(folder_ / "checkpoints", error);
  XF_CHECK(!error, ResourceError, "{}: cannot make the run directory: {}", folder_.string(), error.message());
  if (auto lock = FileLock::try_lock(folder_ / "lock")) lock_.emplace(std::move(*lock));
  XF_CHECK(lock_.has_value(), UserError,
           "{}: another process is running in this directory; give another --out, or wait for it", folder_.string());
  const Standing standing = standing_of(folder_, plan, resume).kind;  // nobody changes it from now on
  if (standing == Standing::kReplaced) remove_run();
  if (standing == Standing::kNew || standing == Standing::kReplaced)
    write_file_atomically(folder_ / "plan.json", plan.to_json().dump(2) + "\n");
  if (standing == Standing::kFinished) finished_ = read_run_record(record_path());
  remove_unfinished_files();
  log_.emplace(folder_ / "log.jsonl");
}

void RunDirectory::remove_run() const {
  // The plan last: whoever is stopped on the way leaves a run of that plan, never checkpoints that seem to be
  // another's.
  std::filesystem::remove(folder_ / "record.json");
  for (const int64_t step : checkpoint_steps(folder_)) std::filesystem::remove(checkpoint_path(folder_, step));
  std::vector<Path> events;
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) events.push_back(entry.path());
  for (const Path& path : events) std::filesystem::remove(path);
  for (const char* name : kRunFiles) std::filesystem::remove(folder_ / name);
  std::filesystem::remove(folder_ / "plan.json");
}

std::optional<Checkpoint> newest_checkpoint(const Path& run_folder,
                                            const std::function<void(const std::string&)>& warn) {
  const std::vector<int64_t> steps = checkpoint_steps(run_folder);
  for (const int64_t step : steps) {
    try {
      return read_checkpoint(checkpoint_path(run_folder, step));
    } catch (const DataError& damaged) {
      warn(fmt::format("{}; {}", damaged.what(),
                       step == steps.back() ? "there is none before it" : "falling back to the checkpoint before it"));
    }
  }
  return std::nullopt;
}

std::optional<Checkpoint> RunDirectory::latest_checkpoint() const {
  std::optional<Checkpoint> checkpoint = newest_checkpoint(folder_, warn_);
  XF_CHECK(checkpoint || !must_go_on_, UserError,
           "--resume must: {} holds no whole checkpoint to go on from; without --resume the same command begins anew",
           folder_.string());
  return checkpoint;
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

void RunDirectory::log(Json entry) {
  entry["time"] = utc_now();
  log_->write(entry.dump() + "\n");
}

}  // namespace xformer::training
