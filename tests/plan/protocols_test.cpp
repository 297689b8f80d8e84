// protocols/*.json: that they speak of tasks there are, and what they say.
#include "plan/protocols.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "core/error.h"
#include "core/names.h"
#include "data/datasets.h"

namespace xformer::plan {

TEST_CASE("every name under a protocol's tasks stands for a task, and every task has a protocol") {
  for (const Json& file : protocol_files()) {
    CAPTURE(file["name"].get<std::string>());
    for (const Json& settings : file["settings"])
      for (const Json& pattern : settings["tasks"]) {
        CAPTURE(pattern.get<std::string>());
        const auto& tasks = data::datasets().all();
        CHECK(std::any_of(tasks.begin(), tasks.end(),
                          [&](const auto& task) { return matches_pattern(pattern.get<std::string>(), task.name); }));
      }
  }
  for (const data::DatasetDescriptor& task : data::datasets().all()) {
    CAPTURE(task.name);
    CHECK(!protocols_of(task.name).empty());
    for (const Protocol& protocol : protocols_of(task.name)) CHECK(!protocol.summary.empty());
  }
}

TEST_CASE("protocols of ListOps differ exactly as lra-recipe 4 says") {
  const std::vector<Protocol>& protocols = protocols_of("listops");
  REQUIRE(protocols.size() == 7);
  CHECK((protocols[0].name == "mlpen" && protocols[1].name == "mlpen-15k" && protocols[2].name == "glra" &&
         protocols[3].name == "clean"));
  const auto differences = [&](size_t other) {
    Json result = Json::object();
    for (const auto& [key, value] : protocols[0].values.items())
      if (protocols[other].values.at(key) != value) result[key] = protocols[other].values.at(key);
    CHECK(protocols[other].values.size() == protocols[0].values.size());
    return result;
  };
  CHECK(differences(1) == Json{{"training.steps", 15000}});
  CHECK(differences(3) == Json{{"model.pooling", "mean_valid"}});
  CHECK(differences(2) == Json{{"training.learning_rate", 0.05},
                               {"training.schedule", "rsqrt"},
                               {"training.beta2", 0.98},
                               {"training.epsilon", 1e-9},
                               {"training.weight_decay", 0.1},
                               {"training.cycle_beta1", false},
                               {"training.selection", "last"},
                               {"model.dim", 512},
                               {"model.heads", 8},
                               {"model.head_dim", 64},
                               {"model.layers", 4},
                               {"model.ff_dim", 1024},
                               {"model.positions", "sinusoidal"},
                               {"model.pooling", "cls_vector"},
                               {"model.classifier_dim", 1024},
                               {"model.vocabulary_rows", 17},
                               {"model.norm_epsilon", 1e-6},
                               {"model.activation", "gelu_tanh"},
                               {"model.init", "glra"},
                               {"model.attention_bias", false},
                               {"model.mask_output", false},
                               {"model.length_rule", "exact"}});
  CHECK((protocols[4].name == "paramixer" && protocols[5].name == "combiner"));
  CHECK(protocols[5].values == protocols[2].values);
  Json mixed = protocols[0].values;
  mixed["training.precision"] = "fp16";
  CHECK((protocols[6].name == "mlpen-fp16" && protocols[6].values == mixed));
  const Json& paramixer = protocols[4].values;  // its supplement, Table 1
  CHECK((paramixer["training.batch"] == 48 && paramixer["training.learning_rate"] == 1e-3 &&
         paramixer["model.dim"] == 32 && paramixer["model.pooling"] == "flatten" &&
         paramixer["model.positions"] == "learned"));
  const Json& mlpen = protocols[0].values;
  CHECK((mlpen["training.steps"] == 5000 && mlpen["training.batch"] == 32 && mlpen["training.learning_rate"] == 1e-4 &&
         mlpen["training.warmup"] == 1000 && mlpen["training.eval_every"] == 50));
  CHECK((mlpen["model.dim"] == 64 && mlpen["model.heads"] == 2 && mlpen["model.head_dim"] == 32 &&
         mlpen["model.layers"] == 2 && mlpen["model.ff_dim"] == 128 && mlpen["model.vocabulary_rows"] == 32));
}

TEST_CASE("settings that name a task apply one after the other, on what they extend for this task") {
  const Json& published = find_protocol("uea/PEMS-SF", "published").values;
  CHECK((published["training.epochs"] == 400 && published["training.batch"] == 16 && published["model.dim"] == 512));
  CHECK(find_protocol("uea/SelfRegulationSCP2", "published").values["training.epochs"] == 100);
  Json clean = published;
  clean["data.dev"] = "holdout";
  CHECK(find_protocol("uea/PEMS-SF", "clean").values == clean);
  CHECK(find_protocol("tabular/epsilon", "").values["data.normalisation"] == "none");
  CHECK(find_protocol("tabular/epsilon", "").values["model.kv_compression"] == 128);
  Json mvts = find_protocol("uea/JapaneseVowels", "published").values;
  mvts.update(
      {{"training.epochs", 400}, {"model.norm", "batch"}, {"model.norm_places", "all"}, {"data.longest", "train"}});
  CHECK(find_protocol("uea/JapaneseVowels", "mvts").values == mvts);
  CHECK(find_protocol("path-x", "combiner").values == find_protocol("path-x", "glra").values);
}

TEST_CASE("the UEA archive's default selects on a part of the training file, and its published protocol by name") {
  for (const char* task : {"uea/JapaneseVowels", "uea/PEMS-SF", "uea/LSST"}) {
    CAPTURE(task);
    CHECK(find_protocol(task, "").name == "clean");
    CHECK(find_protocol(task, "").values["data.dev"] == "holdout");
    CHECK(!find_protocol(task, "published").values.contains("data.dev"));
  }
}

TEST_CASE("an unknown protocol is refused with the nearest name") {
  CHECK_THROWS_WITH(find_protocol("uea/LSST", "publishd"), Catch::Matchers::Contains("'published'?"));
}

}  // namespace xformer::plan
