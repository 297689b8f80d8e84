// Weights into models: from files, checkpoints and runs, whole and by matching names; what is refused, and in which
// words.
#include "training/weights.h"

#include <ATen/Functions.h>

#include <catch2/catch.hpp>

#include "core/hash.h"
#include "plan/options.h"
#include "readers/safetensors.h"
#include "run_setting.h"

namespace xformer::training {

namespace {

using Catch::Contains;

RunPlan tiny_plan(const Json& more = Json::object(), const std::string& model = "linear", int64_t seed = 0) {
  Json values{{"data.min_length", 5},     {"data.max_length", 30},   {"data.train_examples", 24},
              {"data.dev_examples", 8},   {"data.test_examples", 8}, {"model.dim", 16},
              {"model.head_dim", 8},      {"model.ff_dim", 16},      {"model.classifier_dim", 16},
              {"training.batch", 8},      {"training.steps", 6},     {"training.warmup", 2},
              {"training.eval_every", 2}, {"training.log_every", 3}};
  values.update(more);
  plan::PlanRequest request;
  request.task = "listops";
  request.model = model;
  request.seed = seed;
  request.layers.push_back({"test", values});
  return plan::resolve_plan(request);
}

const Say kSilent = [](const std::string&) {};

NamedTensors copy_of(const models::Model& model) {
  NamedTensors result;
  for (const auto& [name, tensor] : models::state(model)) result.emplace_back(name, tensor.detach().clone());
  return result;
}

at::Tensor& entry(NamedTensors& tensors, const std::string& name) {
  for (auto& [other, tensor] : tensors)
    if (other == name) return tensor;
  throw std::runtime_error("no tensor " + name);
}

// Names of tensors in which two states differ.
std::vector<std::string> changed(const NamedTensors& before, const NamedTensors& after) {
  std::vector<std::string> result;
  REQUIRE(before.size() == after.size());
  for (size_t i = 0; i < before.size(); ++i) {
    REQUIRE(before[i].first == after[i].first);
    if (!at::equal(before[i].second, after[i].second)) result.push_back(before[i].first);
  }
  return result;
}

struct Files {
  scratch::Folder folder;
  Path write(const std::string& name, const NamedTensors& tensors) const {
    write_tensor_file(folder / name, tensors, {});
    return folder / name;
  }
  [[nodiscard]] Path no_run() const { return folder / "no-run"; }
};

// A plan that begins with the weights of a file.
RunPlan plan_from(const Path& file, Json more = Json::object(), const std::string& model = "linear") {
  more["training.init_sha256"] = read_weights(file, kSilent).sha256;
  return tiny_plan(more, model);
}

RunOptions options_in(const scratch::Folder& folder, const std::string& name) {
  RunOptions options;
  options.out = folder / name;
  options.data.cache = folder / "cache";
  return options;
}

}  // namespace

TEST_CASE("the hash of weights is over names, types, shapes and values, and nothing else") {
  const at::Tensor pair = at::tensor({1.0F, 2.0F}), step = at::scalar_tensor(7, at::kLong);
  // 1.0f and 2.0f, then 7 as int64, little-endian.
  const std::string expected = sha256(std::string("a F32 2\n\x00\x00\x80\x3f\x00\x00\x00\x40", 16) +
                                      std::string("b I64 \n\x07\0\0\0\0\0\0\0", 15));
  CHECK(weights_sha256({{"a", pair}, {"b", step}}) == expected);
  CHECK(weights_sha256({{"a", pair.t()}, {"b", step}}) == expected);
  CHECK(weights_sha256({{"c", pair}, {"b", step}}) != expected);
  CHECK(weights_sha256({{"a", pair.view({2, 1})}, {"b", step}}) != expected);
  CHECK(weights_sha256({{"a", pair.to(at::kHalf)}, {"b", step}}) != expected);
  const Files files;
  write_tensor_file(files.folder / "one", {{"a", pair}, {"b", step}}, {{"step", "3"}});
  write_tensor_file(files.folder / "two", {{"b", step}, {"a", pair}}, {});
  const Weights one = read_weights(files.folder / "one", kSilent);
  CHECK(one.sha256 == expected);
  CHECK(one.metadata.at("step") == "3");
  CHECK(read_weights(files.folder / "two", kSilent).sha256 == expected);
}

TEST_CASE("a header that the format allows, but no tensor can have, is refused as damage is") {
  const Files files;
  readers::SafetensorsHeader header;
  header.tensors = {{"w", "F32", {0, int64_t{1} << 62, int64_t{1} << 62}, 0, 0}};
  const Path file = scratch::put(files.folder / "empty", readers::write_safetensors_header(header));
  CHECK_THROWS_AS(read_weights(file, kSilent), DataError);
}

TEST_CASE("whole numbers of every width are read, and what is not read is named with its type") {
  const Files files;
  const auto file_of = [&](const std::string& type, const std::string& bytes) {
    readers::SafetensorsHeader header;
    header.tensors = {{"ids", type, {2}, 0, bytes.size()}};
    return scratch::put(files.folder / "one", readers::write_safetensors_header(header) + bytes);
  };
  for (const auto& [type, size] : std::map<std::string, size_t>{{"U16", 2}, {"U32", 4}, {"U64", 8}, {"I16", 2}}) {
    std::string bytes(2 * size, '\0');
    bytes[0] = 7, bytes[size + 1] = 1;  // 7 and 256
    const at::Tensor read = read_tensor_file(file_of(type, bytes)).tensors.at("ids");
    CHECK(safetensors_type(read.scalar_type()) == type);
    CHECK(read.to(at::kLong).equal(at::tensor({7, 256}, at::kLong)));
  }
  try {
    (void)read_tensor_file(file_of("F8_E4M3", "ab"));
    FAIL("read");
  } catch (const DataError& error) {
    CHECK(std::string(error.what()).find("tensor ids has type F8_E4M3; those that are read: F32") != std::string::npos);
  }
}

TEST_CASE("weights are loaded whole, floating types converted") {
  const Files files;
  const auto source = plan::build_model(tiny_plan(Json::object(), "linear", 1)),
             target = plan::build_model(tiny_plan());
  NamedTensors stored = copy_of(*source);
  REQUIRE_FALSE(changed(copy_of(*source), copy_of(*target)).empty());
  for (const at::ScalarType type : {at::kDouble, at::kHalf, at::kBFloat16}) {
    NamedTensors converted;
    for (const auto& [name, tensor] : stored) converted.emplace_back(name, tensor.to(type));
    converted.emplace_back("more", at::ones(3));  // does not matter
    load_weights(*target, read_weights(files.write("weights", converted), kSilent));
    for (auto& [name, tensor] : converted) tensor = tensor.to(at::kFloat);
    converted.pop_back();
    CHECK(changed(converted, copy_of(*target)).empty());
  }
}

TEST_CASE("all that is missing or differs is one error, and then nothing was loaded") {
  const Files files;
  const auto model = plan::build_model(tiny_plan());
  const NamedTensors before = copy_of(*model);
  NamedTensors stored = copy_of(*plan::build_model(tiny_plan(Json::object(), "linear", 1)));
  std::erase_if(stored, [](const auto& named) { return named.first == "norm.bias" || named.first == "tokens"; });
  entry(stored, "positions") = at::zeros({7, 16});
  entry(stored, "norm.weight") = at::ones(16, at::kLong);
  const Weights weights = read_weights(files.write("wrong", stored), kSilent);
  const std::string message = scratch::message_of<DataError>([&] { load_weights(*model, weights); });
  CHECK_THAT(message, Contains("wrong: not the weights of this model"));
  CHECK_THAT(message, Contains("missing: tokens, norm.bias\n"));
  CHECK_THAT(message, Contains("positions ([32, 16] in the model, [7, 16] in the file)"));
  CHECK_THAT(message, Contains("norm.weight (type Float in the model, Long in the file)"));
  CHECK(changed(before, copy_of(*model)).empty());
}

TEST_CASE("a file, a checkpoint and a run hold the same selected weights") {
  const scratch::Folder folder;
  Observer silent;
  RunOptions options = options_in(folder, "run");
  options.stop_after = 5;
  const RunPlan plan = tiny_plan();
  static_cast<void>(train(plan, options, silent));
  const Path checkpoint = options.out / "checkpoints" / "step-00000005.safetensors";
  std::vector<std::string> said;
  const Weights unfinished = read_weights(options.out, [&](const std::string& line) { said.push_back(line); });
  REQUIRE(said.size() == 1);
  CHECK_THAT(said[0], Contains("not finished") && Contains("best weights, checkpoint of step 5"));
  const auto whole = read_tensor_file(checkpoint).tensors;
  for (const auto& [name, tensor] : unfinished.tensors) CHECK(at::equal(tensor, whole.at("best." + name)));
  CHECK(unfinished.tensors.size() == models::state(*plan::build_model(plan)).size());
  CHECK(read_weights(checkpoint, kSilent).sha256 == unfinished.sha256);

  options.stop_after = 0;
  static_cast<void>(train(plan, options, silent));
  const Weights finished = read_weights(options.out, kSilent);
  CHECK(finished.source == (options.out / "model.safetensors").string());
  CHECK(finished.sha256 == read_weights(options.out / "checkpoints" / "step-00000006.safetensors", kSilent).sha256);
  // Whose file is gone it is finished all the same.
  std::filesystem::remove(options.out / "model.safetensors");
  said.clear();
  CHECK(read_weights(options.out, [&](const std::string& line) { said.push_back(line); }).sha256 == finished.sha256);
  REQUIRE(said.size() == 1);
  CHECK_THAT(said[0], Contains("is finished, but its model.safetensors is gone"));

  // Where the last weights count, there are no best ones.
  options.out = folder / "last";
  static_cast<void>(train(tiny_plan({{"training.selection", "last"}}), options, silent));
  const Weights last = read_weights(options.out / "checkpoints" / "step-00000006.safetensors", kSilent);
  CHECK_THAT(last.source, Contains("last weights, checkpoint of step 6"));
  CHECK(last.sha256 == read_weights(options.out / "model.safetensors", kSilent).sha256);
  CHECK_THROWS_AS(read_weights(folder.path(), kSilent), UserError);
  CHECK_THROWS_AS(read_weights(folder / "nothing", kSilent), DataError);
}

TEST_CASE("a start takes what matches by name and shape, buffers too, and says what it did not") {
  const Files files;
  NamedTensors stored = copy_of(*plan::build_model(tiny_plan(Json::object(), "performer", 1)));
  for (auto& [name, tensor] : stored) tensor = tensor + 1;  // no initial value is like it
  std::erase_if(stored, [](const auto& named) { return named.first == "norm.bias"; });
  stored.emplace_back("decoder", at::ones(2));
  const Path file = files.write("weights", stored);
  const RunPlan plan = plan_from(file, {{"training.reinit", "classifier_out.*"}}, "performer");
  const auto model = plan::build_model(plan);
  const NamedTensors fresh = copy_of(*model);
  std::string said;
  const Json taken = prepare_model(*model, plan, file, files.no_run(), [&](const std::string& line) { said += line; });
  const size_t count = fresh.size() - 3;
  CHECK(taken == Json{{"file", "weights"},
                      {"sha256", plan.options.values["training.init_sha256"]},
                      {"taken", count},
                      {"fresh", 3},
                      {"unused", 1},
                      {"fresh_tensors", {"norm.bias", "classifier_out.weight", "classifier_out.bias"}},
                      {"unused_tensors", {"decoder"}}});
  CHECK(said == fmt::format("init-from {}: {} of {} tensors taken; fresh: norm.bias, classifier_out.weight, "
                            "classifier_out.bias; unused in the file: decoder",
                            file.string(), count, fresh.size()));
  bool buffer = false;
  for (const auto& [name, tensor] : copy_of(*model)) {
    INFO(name);
    const bool kept = name == "norm.bias" || name.starts_with("classifier_out.");
    NamedTensors from = kept ? fresh : stored;
    CHECK(at::equal(tensor, entry(from, name)));
    buffer = buffer || name == "shared.performer_layer0_omega";
  }
  CHECK(buffer);
}

TEST_CASE("a shape or type that differs is an error that names all of them, unless they are to be initial") {
  const Files files;
  const Path file = files.write("weights", copy_of(*plan::build_model(tiny_plan({{"model.ff_dim", 24}}))));
  const auto prepare = [&](const RunPlan& plan) {
    return prepare_model(*plan::build_model(plan), plan, file, files.no_run(), kSilent);
  };
  const std::string message = scratch::message_of<UserError>([&] { prepare(plan_from(file)); });
  for (const char* part :
       {"6 of its tensors", "layer0.ff.in.weight ([16, 16] in the model, [24, 16] in the file)",
        "layer0.ff.in.bias ([16] in the model, [24] in the file)", "layer1.ff.out.weight", "--reinit"})
    CHECK_THAT(message, Contains(part));
  CHECK(prepare(plan_from(file, {{"training.reinit", "*.ff.in.*,*.ff.out.weight"}}))["fresh"] == 6);
  CHECK_THROWS_WITH(prepare(plan_from(file, {{"training.reinit", "*.ff.in.*"}})), Contains("2 of its tensors"));
  CHECK_THROWS_WITH(prepare(plan_from(file, {{"training.reinit", "*"}})), Contains("nothing of it would be taken"));
  CHECK_THROWS_WITH(prepare(plan_from(file, {{"training.reinit", "decoder"}})),
                    Contains("'decoder' fits the name of no"));

  NamedTensors integers;
  for (const auto& [name, tensor] : copy_of(*plan::build_model(tiny_plan()))) integers.emplace_back(name, tensor);
  entry(integers, "tokens") = entry(integers, "tokens").to(at::kInt);
  const Path other = files.write("integers", integers);
  const RunPlan plan = plan_from(other);
  CHECK_THROWS_WITH(prepare_model(*plan::build_model(plan), plan, other, files.no_run(), kSilent),
                    Contains("tokens (type Float in the model, Int in the file)"));
}

TEST_CASE(
    "weights that have nothing in common, are missing, or are not those of the plan are refused before the data") {
  const Files files;
  const NamedTensors stored = copy_of(*plan::build_model(tiny_plan()));
  const Path file = files.write("weights", stored), foreign = files.write("foreign", {{"encoder.w", at::ones(2)}});
  CHECK_THROWS_WITH(check_preparation(plan_from(foreign), foreign, files.no_run()),
                    Contains("encoder.w") && Contains("the model has tokens"));
  CHECK_THROWS_AS(check_preparation(plan_from(file), "", files.no_run()), UserError);
  CHECK_THROWS_AS(check_preparation(plan_from(foreign), file, files.no_run()), DataError);
  CHECK_THROWS_AS(check_preparation(tiny_plan(), file, files.no_run()), UserError);
  CHECK_NOTHROW(check_preparation(plan_from(file), file, files.no_run()));
  CHECK_NOTHROW(check_preparation(tiny_plan(), "", files.no_run()));
  CHECK_THROWS_WITH(tiny_plan({{"training.init_sha256", "0123"}}), Contains("64 hexadecimal digits"));
  CHECK_THROWS_WITH(tiny_plan({{"training.reinit", "tokens"}}), Contains("--init-from"));
  CHECK(plan_from(file).hash() != tiny_plan().hash());
}

TEST_CASE("weights are held against what files hold, not against a guess at it") {
  const Files files;
  plan::PlanRequest request;
  request.task = "uea/of-mine";
  request.model = "linear";
  request.layers.push_back({"test", {{"model.dim", 16}, {"model.heads", 2}, {"model.head_dim", 8}}});
  const RunPlan guessed = plan::resolve_plan(request);
  data::DataShape shape = plan::planned_shape(guessed);
  shape.width += 2;
  const Path file = files.write("weights", copy_of(*plan::build_model(guessed, shape)));
  request.layers.back().values["training.init_sha256"] = read_weights(file, kSilent).sha256;
  const RunPlan plan = plan::resolve_plan(request);
  CHECK_NOTHROW(check_preparation(plan, file, files.no_run()));
  CHECK_NOTHROW(prepare_model(*plan::build_model(plan, shape), plan, file, files.no_run(), kSilent));
  CHECK_THROWS_WITH(prepare_model(*plan::build_model(plan), plan, file, files.no_run(), kSilent),
                    Contains("input.weight"));
}

TEST_CASE("a tensor of more rows takes those of the file again and again, where it may") {
  const Files files;
  NamedTensors first = copy_of(*plan::build_model(tiny_plan()));
  entry(first, "positions") = at::arange(32 * 16, at::kFloat).view({32, 16});
  const Path file = files.write("first", first);
  const Json longer{{"data.max_length", 80}};  // 128 places, and 72 in the last test
  CHECK_THROWS_WITH(
      prepare_model(*plan::build_model(plan_from(file, longer)), plan_from(file, longer), file, files.no_run(),
                    kSilent),
      Contains("positions ([128, 16] in the model, [32, 16] in the file)") && Contains("training.extend=PATTERN"));
  for (const int64_t places : {128, 72}) {
    Json more{{"data.max_length", places == 128 ? 80 : 72}, {"training.extend", "positions"}};
    if (places == 72) more["model.length_rule"] = "exact";
    const RunPlan plan = plan_from(file, more);
    const auto model = plan::build_model(plan);
    std::string heard;
    const Json record =
        prepare_model(*model, plan, file, files.no_run(), [&](const std::string& line) { heard += line; });
    NamedTensors after = copy_of(*model);
    const at::Tensor& positions = entry(after, "positions");
    REQUIRE(positions.size(0) == places);
    for (int64_t row = 0; row < places; ++row) CHECK(at::equal(positions[row], entry(first, "positions")[row % 32]));
    CHECK(record["extended_tensors"] == Json{"positions"});
    CHECK(record["taken"] == after.size());
    CHECK_THAT(heard, Contains("rows copied: positions"));
  }
  // Neither fewer rows nor others, nor a name that no tensor has.
  const auto refused = [&](const Json& more, const std::string& why) {
    const RunPlan plan = plan_from(file, more);
    CHECK_THROWS_WITH(prepare_model(*plan::build_model(plan), plan, file, files.no_run(), kSilent), Contains(why));
  };
  refused({{"data.max_length", 12}, {"training.extend", "positions"}}, "positions ([16, 16]");
  refused({{"model.dim", 8}, {"data.max_length", 80}, {"training.extend", "positions"}}, "positions ([128, 8]");
  refused({{"training.extend", "position"}}, "'positions'?");
  CHECK_THROWS_WITH(tiny_plan({{"training.extend", "positions"}}), Contains("begins with no weights"));
}

TEST_CASE("what is frozen keeps its values, the rest is trained, and nothing to train is an error") {
  const scratch::Folder folder;
  Listener listener;
  const RunPlan plan = tiny_plan({{"training.freeze", "tokens, layer0.*"}, {"training.weight_decay", 0.5}});
  const NamedTensors before = copy_of(*plan::build_model(plan));
  const RunOptions options = options_in(folder, "run");
  const Json record = to_json(train(plan, options, listener));
  const auto after = read_tensor_file(options.out / "model.safetensors").tensors;
  int64_t trained = 0, frozen = 0, frozen_numbers = 0;
  for (const auto& [name, tensor] : before) {
    INFO(name);
    const bool is_frozen = name == "tokens" || name.starts_with("layer0.");
    CHECK(at::equal(tensor, after.at(name)) == is_frozen);
    (is_frozen ? frozen_numbers : trained) += tensor.numel();
    frozen += is_frozen;
  }
  CHECK(record["parameters"] == trained);
  CHECK_FALSE(record.contains("init_from"));
  CHECK_THAT(listener.heard, Contains(fmt::format("frozen: {} of {} tensors ({},{:03} parameters)", frozen,
                                                  before.size(), frozen_numbers / 1000, frozen_numbers % 1000)));
  CHECK_THROWS_WITH(check_preparation(tiny_plan({{"training.freeze", "*"}}), "", folder / "x"),
                    Contains("no parameter to train"));
  CHECK_THROWS_WITH(check_preparation(tiny_plan({{"training.freeze", "token"}}), "", folder / "x"),
                    Contains("'tokens'?"));
  // A buffer is not trained anyhow.
  CHECK_THROWS_WITH(check_preparation(tiny_plan({{"training.freeze", "*omega"}}, "performer"), "", folder / "x"),
                    Contains("no parameter"));
}

TEST_CASE("a run that began with weights and froze some goes on without their file, to the same bits") {
  const scratch::Folder folder;
  Observer silent;
  static_cast<void>(train(tiny_plan(Json::object(), "linear", 1), options_in(folder, "first"), silent));
  const Path file = folder / "first" / "model.safetensors";
  const RunPlan plan = plan_from(file, {{"training.freeze", "positions"}});
  RunOptions options = options_in(folder, "whole");
  options.init_from = file;
  const Json whole = to_json(train(plan, options, silent));
  CHECK(whole["init_from"]["sha256"] == plan.options.values["training.init_sha256"]);

  options.out = folder / "parts";
  options.stop_after = 3;
  CHECK(train(plan, options, silent).init_from == whole["init_from"]);
  options.init_from = folder / "gone";
  options.stop_after = 0;
  Listener listener;
  const Json parts = to_json(train(plan, options, listener));
  CHECK(parts["init_from"] == whole["init_from"]);
  CHECK_THAT(listener.heard, !Contains("init-from") && Contains("frozen: 1 of"));
  const Weights end = read_weights(options.out, kSilent), expected = read_weights(folder / "whole", kSilent);
  CHECK(end.sha256 == expected.sha256);
  CHECK(at::equal(end.tensors.at("positions"), read_weights(file, kSilent).tensors.at("positions")));
}

}  // namespace xformer::training
