// From words to a plan: names, protocols, origins, and everything that is refused before a file is opened.
#include "plan/options.h"

#include <catch2/catch.hpp>

namespace xformer::plan {

namespace {

PlanRequest request(const std::string& model = "mrs-linformer") {
  PlanRequest result;
  result.task = "listops";
  result.model = model;
  return result;
}

PlanRequest with(const std::string& key, const Json& value, const std::string& model = "mrs-linformer") {
  PlanRequest result = request(model);
  result.layers.push_back({"--set", {{key, value}}});
  return result;
}

std::string message_of(const PlanRequest& asked) {
  try {
    static_cast<void>(resolve_plan(asked));
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the default protocol of ListOps is mlpen with the numbers of lra-recipe 4") {
  const RunPlan plan = resolve_plan(request());
  const Json& values = plan.options.values;
  CHECK(plan.protocol == "mlpen");
  CHECK(values["training.steps"] == 5000);
  CHECK(values["training.warmup"] == 1000);
  CHECK(values["training.batch"] == 32);
  CHECK(values["training.learning_rate"] == 1e-4);
  CHECK(values["training.schedule"] == "onecycle_linear");
  CHECK(values["training.cycle_beta1"] == true);
  CHECK(values["training.epsilon"] == 1e-6);
  CHECK(values["training.eval_every"] == 50);
  CHECK(values["model.dim"] == 64);
  CHECK(values["model.ff_dim"] == 128);
  CHECK(values["model.pooling"] == "mean_padded");
  CHECK(values["attention.projected_len"] == 256);
  CHECK(values["attention.scales"] == Json({1, 2}));
  CHECK(padded_len(plan) == 2048);
}

TEST_CASE("protocols differ exactly as lra-recipe 4 says") {
  const auto plan_of = [](const std::string& protocol) {
    PlanRequest asked = request("linformer");
    asked.protocol = protocol;
    return resolve_plan(asked);
  };
  const Json mlpen = plan_of("mlpen").options.values;
  SECTION("mlpen-15k is mlpen with 15,000 steps and the same warm-up") {
    Json expected = mlpen;
    expected["training.steps"] = 15000;
    CHECK(plan_of("mlpen-15k").options.values == expected);
  }
  SECTION("clean is mlpen with the mean over valid tokens") {
    Json expected = mlpen;
    expected["model.pooling"] = "mean_valid";
    CHECK(plan_of("clean").options.values == expected);
  }
  SECTION("glra is the JAX lineage") {
    const RunPlan plan = plan_of("glra");
    const Json& values = plan.options.values;
    CHECK(values["model.dim"] == 512);
    CHECK(values["model.heads"] == 8);
    CHECK(values["model.layers"] == 4);
    CHECK(values["model.ff_dim"] == 1024);
    CHECK(values["model.pooling"] == "cls_vector");
    CHECK(values["model.vocabulary_rows"] == 17);
    CHECK(values["model.norm_epsilon"] == 1e-6);
    CHECK(values["model.attention_bias"] == false);
    CHECK(values["training.schedule"] == "rsqrt");
    CHECK(values["training.learning_rate"] == 0.05);
    CHECK(values["training.weight_decay"] == 0.1);
    CHECK(values["training.beta2"] == 0.98);
    CHECK(values["training.selection"] == "last");
    CHECK(padded_len(plan) == 2000);
  }
}

TEST_CASE("near misses are answered with the nearest right name") {
  CHECK(message_of(request("mrs-linfomer")).find("did you mean 'mrs-linformer'?") != std::string::npos);
  CHECK(message_of(with("attention.projected_length", 4)).find("did you mean 'attention.projected_len'?") !=
        std::string::npos);
  CHECK(message_of(with("training.schedule", "onecycle")).find("did you mean 'onecycle_linear'?") != std::string::npos);
  PlanRequest protocol = request();
  protocol.protocol = "mlpen-15";
  CHECK(message_of(protocol).find("did you mean 'mlpen-15k'?") != std::string::npos);
  PlanRequest task = request();
  task.task = "listop";
  CHECK(message_of(task).find("did you mean 'listops'?") != std::string::npos);
}

TEST_CASE("wrong types, ranges and combinations say key, origin and what was expected") {
  CHECK(message_of(with("training.batch", "many")).find("training.batch (from --set): expected an integer") == 0);
  CHECK(message_of(with("training.batch", 0)).find("at least 1") != std::string::npos);
  CHECK(message_of(with("attention.scales", "1,2,4")).find("3") != std::string::npos);  // three scales, two heads
  CHECK(message_of(with("training.micro_batch", 64)).find("at most the batch of 32") != std::string::npos);
  PlanRequest parts = with("training.micro_batch", 8);
  parts.layers.push_back({"--set", {{"model.norm", "batch"}}});
  CHECK(message_of(parts).find("over the whole batch of 32") != std::string::npos);
  CHECK(message_of(with("model.vocabulary_rows", 3)).find("model.vocabulary_rows") == 0);
  PlanRequest length = request();
  length.length = 100;
  CHECK(message_of(length).find("xformer describe listops") != std::string::npos);
}

TEST_CASE("--steps scales the warm-up with the schedule, unless it was set itself") {
  PlanRequest asked = request();
  asked.steps = 200;
  const RunPlan plan = resolve_plan(asked);
  CHECK(plan.options.values["training.warmup"] == 40);
  CHECK(plan.options.origins.at("training.warmup").text == "--steps");
  asked.layers.push_back({"--set", {{"training.warmup", 7}}});
  CHECK(resolve_plan(asked).options.values["training.warmup"] == 7);
}

TEST_CASE("a length that is said twice on the command line is refused, one from a file gives way") {
  PlanRequest asked;
  asked.task = "uea/JapaneseVowels";
  asked.model = "linear";
  asked.steps = 5;
  CHECK(resolve_plan(asked).options.values["training.epochs"] == 0);
  asked.layers.push_back({{OriginKind::kFile, "file a.json"}, {{"training.epochs", 3}}});
  CHECK(resolve_plan(asked).options.values["training.steps"] == 5);
  asked.layers.push_back({"--set", {{"training.epochs", 1}}});
  CHECK_THAT(message_of(asked), Catch::Contains("--steps 5 and training.epochs=1 (from --set) both say how long"));
  asked.layers.back().values = {{"training.steps", 7}};
  CHECK_THAT(message_of(asked), Catch::Contains("training.steps=7 (from --set)"));
}

TEST_CASE("steps that an option asks for take the place of a protocol's epochs, and of a farther place's") {
  PlanRequest asked;
  asked.task = "uea/JapaneseVowels";
  asked.model = "linear";
  const Origin near = "--set", file{OriginKind::kFile, "file a.json"};
  const auto length = [&] {
    const RunPlan plan = resolve_plan(asked);
    return std::pair(plan.options.values["training.steps"].get<int64_t>(),
                     plan.options.values["training.epochs"].get<int64_t>());
  };
  asked.layers = {{near, {{"training.steps", 5}}}};
  CHECK(length() == std::pair<int64_t, int64_t>(5, 0));
  CHECK(resolve_plan(asked).options.origins.at("training.epochs").text == "--set");
  asked.layers = {{file, {{"training.epochs", 3}}}, {near, {{"training.steps", 5}}}};
  CHECK(length() == std::pair<int64_t, int64_t>(5, 0));
  asked.layers = {{file, {{"training.steps", 5}}}, {near, {{"training.epochs", 3}}}};
  CHECK(length().second == 3);
  asked.layers = {{file, {{"training.steps", 5}}}};
  asked.epochs = 2;
  CHECK(length().second == 2);
  asked.epochs = 0;
  asked.layers = {{near, {{"training.steps", 5}, {"training.epochs", 0}}}};
  CHECK(length() == std::pair<int64_t, int64_t>(5, 0));
  for (const Origin& one : {near, file}) {
    asked.layers = {{one, {{"training.steps", 5}, {"training.epochs", 3}}}};
    CHECK_THAT(message_of(asked),
               Catch::Contains("training.steps=5 and training.epochs=3 (from " + one.text + ") both"));
  }
  // A whole plan has both, and epochs decide.
  asked.layers = {{file, resolve_plan({"uea/JapaneseVowels", "linear", ""}).to_config(true)}};
  for (const char* name : {"task", "model", "protocol", "seed"}) asked.layers[0].values.erase(name);
  CHECK(length() == std::pair<int64_t, int64_t>(5000, 100));
}

TEST_CASE("a warm-up of the epochs that steps replace keeps its share of them") {
  PlanRequest asked = request();
  asked.layers = {{{OriginKind::kFile, "file a.json"}, {{"training.epochs", 10}, {"training.warmup_epochs", 2}}},
                  {"--set", {{"training.steps", 50}}}};
  const RunPlan plan = resolve_plan(asked);
  CHECK(plan.options.values["training.warmup"] == 10);
  CHECK(plan.options.values["training.warmup_epochs"] == 0);
}

TEST_CASE("steps that say nothing beside epochs of the protocol are told") {
  PlanRequest asked{"uea/JapaneseVowels", "linear", ""};
  CHECK(epochs_warning(resolve_plan(asked)).empty());
  asked.steps = 40;
  CHECK(epochs_warning(resolve_plan(asked)).empty());
  asked.layers = {{"--eval-every", {{"training.eval_every", 7}}}};
  CHECK_THAT(epochs_warning(resolve_plan(asked)),
             Catch::Contains("training.eval_every=7 (from --eval-every) says nothing where training.eval_epochs=2"));
  asked.layers.push_back({"--set", {{"training.eval_epochs", 0}}});
  CHECK(epochs_warning(resolve_plan(asked)).empty());
}

TEST_CASE("--fast is five steps and two batches of each evaluation, and no other plan than before without it") {
  PlanRequest asked = request();
  const std::string hash = resolve_plan(asked).hash();
  asked.layers.push_back({"--limit", {{"data.limit", ""}}});
  CHECK(resolve_plan(asked).hash() == hash);
  asked.fast = true;
  const RunPlan plan = resolve_plan(asked);
  CHECK(plan.options.values["training.steps"] == 5);
  CHECK(plan.options.values["data.limit"] == "dev=64,test=64");
  CHECK(plan.hash() != hash);
  asked.steps = 9;
  asked.layers.push_back({"--limit", {{"data.limit", "train=0.5,test=3%"}}});
  CHECK(resolve_plan(asked).options.values["training.steps"] == 9);
  CHECK(resolve_plan(asked).options.values["data.limit"] == "train=0.5,test=3%,dev=64");
  for (const auto& [wrong, part, word] :
       std::vector<std::array<const char*, 3>>{{"train", "'train'", "SPLIT=AMOUNT"},
                                               {"dev=5,train=0", "'train=0'", "a whole number of examples from 1"},
                                               {"trian=5,dev=1", "'trian=5'", "did you mean 'train'?"},
                                               {"dev=1.5", "'dev=1.5'", "a share above 0"},
                                               {"dev=2.5e1", "'dev=2.5e1'", "a share above 0"},
                                               {"test=101%", "'test=101%'", "at most 100%"},
                                               {"dev=1,test=1x", "'test=1x'", "got '1x'"},
                                               {"dev=1,val=2", "'val=2'", "dev has a limit already"}}) {
    asked.layers.back().values["data.limit"] = wrong;
    INFO(wrong);
    CHECK_THAT(message_of(asked),
               Catch::Contains("data.limit (from --limit)") && Catch::Contains(part) && Catch::Contains(word));
  }
}

TEST_CASE("a protocol's precision is a wish, which a CPU grants in fp32; what was asked for stays") {
  PlanRequest asked;
  asked.task = "image-folder";
  asked.model = "mrs-deit";
  RunPlan plan = resolve_plan(asked), on_cuda = plan;
  REQUIRE(plan.options.values["training.precision"] == "fp16");
  suit_device(plan, /*on_cuda=*/false);
  CHECK(plan.options.values["training.precision"] == "fp32");
  CHECK(plan.options.origins["training.precision"].text == "protocol mrsformer, whose fp16 is for CUDA");
  CHECK(plan.options.origins["training.precision"].is_preset());
  CHECK(precision_warning(plan, /*on_cuda=*/false).empty());
  suit_device(on_cuda, /*on_cuda=*/true);
  CHECK(on_cuda.options.values["training.precision"] == "fp16");
  asked.layers.push_back({"--precision", {{"training.precision", "fp16"}}});
  plan = resolve_plan(asked);
  suit_device(plan, /*on_cuda=*/false);
  CHECK(plan.options.values["training.precision"] == "fp16");
  CHECK_THAT(precision_warning(plan, /*on_cuda=*/false), Catch::Contains("slower than fp32"));
  CHECK(precision_warning(plan, /*on_cuda=*/true).empty());
}

TEST_CASE("an attention may find a plan's layers too many, and says what is better") {
  const auto warning = [](const std::string& model, const Json& set) {
    PlanRequest asked;
    asked.task = "listops", asked.model = model;
    asked.layers.push_back({"--set", set});
    return depth_warning(resolve_plan(asked));
  };
  CHECK(warning("set-isab", {{"model.layers", 2}}).empty());
  CHECK_THAT(warning("set-isab", {{"model.layers", 3}}), Catch::Contains("attention.mab=code-norm or paper"));
  CHECK(warning("set-isab", {{"model.layers", 3}, {"attention.mab", "code-norm"}}).empty());
  CHECK(warning("mrs-linear", {{"model.layers", 12}}).empty());
  CHECK(warning("lstm", {{"model.layers", 12}}).empty());
}

TEST_CASE("later layers win and every value has an origin") {
  PlanRequest asked = request();
  asked.layers.push_back({"file a.json", {{"training.batch", 8}, {"model.dim", 32}}});
  asked.layers.push_back({"--set", {{"training.batch", "16"}}});
  const RunPlan plan = resolve_plan(asked);
  CHECK(plan.options.values["training.batch"] == 16);
  CHECK(plan.options.origins.at("training.batch").text == "--set");
  CHECK(plan.options.origins.at("model.dim").text == "file a.json");
  CHECK(plan.options.origins.at("training.steps").text == "protocol mlpen");
  CHECK(plan.options.origins.at("training.patience").text == "default");
  CHECK(plan.to_config(/*all=*/false).size() == 6);  // four names, batch and dim
}

TEST_CASE("names compare with _ equal to - and a family may stand in front") {
  CHECK(resolve_plan(request("MRS_Linformer")).model == "mrs-linformer");
  CHECK(resolve_plan(request("encoder/mrs-linformer")).hash() == resolve_plan(request()).hash());
  CHECK(resolve_plan(request("encoder")).attention == "softmax");
}

TEST_CASE("a model that is typed by a whole name keeps it, and is the model that it stands for") {
  const auto on = [](const std::string& task, const std::string& model) {
    PlanRequest asked;
    asked.task = task;
    asked.model = model;
    return resolve_plan(asked);
  };
  const RunPlan deit = on("image-folder", "MRS_DeiT"), plain = on("image-folder", "mrs-softmax");
  CHECK((deit.name() == "mrs-deit" && deit.model == "mrs-softmax" && deit.family == "vit"));
  CHECK(plain.name() == "mrs-softmax");
  CHECK((deit.hash() == plain.hash() && plan_differences(plain.to_json(), deit).empty()));
  CHECK(plan_differences(deit.to_json(), plain).empty());
  CHECK(stored_plan(deit.to_json()).name() == "mrs-deit");
  CHECK(deit.to_config(/*all=*/true)["model"] == "mrs-deit");
  CHECK(on("tabular/adult", "ft").name() == "ft");
  CHECK(on("listops", "lstm").name() == "lstm");
  CHECK(on("listops", "mrs-linear").name() == "mrs-linear");
  CHECK(message_of(request("mrs-lstm")).find("lstm has no attention") != std::string::npos);
}

TEST_CASE("a plan's hash leaves out the seed and holds everything else") {
  PlanRequest other = request();
  other.seed = 5;
  CHECK(resolve_plan(other).hash() == resolve_plan(request()).hash());
  CHECK(resolve_plan(with("training.batch", 16)).hash() != resolve_plan(request()).hash());
  CHECK(resolve_plan(request("linformer")).hash() != resolve_plan(request()).hash());
}

TEST_CASE("a stored plan comes back the same") {
  const RunPlan plan = resolve_plan(with("attention.projected_len", 17));
  CHECK(stored_plan(plan.to_json()).to_json() == plan.to_json());
}

}  // namespace xformer::plan
