// A system that lets no program make code, as hardened services have it: the run says so and multiplies by other means.
#include <sys/prctl.h>

#include "program.h"

namespace xformer::program_test {
namespace {

// What is memory of data never becomes code, in this process and in the programs that it becomes.
bool refuse_new_code() {
  constexpr int kSetRefusal = 65, kNoGain = 1;  // PR_SET_MDWE and PR_MDWE_REFUSE_EXEC_GAIN of Linux 6.3
  return ::prctl(kSetRefusal, kNoGain, 0, 0, 0) == 0;
}

TEST_CASE("where no code may be made, a run says so once, and its record names LibTorch's BLAS", "[code]") {
  const std::string note =
      "xformer: products go through LibTorch's BLAS, which may be slower: the system lets this program make no code (";
  const auto products = [](const Path& run) {
    return json_file(run / "record.json")["kernels_run"]["products"].get<std::string>();
  };
  const Place place;
  const Words command = tiny("softmax-fused", "--steps 3");
  const Outcome usual = place.run(command + "--out usual");
  INFO(usual.err);
  REQUIRE(usual.code == 0);
  CHECK_FALSE(contains(usual.err, note));
  if (!products(place / "usual").starts_with("libxsmm")) {
    WARN("skipped: no code is made on this processor; products are by " << products(place / "usual"));
    return;
  }
  Process process(Words{program_path()} + command + "--out refused", place.path(), place.environment(),
                  refuse_new_code);
  const int code = process.wait();
  if (code == kUnprepared) {
    WARN("skipped: a kernel without PR_SET_MDWE, before Linux 6.3");
    return;
  }
  const std::string said = process.err();
  INFO(said);
  CHECK(code == 0);
  const size_t first = said.find(note);
  REQUIRE(first != std::string::npos);
  CHECK(said.find(note, first + 1) == std::string::npos);
  CHECK_FALSE(contains(products(place / "refused"), "libxsmm"));
  CHECK(json_file(place / "refused" / "record.json")["status"] == "completed");
}

}  // namespace
}  // namespace xformer::program_test
