// Defaults that belong to a task: what they speak of exists, and who wins.
#include "plan/task_defaults.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "core/names.h"
#include "plan/options.h"

namespace xformer::plan {

namespace {

RunPlan planned(const std::string& model, const std::string& task, const Json& set = Json::object()) {
  PlanRequest asked;
  asked.model = model, asked.task = task;
  asked.layers.push_back({"--set", set});
  return resolve_plan(asked);
}

}  // namespace

TEST_CASE("every default of a task names an attention, a task and an option, and differs from the option's own") {
  const auto& tasks = data::datasets().all();
  for (const TaskDefault& one : task_defaults()) {
    CAPTURE(one.option, one.source);
    CHECK(!one.source.empty());
    for (const std::string& pattern : one.tasks)
      CHECK(std::any_of(tasks.begin(), tasks.end(),
                        [&](const auto& task) { return matches_pattern(pattern, task.name); }));
    for (const std::string& name : one.attentions) {
      const attention::Resolved found = attention::resolve(name);
      CHECK(found.name == name);
      const std::vector<OptionInfo> options = found.options();
      const auto option =
          std::find_if(options.begin(), options.end(), [&](const OptionInfo& info) { return info.name == one.option; });
      REQUIRE(option != options.end());
      CHECK(option->fallback != one.value);
    }
  }
}

TEST_CASE("a task's default is below what is asked for, and says where it is from") {
  const RunPlan image = planned("local-block", "image");
  CHECK(image.options.values["attention.block"] == 64);
  CHECK(image.options.origins.at("attention.block").text ==
        "local-block on image: google-research/long-range-arena, configs of image and pathfinder");
  CHECK(image.options.origins.at("attention.block").is_preset());
  CHECK(planned("mrs-local-block", "pathfinder32-inter").options.values["attention.block"] == 64);
  CHECK(planned("local-block", "listops").options.values["attention.block"] == 50);
  CHECK(planned("local-block", "image", {{"attention.block", 32}}).options.values["attention.block"] == 32);
  CHECK(planned("mra2", "uea/JapaneseVowels").options.values["attention.budget"] == 0.25);
  CHECK(planned("mra2", "listops").options.values["attention.budget"] != 0.25);
  CHECK(planned("paramixer-cdil", "image").options.values["attention.links"] == 3);
  CHECK(planned("paramixer-cdil", "text").options.values["attention.links"] == 9);
  CHECK(planned("paramixer-chord", "text").options.values["attention.hidden"] == 128);
}

TEST_CASE("defaults of a task are what papers and their code print for it") {
  const auto value = [](const std::string& model, const std::string& task, const std::string& option) {
    return planned(model, task).options.values["attention." + option];
  };
  CHECK((value("transformer-ls", "text", "block") == 1 && value("transformer-ls", "text", "projected_len") == 1));
  CHECK(value("transformer-ls", "retrieval", "block") == 1);
  CHECK(value("transformer-ls", "retrieval", "projected_len") == 254);
  CHECK(
      (value("transformer-ls", "listops", "block") == 8 && value("transformer-ls", "listops", "projected_len") == 32));
  CHECK((value("mra2", "text", "diag") == 1 && value("mra2", "listops", "diag") == 0));
  CHECK((value("mra2-s", "image", "first") == 0 && value("mra2-s", "pathfinder32", "first") == 1));
  CHECK((value("bpt", "bytes/enwik8", "neighbours") == 64 && value("bpt", "bytes/enwik8", "level_clip") == 6));
  CHECK((value("bpt", "text", "neighbours") == 4 && value("bpt", "text", "level_clip") == 5));  // IMDb's, its own
  CHECK((value("compressive", "bytes/enwik8", "compression_rate") == 3));
  CHECK((value("adaptive-span", "bytes/text8", "include_self") == false));
  CHECK((value("adaptive-span", "listops", "include_self") == true));
  CHECK((value("sparse-fixed", "bytes/enwik8", "stride") == 128 &&
         value("sparse-fixed", "bytes/enwik8", "summary") == 32));
  CHECK((value("sparse-strided", "imagenet64-density", "stride") == 128));
  CHECK((value("combiner-fixed", "text-lm/wiki-40b", "block") == 128 && value("combiner-fixed", "text", "block") == 0));
  CHECK((value("combiner-axial", "text-mlm/c4", "columns") == 128 && value("combiner-axial", "text", "columns") == 0));
}

TEST_CASE("a task's default is below its protocol's values, which no protocol shows yet") {
  const std::vector<ValueLayer> layers = preset_layers(find_parts("image", "local-block", "glra"));
  REQUIRE(layers.size() == 2);
  CHECK(layers[0].values == Json{{"attention.block", 64}});
  CHECK(layers[1].origin.text == "protocol glra");
  CHECK(layers[1].values.contains("model.dim"));
}

TEST_CASE("an attention's own default of the model is above every protocol's, below what is asked for") {
  const RunPlan star = planned("star-transformer", "listops");
  CHECK(star.options.values["model.pooling"] == "prefix_max");
  CHECK(star.options.origins.at("model.pooling").text == "star-transformer in any task");
  CHECK(star.options.origins.at("model.pooling").is_preset());
  CHECK(preset_layers(find_parts("listops", "softmax", "mlpen")).back().values["model.pooling"] == "mean_padded");
  for (const char* protocol : {"mlpen", "glra", "clean"}) {
    PlanRequest asked;
    asked.model = "star", asked.task = "listops", asked.protocol = protocol;
    CHECK(resolve_plan(asked).options.values["model.pooling"] == "prefix_max");
  }
  CHECK(planned("star", "listops", {{"model.pooling", "mean_valid"}}).options.values["model.pooling"] == "mean_valid");
  CHECK(planned("star", "retrieval").options.values["model.pooling"] == "prefix_max");
  CHECK_FALSE(planned("star", "furthest-vector").options.values.contains("model.pooling"));  // an answer at every place
  for (const std::string& name : attention::distinct_names()) {
    INFO(name);
    const Json& wanted = attention::resolve(name).base->model_defaults;
    const auto& options = models::all_families().get("encoder").options;
    for (const auto& [key, value] : wanted.items())
      CHECK(std::any_of(options.begin(), options.end(),
                        [&, &option = key](const OptionInfo& info) { return info.name == option; }));
  }
}

TEST_CASE("attentions without a paper's word about a task have no layer") {
  CHECK(task_defaults_of(attention::resolve("linformer")).empty());
  CHECK(task_default_layer(attention::resolve("local-block"), "listops").values.empty());
}

}  // namespace xformer::plan
