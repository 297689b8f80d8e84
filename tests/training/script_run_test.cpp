// Runs with an attention of one's own file: the file is part of the plan, its parameters of what is saved.
#include "attention/script_file.h"
#include "training/run_directory.h"
#include "training/run_setting.h"
#include "training/weights.h"

namespace xformer::training {

using attention::script_file::write_kernel;

TEST_CASE("a run with a script trains its parameters, saves them, and goes on in the same bits", "[script]") {
  Setting setting;
  const std::string path = write_kernel(setting.scratch / "kernel.pt");
  for (const std::string& name : {"script:" + path, "mrs-script:" + path}) {
    CAPTURE(name);
    const std::string tag = name.substr(0, 3);
    const RunPlan plan = plan_with(Json::object(), name);
    CHECK(plan.model == name);
    const Json record = setting.run(plan, setting.options(tag));
    CHECK(record["status"] == "completed");
    const Weights weights = read_weights(setting.scratch / tag, [](const std::string&) {});
    int64_t own = 0;
    for (const auto& [key, tensor] : weights.tensors)
      if (key.ends_with("temperature")) {
        ++own;
        CHECK(tensor.item<float>() != 0.5f);
      }
    CHECK(own == (tag == "mrs" ? 4 : 2));  // two layers, a scale each of two heads

    RunOptions cut = setting.options(tag + "-cut");
    cut.stop_after = 5;
    static_cast<void>(setting.run(plan, cut));
    CHECK(setting.run(plan, setting.options(tag + "-cut"))["status"] == "completed");
    CHECK(setting.content_hash(tag + "-cut") == setting.content_hash(tag));
  }
}

TEST_CASE("another file is another plan, and a run's stored plan refuses it", "[script]") {
  const scratch::Folder folder;
  const Path below = folder / "a";
  std::filesystem::create_directory(below);
  const std::string path = write_kernel(below / "kernel.pt");
  const RunPlan plan = plan_with(Json::object(), "script:" + path);
  CHECK(plan_with(Json::object(), "encoder/script:" + path).hash() == plan.hash());
  CHECK(plan::stored_plan(plan.to_json()).hash() == plan.hash());
  CHECK(plan_with({{"attention.epsilon", 0.1}}, "script:" + path).hash() != plan.hash());
  static_cast<void>(attention::script_file::write(path, "def forward(self, q, k, v, mask):\n    return v\n",
                                                  attention::script_file::kernel_attributes));
  CHECK(plan_with(Json::object(), "script:" + path).hash() != plan.hash());
  const std::string refusal =
      scratch::message_of<UserError>([&] { static_cast<void>(plan::stored_plan(plan.to_json())); });
  CHECK(refusal.find("sha256") != std::string::npos);
  CHECK(refusal.find("kernel.pt") != std::string::npos);
}

}  // namespace xformer::training
