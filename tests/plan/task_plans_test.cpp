// Plans of every task: protocols that fit their own family and any other, names, lengths, published parameter counts.
#include <catch2/catch.hpp>

#include "core/error.h"
#include "plan/options.h"

namespace xformer::plan {

namespace {

RunPlan plan_of(const std::string& task, const std::string& model, const std::string& protocol = "",
                int64_t length = 0) {
  PlanRequest request;
  request.task = task;
  request.model = model;
  request.protocol = protocol;
  request.length = length;
  return resolve_plan(request);
}

}  // namespace

TEST_CASE(
    "every protocol of every task makes a plan with softmax, linear, and multi-resolution heads if there are some") {
  for (const data::DatasetDescriptor& task : data::datasets().all()) {
    const std::string name = task.member ? task.name.substr(0, task.name.find('<')) + "any" : task.name;
    for (const Protocol& protocol : protocols_of(task.name)) {
      CAPTURE(name, protocol.name);
      CHECK_NOTHROW(plan_of(name, "linear", protocol.name));
      const RunPlan plan = plan_of(name, "softmax", protocol.name);
      if (model_request(plan).causal) CHECK_THROWS_AS(plan_of(name, "mrs-linear", protocol.name), UserError);
      else if (plan.options.values["model.heads"] > 1) CHECK_NOTHROW(plan_of(name, "mrs-linear", protocol.name));
      else CHECK_THROWS_WITH(plan_of(name, "mrs-linear", protocol.name), Catch::Matchers::Contains("1 heads"));
    }
  }
}

TEST_CASE("the FT-Transformer has the published parameter counts") {
  // Gorishniy et al.'s stored runs; Epsilon's keys and values are compressed from 2,001 to 128.
  const std::map<std::string, int64_t> published{{"california-housing", 893179},
                                                 {"adult", 913531},
                                                 {"helena", 919582},
                                                 {"jannis", 911422},
                                                 {"higgs-small", 900859},
                                                 {"aloi", 1132066},
                                                 {"year", 924667},
                                                 {"covertype", 912001},
                                                 {"yahoo", 1158523},
                                                 {"microsoft", 942331},
                                                 {"epsilon", 3194875}};
  for (const auto& [name, count] : published) {
    CAPTURE(name);
    CHECK(models::parameter_count(*build_model(plan_of("tabular/" + name, "ft-transformer"))) == count);
  }
  CHECK(models::parameter_count(*build_model(plan_of("tabular/adult", "mrs-ft"))) == 913531);
}

TEST_CASE("a model knows the columns of the image that its places are, and of no other data") {
  const auto columns = [](const std::string& task, const std::string& model) {
    return model_request(plan_of(task, model)).input.columns;
  };
  CHECK(columns("image", "mra2") == 32);
  CHECK(columns("pathfinder", "mra2") == 32);
  CHECK(columns("smnist", "axial") == 28);
  CHECK(columns("psmnist", "axial") == 0);           // places beside each other are no neighbours
  CHECK(columns("scifar", "axial") == 32);           // a pixel's colours are one place
  CHECK(columns("cifar10-density", "axial") == 96);  // and here three
  CHECK(columns("imagenet64-density", "axial") == 192);
  CHECK(columns("image-density", "combiner-mixture") == 96);
  CHECK(columns("listops", "mra2") == 0);
  CHECK(columns("uea/PEMS-SF", "mra2") == 0);
  CHECK(columns("image-folder", "vit/softmax") == 0);  // places are patches
}

TEST_CASE("attentions on a grid take the bytes of a row of pixels for a row") {
  const auto pairs = [](const RunPlan& plan, int64_t grid, int64_t columns) {
    attention::BuildContext context;
    context.max_len = 3072;
    context.causal = true;
    context.grid = grid;
    context.dropout_stream = std::make_shared<kernels::DropoutStream>(1);
    Json options = plan.group("attention");
    options["columns"] = columns;
    return attention::build_mixer(attention::resolve(plan.attention), options, context)->cost(1, 3072).flops_pattern;
  };
  for (const char* model : {"axial", "combiner-axial-rowmajor", "combiner-axial-vertical", "combiner-axial-horizontal",
                            "combiner-mixture", "image-local-2d"}) {
    INFO(model);
    const RunPlan plan = plan_of("cifar10-density", model);
    const double own = pairs(plan, model_request(plan).input.columns, 0);
    CHECK(own == pairs(plan, 0, 96));
    CHECK(own != pairs(plan, 0, 0));  // the root of 3,072, which is no row of pixels
  }
}

TEST_CASE("mrs- in front of a family is the family with multi-resolution softmax") {
  const RunPlan plan = plan_of("tabular/adult", "mrs-ft");
  CHECK((plan.family == "ft-transformer" && plan.attention == "mrs-softmax" && plan.model == "mrs-softmax"));
  CHECK(plan.hash() == plan_of("tabular/adult", "ft-transformer/mrs-softmax").hash());
  CHECK(plan.options.values["attention.scales"] == Json{1, 1, 2, 2, 4, 4, 8, 8});
}

TEST_CASE("a protocol leaves out what another family or attention has no option for") {
  const RunPlan plan = plan_of("text", "lstm");
  CHECK((plan.model == "lstm" && plan.attention == "none"));
  CHECK(plan.options.values["model.dim"] == 64);
  CHECK(plan.options.values["training.steps"] == 20000);
  CHECK(plan.hash() == stored_plan(plan.to_json()).hash());
  CHECK_THROWS_WITH(plan_of("text", "lstm/softmax"), Catch::Matchers::Contains("say lstm"));
  CHECK_THROWS_WITH(plan_of("retrieval", "lstm"), Catch::Matchers::Contains("one sequence"));
}

TEST_CASE("a task that asks at every place takes a family that answers there, and the other way round") {
  CHECK(model_request(plan_of("bytes/enwik8", "linear")).causal);
  CHECK(plan_of("bytes/enwik8", "linear").family == "decoder");
  CHECK(plan_of("bytes/My-notes", "linear").task == "bytes/My-notes");
  CHECK(padded_len(plan_of("bytes/text8", "linear", "", 100)) == 100);
  CHECK_THROWS_WITH(plan_of("mqar", "encoder/linear"), Catch::Matchers::Contains("take decoder/linear"));
  CHECK_THROWS_WITH(plan_of("mqar", "lstm"), Catch::Matchers::Contains("take decoder/softmax"));
  CHECK_THROWS_WITH(plan_of("listops", "decoder/linear"), Catch::Matchers::Contains("take encoder/linear"));
  CHECK(plan_of("furthest-vector", "linformer").family == "token-encoder");
  CHECK(model_request(plan_of("furthest-vector", "linear")).outputs == 4);
  CHECK_FALSE(model_request(plan_of("furthest-vector", "linear")).causal);
  CHECK_THROWS_WITH(plan_of("furthest-vector", "encoder/linear"),
                    Catch::Matchers::Contains("take token-encoder/linear"));
  CHECK_THROWS_WITH(
      plan_of("furthest-vector", "decoder/linear"),
      Catch::Matchers::Contains("sees no later place") && Catch::Matchers::Contains("take token-encoder/linear"));
  CHECK_THROWS_WITH(plan_of("bytes/enwik8", "token-encoder/linear"), Catch::Matchers::Contains("take decoder/linear"));
  // Before an option of its protocol is read, which another family may not have.
  CHECK_THROWS_WITH(plan_of("mqar", "token-encoder/linear"),
                    Catch::Matchers::Contains("sees later places") && Catch::Matchers::Contains("take decoder/linear"));
  CHECK_THROWS_WITH(plan_of("mqar", "linformer"), Catch::Matchers::Contains("no causal form"));
  PlanRequest smoothed;
  smoothed.task = "bytes/text8";
  smoothed.model = "linear";
  smoothed.layers.push_back({"test", {{"training.label_smoothing", 0.1}}});
  CHECK_NOTHROW((void)resolve_plan(smoothed));
  smoothed.layers.push_back({"test", {{"model.loss_block", 64}}});
  CHECK_THROWS_WITH(resolve_plan(smoothed), Catch::Matchers::Contains("label_smoothing"));
}

TEST_CASE("--length sets the length of text and of generated sequences") {
  CHECK(plan_of("text", "linear", "", 1000).options.values["data.length"] == 1000);
  CHECK(padded_len(plan_of("text", "linear", "", 1000)) == 1024);
  CHECK(padded_len(plan_of("text", "linear")) == 4096);
  CHECK(padded_len(plan_of("adding", "linear", "", 512)) == 512);
  CHECK_THROWS_WITH(plan_of("image", "linear", "", 100), Catch::Matchers::Contains("none to choose"));
}

TEST_CASE("sets of an archive go by any name, known ones by their own settings") {
  CHECK(plan_of("uea/JapaneseVowels", "linear").options.values["model.dim"] == 128);
  CHECK(plan_of("uea/japanesevowels", "linear").task == "uea/JapaneseVowels");
  CHECK(plan_of("uea/PEMS-SF", "linear").options.values["training.epochs"] == 400);
  CHECK(plan_of("uea/LSST", "linear").task == "uea/LSST");
  CHECK(plan_of("uea/LSST", "linear").options.values["training.batch"] == 128);
  CHECK_THROWS_WITH(plan_of("uae/LSST", "linear"), Catch::Matchers::Contains("unknown task"));
  CHECK_THROWS_AS(plan_of("uea/../x", "linear"), UserError);
}

}  // namespace xformer::plan
