// `xformer check` without its words: right cores pass, and every fault is found by the check that is there for it.
#include "inspect/core_checks.h"

#include "attention/script_file.h"
#include "attention/support.h"
#include "scratch.h"
#include "tensor/memory.h"

namespace xformer::inspect {

namespace {

// The claims that fail.
std::vector<std::string> faults(const std::string& name) {
  CoreChecks what;
  what.attention = attention::resolve(name);
  what.options = attention::support::full_options(what.attention);
  what.length = 32;
  std::vector<std::string> result;
  int items = 0;
  check_core(what, at::kCPU, [&](const SelftestItem& item) {
    ++items;
    INFO(item.claim << ": " << item.detail);
    CHECK_FALSE(item.detail.empty());
    if (!item.passed) result.push_back(item.claim);
  });
  CHECK(items == 8);
  return result;
}

using Faults = std::vector<std::string>;

}  // namespace

TEST_CASE("cores of the program are fit", "[check]") {
  install_caching_allocator();
  for (const std::string name : {"softmax", "linear", "performer", "mrs-softmax"}) {
    CAPTURE(name);
    CHECK(faults(name) == Faults{});
  }
  CoreChecks mixer;
  mixer.attention = attention::resolve("synth-dense");
  CHECK_THROWS_AS(check_core(mixer, at::kCPU, [](const SelftestItem&) {}), UserError);
}

TEST_CASE("a script is held to what it does and claims", "[check]") {
  const scratch::Folder folder;
  const auto script = [&](const std::string& body, const attention::script_file::Setup& setup = {}) {
    return "script:" +
           attention::script_file::write(folder / "one.pt", "def forward(self, q, k, v, mask):\n" + body, setup);
  };
  const std::string weights = "    w = torch.exp(torch.matmul(q, k.transpose(-1, -2)) / 8)\n";
  const std::string masked = weights + "    w = w * mask.unsqueeze(1).unsqueeze(1).to(w.dtype)\n";
  const std::string mixed = "    return torch.matmul(w, v) / w.sum(-1, keepdim=True)\n";
  CHECK(faults("script:" + attention::script_file::write_kernel(folder / "kernel.pt")) == Faults{});
  CHECK(faults(script(masked + mixed)) == Faults{});
  CHECK(faults(script(weights + mixed)) == Faults{"padding changes no valid token"});
  CHECK(faults(script(masked + "    w = w * (1 + torch.rand_like(w))\n" + mixed)) !=
        Faults{});  // another draw is another function, too
  CHECK(faults(script("    q = q.detach()\n" + masked + mixed)) == Faults{"gradients are those of differences"});
  CHECK(faults(script(masked + mixed, [](torch::jit::Module& module) {
          module.register_attribute("causal", c10::BoolType::get(), false);
        })) == Faults{"no token sees a later one"});
  CHECK(faults(script("    return v + float(\"inf\")\n")) ==
        Faults{"gives [b,h,n,d] of numbers", "padding changes no valid token", "gradients are those of differences"});
}

}  // namespace xformer::inspect
