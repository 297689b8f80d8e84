// `script:FILE`: a TorchScript module as an attention, against loops, and what is refused of a file.
#include "attention/script_file.h"
#include "attention/support.h"
#include "scratch.h"

namespace xformer::attention::script_test {

using namespace support;
using namespace script_file;
using scratch::message_of;

// What kKernel computes, in loops.
at::Tensor by_hand(const Inputs& in, const SequenceMask& mask, double temperature, double epsilon) {
  const at::Tensor products = at::matmul(in.q, in.k.transpose(-1, -2));
  const auto p = products.accessor<double, 4>();
  return dense_attention(
      in.v, mask, in.q.size(2),
      [&](int64_t b, int64_t h, int64_t i, int64_t j) { return std::exp(temperature * p[b][h][i][j]); }, epsilon);
}

TEST_CASE("a script computes what its file says, on ragged and causal input, with its options", "[script]") {
  const scratch::Folder folder;
  const std::string name = "script:" + write_kernel(folder / "My_Kernel.pt");
  const Inputs in = random_inputs(2, 2, 9, 5);
  for (const bool causal : {false, true})
    for (const double epsilon : {1e-6, 0.5}) {
      const SequenceMask mask = length_mask({9, 4}, 9, causal);
      const BuiltCore core = make_core(name, {{"epsilon", epsilon}}, {.causal = causal});
      const at::Tensor meant = valid_rows(by_hand(in, mask, 0.5, epsilon), mask);
      CHECK(max_difference(valid_rows(core(in.q, in.k, in.v, mask), mask), meant) < 1e-10);
      const SequenceMask all{{}, causal};
      CHECK(max_difference(core(in.q, in.k, in.v, all), by_hand(in, all, 0.5, epsilon)) < 1e-10);
    }
}

TEST_CASE("a script's parameters are the model's: trained, moved, its own in every layer", "[script]") {
  const scratch::Folder folder;
  const std::string name = "script:" + write_kernel(folder / "kernel.pt");
  const BuiltCore core = make_core(name), other = make_core(name);
  const Inputs in = random_inputs(1, 2, 6, 5);
  REQUIRE(core.parameters().size() == 1);
  CHECK(core.parameters()[0].first == "temperature");
  at::Tensor temperature = core.parameters()[0].second;
  core(in.q, in.k, in.v).sum().backward();
  REQUIRE(temperature.grad().defined());
  CHECK(temperature.grad().abs().max().item<double>() > 0);
  // As the optimiser puts it into its flat buffer.
  temperature.set_data(at::full({1}, 0.25, at::kDouble));
  CHECK(max_difference(core(in.q, in.k, in.v), by_hand(in, {}, 0.25, 1e-6)) < 1e-10);
  CHECK(max_difference(other(in.q, in.k, in.v), by_hand(in, {}, 0.5, 1e-6)) < 1e-10);
}

TEST_CASE("parameters and buffers of modules inside keep their path", "[script]") {
  const scratch::Folder folder;
  torch::jit::Module inside("__torch__.Inside");
  inside.register_attribute("training", c10::BoolType::get(), true);
  inside.register_parameter("weight", at::ones({1}), /*is_buffer=*/false);
  inside.register_buffer("table", at::ones({2}));
  const std::string path =
      write(folder / "nested.pt", "def forward(self, q, k, v, mask):\n    return v * self.inside.weight\n",
            [&](torch::jit::Module& module) { module.register_module("inside", inside); });
  std::vector<std::string> names;
  for (const auto& [name, tensor] : make_core("script:" + path).state()) names.push_back(name);
  CHECK(names == std::vector<std::string>{"inside.weight", "inside.table"});
  CHECK(tensor_meaning(resolve("script:" + path), "core.inside.weight") == "parameter of " + path);
}

TEST_CASE("a script has an mrs- form, which with scale 1 is the script", "[script]") {
  const scratch::Folder folder;
  const std::string path = write_kernel(folder / "kernel.pt");
  CHECK(resolve("MRS_script:" + path).name == "mrs-script:" + path);
  const Inputs in = random_inputs(2, 2, 9, 5);
  const SequenceMask mask = length_mask({9, 4}, 9);
  const at::Tensor plain = valid_rows(make_core("script:" + path)(in.q, in.k, in.v, mask), mask);
  const BuiltCore one = make_core("mrs-script:" + path, {{"scales", {1}}});
  CHECK(at::equal(valid_rows(one(in.q, in.k, in.v, mask), mask), plain));
  const BuiltCore two = make_core("mrs-script:" + path, {{"scales", {1, 3}}});
  CHECK(max_difference(valid_rows(two(in.q, in.k, in.v, mask), mask), plain) > 1e-3);
  CHECK(two.parameters().size() == 2);
}

TEST_CASE("attributes are options; what the program sets itself, tensors and private ones are none", "[script]") {
  const scratch::Folder folder;
  const std::string path =
      write(folder / "options.pt", "def forward(self, q, k, v, mask):\n    return v\n", [](torch::jit::Module& module) {
        kernel_attributes(module);
        module.register_attribute("dropout", c10::FloatType::get(), 0.0);
        module.register_attribute("window", c10::IntType::get(), int64_t{7});
        module.register_attribute("kind", c10::StringType::get(), std::string("near"));
        module.register_attribute("sharp", c10::BoolType::get(), true);
        module.register_attribute("sizes", c10::ListType::ofInts(), std::vector<int64_t>{2, 3});
        module.register_attribute("_private", c10::IntType::get(), int64_t{1});
        module.register_attribute("hidden_score", c10::FloatType::get(), -INFINITY);  // no plan could hold it
      });
  std::map<std::string, Json> found;
  for (const OptionInfo& option : resolve("script:" + path).options()) found[option.name] = option.fallback;
  CHECK(found.erase("sha256") == 1);
  CHECK(found == std::map<std::string, Json>{
                     {"epsilon", 1e-6}, {"window", 7}, {"kind", "near"}, {"sharp", true}, {"sizes", {2, 3}}});
  const OptionInfo window = resolve("script:" + path).options()[2];
  CHECK(message_of<UserError>([&] { (void)window.normalise("wide"); }) != "");
}

TEST_CASE("the file's hash is an option that only this file fulfils", "[script]") {
  const scratch::Folder folder;
  const std::string path = write_kernel(folder / "kernel.pt"), name = "script:" + path;
  const OptionInfo before = resolve(name).options()[0];
  REQUIRE(before.name == "sha256");
  CHECK(before.fallback.get<std::string>().size() == 64);
  CHECK(before.normalise(before.fallback) == before.fallback);
  CHECK(resolve(name).base == resolve(name).base);
  (void)write(path, "def forward(self, q, k, v, mask):\n    return v\n");
  const OptionInfo after = resolve(name).options()[0];
  CHECK(after.fallback != before.fallback);
  CHECK(message_of<UserError>([&] { (void)after.normalise(before.fallback); }).find(path) != std::string::npos);
}

TEST_CASE("what is no attention is refused with the reason", "[script]") {
  const scratch::Folder folder;
  const auto refusal = [](const std::string& path) {
    return message_of<DataError>([&] { (void)resolve("script:" + path); });
  };
  const auto says = [](const std::string& text, const std::string& words) {
    INFO(text);
    return text.find(words) != std::string::npos;
  };
  CHECK(says(refusal((folder / "none.pt").string()), "none.pt"));
  for (const std::string name : {"script:", "plugin:", "mrs-script:"})
    CHECK(says(message_of<UserError>([&] { (void)resolve(name); }), "needs the path of a file"));
  CHECK(says(refusal(scratch::put(folder / "text.pt", "no script").string()), "no TorchScript module"));
  CHECK(says(refusal(write(folder / "other.pt", "def apply(self, q):\n    return q\n")), "forward(q, k, v, mask)"));
  CHECK(says(refusal(write(folder / "three.pt", "def forward(self, q, k, v):\n    return v\n")), "mask: Tensor"));
  const std::string taken =
      write(folder / "taken.pt", "def forward(self, q, k, v, mask):\n    return v\n",
            [](torch::jit::Module& module) { module.register_attribute("scales", c10::IntType::get(), int64_t{1}); });
  CHECK(says(message_of<UserError>([&] { (void)resolve("mrs-script:" + taken); }), "'scales'"));

  const Inputs in = random_inputs(1, 2, 6, 5);
  const auto fails = [&](const std::string& body) {
    const BuiltCore core =
        make_core("script:" + write(folder / "wrong.pt", "def forward(self, q, k, v, mask):\n" + body));
    return message_of<UserError>([&] { (void)core(in.q, in.k, in.v); });
  };
  CHECK(says(fails("    return v[:, :, 1:]\n"), "[1,2,6,5]"));
  CHECK(says(fails("    return torch.matmul(q, k)\n"), "its forward failed"));
  const std::string plain = write(folder / "plain.pt", "def forward(self, q, k, v, mask):\n    return v\n");
  CHECK(says(message_of<UserError>([&] { (void)make_core("script:" + plain, {}, {.causal = true}); }), "causal"));
}

TEST_CASE("a script hears of training and of the dropout of weights, and its operations are counted", "[script]") {
  const scratch::Folder folder;
  const std::string path =
      write(folder / "drop.pt",
            "def forward(self, q, k, v, mask):\n"
            "    weights = torch.matmul(q, k.transpose(-1, -2))\n"
            "    return torch.dropout(torch.matmul(weights, v), self.dropout, self.training)\n",
            [](torch::jit::Module& module) { module.register_attribute("dropout", c10::FloatType::get(), 0.0); });
  const BuiltCore core = make_core("script:" + path, {}, {.dropout = 0.5});
  const Inputs in = random_inputs(1, 2, 8, 5);
  const at::Tensor out = core(in.q, in.k, in.v);
  CHECK(at::equal(out, core(in.q, in.k, in.v)));
  core.module->train(true);
  const double dropped = (core(in.q, in.k, in.v) == 0).to(at::kDouble).mean().item<double>();
  CHECK(dropped > 0.2);
  CHECK(dropped < 0.8);
  CHECK(core.module->cost({3, 2, 8, 8, 5}).flops_executed == 3.0 * 2 * 2 * (2 * 8 * 8 * 5));
}

}  // namespace xformer::attention::script_test
