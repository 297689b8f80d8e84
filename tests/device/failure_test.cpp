// A device in which a kernel fails in the middle of a run: the run ends with its error, and nothing that is destroyed
// on the way asks the device for anything.
#include "device/walked_device.h"
#include "training/run_setting.h"

namespace xformer::training::device_failure_test {

namespace {

struct FailsAt : Observer {
  explicit FailsAt(int64_t step) : at(step) {}
  void on_step(int64_t step, int64_t) override {
    if (step == at) kernels::set_failed(true);
  }
  int64_t at;
};

}  // namespace

TEST_CASE("a device that stops answering ends the run with its error, and the run goes on in the same bits") {
  Setting setting;
  const RunPlan plan = plan_with({{"training.selection", "last"}});
  const auto options = [&](const char* name) {
    RunOptions result = setting.options(name);
    result.device = kernels::kWalkedDevice;
    return result;
  };
  kernels::set_walk_order(kernels::WalkOrder::kForward);
  static_cast<void>(setting.run(plan, options("whole")));
  FailsAt device(9);
  const std::string message =
      scratch::message_of<InternalError>([&] { static_cast<void>(train(plan, options("parts"), device)); });
  CHECK_THAT(message, Catch::StartsWith("the device refused what it was given: CUDA error: unspecified launch failure; "
                                        "the last checkpoint, of step 8, is kept"));
  CHECK(kernels::pinned_blocks_freed_too_late() == 0);
  CHECK(read_json_file(setting.scratch / "parts" / "record.json")["status"] == "failed");
  kernels::set_failed(false);
  CHECK(setting.run(plan, options("parts"))["resumed_at"] == Json({8}));
  kernels::set_walk_order(std::nullopt);
  CHECK(setting.content_hash("parts") == setting.content_hash("whole"));
}

}  // namespace xformer::training::device_failure_test
