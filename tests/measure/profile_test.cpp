// The profile: its sums, the products it holds the step against, what it refuses. Nothing here depends on how long a
// step takes.
#include "measure/profile.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <set>
#include <thread>

#include "bench_support.h"
#include "kernels/attention/attention.h"
#include "kernels/cpu/gemm.h"
#include "measure/profile_floor.h"
#include "scratch.h"
#include "tensor/memory.h"
#include "tensor/op_counter.h"
#include "tensor/op_profiler.h"

namespace xformer::measure {

namespace {

ProfileOptions small_profile(const std::string& model) {
  ProfileOptions options;
  options.model = model;
  options.length = 32;
  options.batch = 2;
  options.steps = 2;
  options.layers = {{"test",
                     {{"model.dim", 8},
                      {"model.head_dim", 4},
                      {"model.ff_dim", 8},
                      {"model.classifier_dim", 8},
                      {"model.layers", 1}}}};
  return options;
}

Json report_of(const ProfileOptions& options, const BenchRun& run = {}) {
  install_caching_allocator();  // as the program does: it counts memory
  return run_profile(options, profile_case(options), run);
}

double sum_of(const Json& rows, const char* key) {
  double sum = 0;
  for (const Json& row : rows) sum += row[key].get<double>();
  return sum;
}

std::string refusal(const ProfileOptions& options) {
  return scratch::message_of<UserError>([&] { static_cast<void>(profile_case(options)); });
}

}  // namespace

TEST_CASE("operators, and what is outside them, make up the whole step") {
  ProfileOptions options = small_profile("softmax");
  options.mode = GENERATE("train", "inference");
  const Json report = report_of(options);
  CHECK(report["schema_version"] == 4);
  for (const char* table : {"operators", "kinds"}) {
    const Json& rows = report[table];
    INFO(table);
    CHECK(sum_of(rows, "share") + report["outside_operators"]["share"].get<double>() == Approx(1));
    CHECK(sum_of(rows, "ms") + report["outside_operators"]["ms"].get<double>() ==
          Approx(report["profiled_ms"].get<double>()));
    CHECK(std::is_sorted(rows.begin(), rows.end(), [](auto& left, auto& right) { return left["ms"] > right["ms"]; }));
  }
  CHECK(report["outside_operators"]["ms"].get<double>() >= 0);
  CHECK(sum_of(report["kinds"], "calls") == sum_of(report["operators"], "calls"));
  std::set<std::string> names;
  for (const Json& row : report["operators"]) names.insert(row["operator"]);
  CHECK(names.contains("aten::_softmax"));
  CHECK(names.contains("aten::_softmax_backward_data") == (options.mode == "train"));
  CHECK(names.contains("xformer::dropout") == (options.mode == "train"));
  CHECK(report["conditions"]["dropout"] == (options.mode == "train"));
  for (const char* device : {"host_ms", "events", "captured"}) CHECK(report[device].is_null());
}

TEST_CASE("a profile counts the FLOPs that the bench counts, and names its products") {
  const ProfileOptions options = small_profile("softmax");
  const Json report = report_of(options);
  // As tests/training/bench_test.cpp derives it, of one sequence; forward and twice that backward.
  const double layer = 2.0 * 32 * 6 * 64 + 2 * 2.0 * 2 * 32 * 32 * 4, head = 2.0 * (8 * 8 + 8 * 10);
  const double flops = 3 * 2 * (layer + head);
  CHECK(report["floor"]["flops"].get<double>() == flops);
  CHECK(sum_of(report["operators"], "flops") == flops);
  const Json &products = report["products"], &floor = report["floor"], &peak = report["peaks"][0];
  CHECK(peak["precision"] == "fp32");
  CHECK(report["peaks"][1]["precision"] == "bf16");
  CHECK(sum_of(products, "flops") == floor["products_flops"].get<double>());
  CHECK(floor["products_flops"].get<double>() + floor["other_flops"].get<double>() == flops);
  CHECK(sum_of(products, "alone_ms") == Approx(floor["products_ms"].get<double>()));
  CHECK(floor["ms"].get<double>() ==
        Approx(floor["products_ms"].get<double>() +
               floor["other_flops"].get<double>() / peak["gflops_per_s"].get<double>() / 1e6));
  for (const char* table : {"operators", "kinds"})
    for (const Json& row : report[table]) {
      if (row["flops"] == 0) {
        CHECK(row["share_of_peak"].is_null());
        continue;
      }
      const double rate = row["flops"].get<double>() / row["ms"].get<double>() / 1e6;
      CHECK(row["gflops_per_s"].get<double>() == Approx(rate));
      CHECK(row["share_of_peak"].get<double>() == Approx(rate / peak["gflops_per_s"].get<double>()));
    }
  CHECK(floor["step_over_floor"].get<double>() ==
        Approx(report["step_ms"]["median"].get<double>() / floor["ms"].get<double>()));
  // Scores of 2 sequences and 2 heads: q k^T, once a step with the keys transposed.
  const auto scores = std::find_if(products.begin(), products.end(), [](const Json& row) {
    return row["batch"] == 4 && row["rows"] == 32 && row["inner"] == 4 && row["columns"] == 32;
  });
  REQUIRE(scores != products.end());
  CHECK((*scores)["type"] == "Float");
  CHECK((*scores)["flops"].get<double>() / (*scores)["calls"].get<double>() == 2.0 * 4 * 32 * 32 * 4);
}

TEST_CASE("the floor with memory: no operator is done before its products and before its bytes") {
  for (const char* model : {"softmax", "logsparse"}) {  // LibTorch's products; lists of keys
    const Json report = report_of(small_profile(model));
    const Json& floor = report["floor"];
    double gathered = 0, memory_ms = 0;
    for (const char* table : {"operators", "kinds"}) {
      double arithmetic_ms = 0, ms = 0;
      memory_ms = 0;
      for (const Json& row : report[table]) {
        arithmetic_ms += row["arithmetic_ms"].get<double>();
        memory_ms += row["memory_ms"].get<double>();
        ms += row["floor_ms"].get<double>();
        const double longer = std::max(row["arithmetic_ms"].get<double>(), row["memory_ms"].get<double>());
        if (std::string_view(table) == "kinds") {
          CHECK(row["floor_ms"].get<double>() >= Approx(longer));
          continue;
        }
        CHECK(row["floor_ms"] == longer);
        gathered += row["gathered_bytes"].get<double>();
        const double moved = row["read_bytes"].get<double>() + row["written_bytes"].get<double>();
        CHECK((row["memory_ms"].get<double>() > 0) == (moved > 0));
        if (longer == 0) CHECK(row["times_floor"].is_null());
        else CHECK(row["times_floor"].get<double>() == Approx(row["ms"].get<double>() / longer));
      }
      CHECK(arithmetic_ms == Approx(floor["ms"].get<double>()));
      CHECK(memory_ms == Approx(floor["memory_ms"].get<double>()));
      CHECK(ms == Approx(floor["with_memory_ms"].get<double>()));
    }
    CHECK(floor["with_memory_ms"].get<double>() >= floor["ms"].get<double>());
    CHECK(floor["with_memory_ms"].get<double>() <= floor["ms"].get<double>() + memory_ms);
    CHECK(floor["step_over_floor_with_memory"].get<double>() ==
          Approx(report["step_ms"]["median"].get<double>() / floor["with_memory_ms"].get<double>()));
    // Each of 32 rows reads keys and values of width 4 of 2 sequences and heads; backward three times as much.
    if (std::string_view(model) == "softmax") CHECK(gathered == 0);
    else CHECK(gathered > 4 * 2 * 2 * 32 * 2 * 4 * 4);
    // Of 64 KiB at least, and rows lie in what one call moves.
    REQUIRE_FALSE(report["copies"].empty());
    for (const Json& row : report["copies"]) {
      CHECK(row["bytes"] >= 1 << 16);
      CHECK(row["gb_per_s"].get<double>() > 0);
    }
  }
}

TEST_CASE("what is copied is copied") {
  CHECK(copy_rate(1 << 16) > 1e8);
  CHECK(copy_rate(1 << 16) < 1e13);
}

TEST_CASE("FLOPs of operators of our own are theirs, and no product of LibTorch's") {
  const at::Tensor q = at::rand({1, 2, 64, 8});  // [b,h,n,d]
  const OpProfiler profiler;
  static_cast<void>(kernels::attention(q, q, q, {}));
  const OpProfile& profile = profiler.profile();
  CHECK(profile.operators.at("xformer::attention_forward").flops == 2 * 2 * 2 * 64 * 64 * 8);
  CHECK(profile.operators.at("xformer::attention_forward").written_bytes >= q.numel() * 4);
  CHECK(profile.products.empty());
}

TEST_CASE("length and batch are the plan's where none is asked for") {
  ProfileOptions options = small_profile("linear");
  options.length = options.batch = 0;
  options.protocol = "mlpen";
  const BenchCase whole = profile_case(options);
  CHECK(whole.batch == 32);
  CHECK(whole.length == 2048);
  CHECK(whole.request.input.max_tokens == 2048);
  options.layers.push_back({"--set", {{"training.batch", 3}}});
  CHECK(profile_case(options).batch == 3);
  options.length = 100;  // exact, whatever the family pads to
  CHECK(profile_case(options).length == 100);
}

TEST_CASE("memory of a warm step is its own") {
  const Json softmax = report_of(small_profile("softmax"))["memory"];
  CHECK(softmax["system_requests_per_step"] == 0);
  CHECK(softmax["page_faults_per_step"].get<double>() >= 0);
  ProfileOptions longer = small_profile("softmax");
  longer.length = 256;
  // One tensor of attention weights more, at least.
  CHECK(report_of(longer)["memory"]["peak_bytes"].get<int64_t>() >
        softmax["peak_bytes"].get<int64_t>() + 2 * 2 * (256 * 256 - 32 * 32) * 4);
}

TEST_CASE("the share outside parallel regions is told where it can be") {
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Json one = report_of(small_profile("linear"))["outside_parallel"];
  CHECK(one["share"].is_null());
  CHECK(one["reason"] == "one thread");
  at::set_num_threads(2);
  const Json two = report_of(small_profile("linear"))["outside_parallel"];
  CHECK(two["spin_us"].get<double>() >= 0);
  if (two["share"].is_null()) {
    CHECK(contains(two["reason"], "OMP_WAIT_POLICY=passive"));
  } else {
    CHECK(two["share"].get<double>() >= 0);
    CHECK(two["share"].get<double>() <= 1);
    CHECK(two["share_of_processor_time"].get<double>() <= 1);
  }
  at::set_num_threads(before);
}

TEST_CASE("processor time of other threads is theirs, not the caller's") {
  const auto burn = [] {
    double sum = 0;
    for (int i = 0; i < 20'000'000; ++i) sum += i;
    return sum;
  };
  std::atomic<double> sink{0};
  const ProcessorSeconds mine = processor_seconds([&] { sink = burn(); });
  const ProcessorSeconds theirs = processor_seconds([&] { std::thread([&] { sink = burn(); }).join(); });
  CHECK(mine.own > 2 * mine.others);
  CHECK(theirs.others > 2 * theirs.own);
}

TEST_CASE("a product by itself is the product that was asked for") {
  const Product one{3, 16, 8, 24, true, false, at::kFloat};
  const OpProfiler profiler;
  CHECK(alone_seconds(one) > 0);
  REQUIRE(profiler.profile().products.size() == 1);
  const auto& [product, figures] = *profiler.profile().products.begin();
  CHECK((product == one));
  CHECK(figures.calls >= 4);
  CHECK(figures.flops == figures.calls * 2 * 3 * 16 * 8 * 24);
}

TEST_CASE("the peak is the best of its shapes on all threads together") {
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  const OpCounter counter;
  const Peak peak = product_peak(GENERATE(at::kFloat, at::kBFloat16));
  at::set_num_threads(before);
  CHECK(peak.rate > 0);
  CHECK_FALSE(peak.library.empty());
  CHECK(kernels::products_run().empty());  // a step's record does not take what was measured before it for its own
  // Each thread multiplies at least four times: once to warm, and three times.
  CHECK(counter.counts().flops >= 2 * 4 * 2 * peak.rows * peak.columns * peak.inner);
}

TEST_CASE("kinds of operators") {
  const auto kind = [](const char* name) { return operator_kind(name, {}); };
  CHECK(kind("aten::addmm") == "products");
  CHECK(kind("aten::baddbmm_") == "products");
  CHECK(kind("xformer::attention_backward") == "attention");
  CHECK(kind("aten::_scaled_dot_product_flash_attention_for_cpu") == "attention");
  CHECK(kind("xformer::dropout") == "dropout");
  CHECK(kind("aten::bernoulli_") == "dropout");
  CHECK(kind("aten::_softmax_backward_data") == "softmax");
  CHECK(kind("aten::native_layer_norm_backward") == "norm");
  CHECK(kind("xformer::dropout_add_norm") == "norm");
  CHECK(kind("aten::linalg_vector_norm") == "reductions");
  CHECK(kind("aten::gelu_backward") == "activation");
  CHECK(kind("aten::copy_") == "copies");
  CHECK(kind("aten::embedding_dense_backward") == "embedding");
  CHECK(kind("xformer::linear_backward") == "products");
  CHECK(kind("xformer::project_tokens_backward") == "products");
  CHECK(kind("xformer::residual_norm_backward") == "norm");
  CHECK(kind("xformer::residual_forward") == "elementwise");
  CHECK(kind("xformer::adamw") == "optimiser");
  CHECK(kind("aten::view") == "other");
  OpFigures tagged;
  tagged.pointwise = true;
  CHECK(operator_kind("aten::add_", tagged) == "elementwise");
  tagged = {};
  tagged.reduces = true;
  CHECK(operator_kind("aten::prod", tagged) == "reductions");
}

TEST_CASE("the tables have a line for every operator that takes time, every kind and every product") {
  Json report = report_of(small_profile("softmax"));  // whose scores are products of LibTorch's
  REQUIRE_FALSE(report["products"].empty());
  Json& operators = report["operators"];
  // Shares on either side of the least that has a line of its own.
  for (Json& row : operators) row["share"] = 0.1;
  operators.back()["share"] = operators[operators.size() - 2]["share"] = 0.0004;
  // On a device what is as short as its events comes out as no time at all, and has no rate.
  Json& product = report["products"][0];
  product["ms"] = 0.0, product["gflops_per_s"] = nullptr;
  const std::string text = profile_markdown(report);
  CHECK(text.starts_with("`softmax` on listops (mlpen): training steps of 2 x 32 tokens\n"));
  for (const Json& row : operators)
    CHECK(contains(text, fmt::format("| `{}` | {} |", row["operator"].get<std::string>(),
                                     row["kind"].get<std::string>())) == (row["share"] == 0.1));
  CHECK(contains(text, "\n| 2 more, each below 0.05 % | |"));
  for (const Json& row : report["kinds"])
    CHECK(contains(text, fmt::format("\n| {} | ", row["kind"].get<std::string>())));
  const auto lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  // Title, nine findings and conditions with blank lines between, and tables of a heading of two lines.
  const size_t tables =
      2 + (operators.size() - 1) + 1 + 1 + 2 + report["kinds"].size() + 1 + 1 + 2 + report["products"].size();
  CHECK(lines == 2 + 9 + 1 + tables + 2);
  CHECK(contains(text,
                 fmt::format("\n- peak in bf16: {:.1f} GFLOP/s", report["peaks"][1]["gflops_per_s"].get<double>())));
  CHECK(contains(text, " | 0.00 | - | "));
  CHECK(contains(text, " GFLOP | GFLOP/s | of peak | floor, ms | times floor |\n"));
  CHECK(contains(text, "\nConditions: random tokens, every position valid; cpu on "));
}

TEST_CASE("a profile checks every word before it builds a model, and stops between two steps") {
  const ProfileOptions good = small_profile("linear");
  CHECK(refusal(good).empty());
  const auto with = [&](const std::function<void(ProfileOptions&)>& change) {
    ProfileOptions options = good;
    change(options);
    return refusal(options);
  };
  CHECK(contains(with([](auto& o) { o.model = "linfomer"; }), "did you mean 'linformer'?"));
  CHECK(contains(with([](auto& o) { o.model = ""; }), "--model"));
  CHECK(contains(with([](auto& o) { o.mode = "trian"; }), "did you mean 'train'?"));
  CHECK(contains(with([](auto& o) { o.task = "lisops"; }), "did you mean 'listops'?"));
  CHECK(contains(with([](auto& o) { o.steps = 0; }), "--steps"));
  CHECK(contains(with([](auto& o) { o.layers.push_back({"--set", {{"model.dmi", 8}}}); }), "'model.dim'?"));
  CHECK(contains(with([](auto& o) {
                   o.length = 17;
                   o.layers.push_back({"--set", {{"model.length_rule", "power_of_two"}}});
                 }),
                 "--length 17: linear would pad it to 32"));
  BenchRun run;
  run.cuda_graph = "on";
  CHECK(contains(scratch::message_of<UserError>([&] { report_of(good, run); }), "not on cpu"));
  run.cuda_graph = "auto";
  int64_t told = 0;
  run.progress = [&](const std::string&, double fraction) {
    ++told;
    CHECK(fraction < 1);
  };
  run.stop_requested = [&] { return told == 3; };
  CHECK(contains(scratch::message_of<Interrupted>([&] { report_of(good, run); }), "not written"));
  CHECK(told == 3);
}

}  // namespace xformer::measure
