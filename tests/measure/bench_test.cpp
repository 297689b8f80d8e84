// The bench: which rows it makes, what it counts and measures, what it refuses. Nothing here depends on how long a step
// takes.
#include "bench_support.h"

#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "core/text.h"
#include "scratch.h"
#include "tasks/batch.h"
#include "tensor/memory.h"

namespace xformer::measure {

namespace {

std::string refusal(const BenchOptions& options) {
  return scratch::message_of<UserError>([&] { static_cast<void>(bench_cases(options)); });
}

}  // namespace

TEST_CASE("a bench has a row for every length, batch and model, in this order") {
  BenchOptions options = small_bench({"softmax", "linear"}, {16, 24});
  options.batches = {1, 3};
  options.interleave = GENERATE(false, true);
  int64_t steps = 0;
  double before = -1;
  BenchRun run;
  run.progress = [&](const std::string& text, double fraction) {
    ++steps;
    CHECK(fraction > before);
    CHECK(fraction < 1);
    CHECK(contains(text, "length"));
    before = fraction;
  };
  const Json report = report_of(options, run);
  CHECK(steps == 8 * (options.interleave ? 2 * 3 + 2 : 3 + 2));
  CHECK(report["schema_version"] == 1);
  CHECK(report["conditions"]["steps"] == 2);
  CHECK(report["conditions"]["warmup"] == 3);
  CHECK(report["conditions"]["interleaved"] == options.interleave);
  CHECK(report["conditions"]["dropout"] == true);
  CHECK(report["conditions"]["device"] == "cpu");
  for (const char* key : {"command", "software", "hardware", "date"}) CHECK(report.contains(key));
  std::vector<std::string> places;
  for (const Json& row : report["rows"]) {
    places.push_back(fmt::format("{} {} {}", row["length"].get<int64_t>(), row["batch"].get<int64_t>(),
                                 row["model"].get<std::string>()));
    const Json& ms = row["step_ms"];
    CHECK(row["status"] == "ok");
    CHECK(row["timed_steps"] == 2);
    CHECK(row["warmup_steps"] == 3);
    CHECK(ms["p10"].get<double>() > 0);
    CHECK(ms["p10"].get<double>() <= ms["median"].get<double>());
    CHECK(ms["median"].get<double>() <= ms["p90"].get<double>());
    const double examples = 1e3 * row["batch"].get<double>() / ms["median"].get<double>();
    CHECK(row["examples_per_s"].get<double>() == Approx(examples));
    CHECK(row["tokens_per_s"].get<double>() == Approx(examples * row["length"].get<double>()));
    CHECK(row["captured"] == false);
    CHECK(row["peak_host_bytes"] == row["peak_bytes"]);
    for (const char* key : {"host_ms", "device_ms"}) CHECK(row[key].is_null());
  }
  CHECK(places == std::vector<std::string>{"16 1 softmax", "16 1 linear", "16 3 softmax", "16 3 linear", "24 1 softmax",
                                           "24 1 linear", "24 3 softmax", "24 3 linear"});
  for (size_t i = 0; i < 8; i += 2) {
    const Json &first = report["rows"][i], &second = report["rows"][i + 1];
    CHECK(first["against"]["softmax"] == Json{{"speed", 1.0}, {"memory", 1.0}});
    const Json& ratios = second["against"]["softmax"];
    CHECK(ratios["speed"].get<double>() ==
          Approx(first["step_ms"]["median"].get<double>() / second["step_ms"]["median"].get<double>()));
    CHECK(ratios["memory"].get<double>() ==
          Approx(second["peak_bytes"].get<double>() / first["peak_bytes"].get<double>()));
  }
}

TEST_CASE("a bench has rows of several widths and precisions, each compared with its own") {
  BenchOptions options = small_bench({"softmax", "linear"}, {16});
  options.layers = {{"test", {{"model.layers", 1}}}};
  BenchOptions plain = options;
  options.widths = {16, 32};
  options.precisions = {"fp32", "bf16"};
  const std::vector<BenchCase> cases = bench_cases(options);
  const Json own = bench_cases(plain).front().plan.options.values;
  std::vector<std::string> rows;
  for (const BenchCase& one : cases) {
    rows.push_back(fmt::format("{} {} {}", one.width, one.precision, one.plan.model));
    CHECK(one.label == fmt::format("{} dim={} {}", one.plan.model, one.width, one.precision));
    const Json& values = one.plan.options.values;
    CHECK(values["model.dim"] == one.width);
    CHECK(values["training.precision"] == one.precision);
    CHECK(values["model.heads"] == own["model.heads"]);
    for (const char* key : {"model.head_dim", "model.ff_dim", "model.classifier_dim"})
      CHECK(values[key].get<int64_t>() * own["model.dim"].get<int64_t>() == own[key].get<int64_t>() * one.width);
  }
  CHECK(rows == std::vector<std::string>{"16 fp32 softmax", "16 fp32 linear", "16 bf16 softmax", "16 bf16 linear",
                                         "32 fp32 softmax", "32 fp32 linear", "32 bf16 softmax", "32 bf16 linear"});
  options.interleave = GENERATE(false, true);
  const Json report = report_of(options, {});
  CHECK(report["conditions"]["precision"] == "fp32, bf16");
  for (size_t i = 0; i < 8; ++i) {
    const Json& row = report["rows"][i];
    CHECK(row["width"] == (i < 4 ? 16 : 32));
    CHECK(row["precision"] == (i % 4 < 2 ? "fp32" : "bf16"));
    CHECK(row["kernels_launched"].is_null());
    const Json& base = report["rows"][i - i % 2];
    CHECK(row["against"]["softmax"]["speed"].get<double>() ==
          Approx(base["step_ms"]["median"].get<double>() / row["step_ms"]["median"].get<double>()));
  }
  CHECK(report["rows"][4]["parameters"] > report["rows"][0]["parameters"]);
}

TEST_CASE("a batch of random places has every task's shape") {
  for (const data::DatasetDescriptor& dataset : data::datasets().all()) {
    if (dataset.name.find('<') != std::string::npos) continue;
    CAPTURE(dataset.name);
    Json options = Json::object();
    for (const OptionInfo& option : dataset.options) options[option.name] = option.fallback;
    BenchCase wanted;
    wanted.shape = dataset.shape(options);
    wanted.batch = 2;
    wanted.length = 3;
    tasks::DeviceBatch batch(at::kCPU, 2, 3, wanted.shape);
    CHECK_NOTHROW(batch.load(bench_batch(wanted)));
  }
}

TEST_CASE("rows are compared with the models that --against names") {
  BenchOptions options = small_bench({"linear", "softmax", "softmax-fused"}, {16});
  options.steps = 1;
  options.against = {"softmax", "softmax_fused"};
  const Json report = report_of(options);
  for (const Json& row : report["rows"]) CHECK(row["against"].size() == 2);
  CHECK(report["rows"][1]["against"]["softmax"]["speed"] == 1.0);
  CHECK(report["rows"][2]["against"]["softmax-fused"]["memory"] == 1.0);
  CHECK(contains(bench_markdown(report), "| speed / `softmax` | memory / `softmax` | speed / `softmax-fused` |"));
  options.against = {"softmx"};
  CHECK(contains(scratch::message_of<UserError>([&] { (void)bench_cases(options); }), "did you mean 'softmax'"));
}

TEST_CASE("what softmax counts is what its formula says") {
  BenchOptions options = small_bench({"softmax"}, {32});
  for (const std::string mode : {"train", "inference"}) {
    options.mode = mode;
    const Json row = report_of(options)["rows"][0];
    INFO(mode);
    // Per sequence: q, k, v, output and two feed-forward maps of 8 x 8, scores and mixing of 2 heads of 4; then the
    // head.
    const double layer = 2.0 * 32 * 6 * 64 + 2 * 2.0 * 2 * 32 * 32 * 4, head = 2.0 * (8 * 8 + 8 * 10);
    CHECK(row["flops"]["forward_formula"] == 2 * (layer + head));
    CHECK(row["flops"]["step_formula"] == (mode == "train" ? 3 : 1) * 2 * (layer + head));
    CHECK(row["flops"]["step_counted"].get<double>() == row["flops"]["step_formula"].get<double>());
    CHECK(row["operator_calls"].get<int64_t>() > 20);
    CHECK(row["backend"] == "explicit");
  }
  CHECK(report_of(options)["conditions"]["dropout"] == false);  // inference drops nothing
}

TEST_CASE("peak memory is the model's own, in turns or alone") {
  install_caching_allocator();
  BenchOptions options = small_bench({"softmax", "linear", "softmax"}, {512});
  const Json alone = report_of(options)["rows"];
  const int64_t scores = 2 * 2 * 512 * 512 * 4;  // bytes of one tensor of attention weights
  CHECK(alone[0]["peak_bytes"].get<int64_t>() > alone[1]["peak_bytes"].get<int64_t>() + scores);
  CHECK(alone[0]["peak_bytes"] == alone[2]["peak_bytes"]);
  options.interleave = true;
  const Json turns = report_of(options)["rows"];
  for (size_t i = 0; i < 3; ++i)
    for (const char* key : {"peak_bytes", "flops", "operator_calls", "parameters"})
      CHECK(alone[i][key] == turns[i][key]);
}

TEST_CASE("an option of one attention goes to the models that have it") {
  BenchOptions options = small_bench({"linformer", "linear"}, {32});
  const auto parameters = [&](size_t row) { return report_of(options)["rows"][row]["parameters"].get<int64_t>(); };
  const int64_t before = parameters(0), other = parameters(1);
  options.layers.push_back({"--set", {{"attention.projected_len", 4}}});
  CHECK(parameters(0) == before - 2 * 32 * (32 - 4));  // E per head, 32 rows at most for 32 tokens
  CHECK(parameters(1) == other);
  options.models = {"linear"};
  CHECK(contains(refusal(options), "attention.projected_len"));
}

TEST_CASE("a row that runs out of memory says so and the bench goes on") {
  // 2 heads x n^2 floats are 535 MB: more than the address space that is left to the process here.
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  REQUIRE(pages > 0);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  rlimit limited = before;
  limited.rlim_cur =
      std::min<rlim_t>(before.rlim_max, static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE)) + (rlim_t{400} << 20));
  BenchOptions options = small_bench({"softmax", "linear"}, {8176});
  options.batches = {1};
  options.steps = 1;
  options.mode = "inference";
  options.interleave = GENERATE(false, true);
  REQUIRE(setrlimit(RLIMIT_AS, &limited) == 0);
  Json report;
  try {
    report = report_of(options);
  } catch (...) {
    setrlimit(RLIMIT_AS, &before);
    throw;
  }
  REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
  const Json& rows = report["rows"];
  CHECK(rows[0]["status"] == "out-of-memory");
  CHECK(contains(rows[0]["message"], "out of memory"));
  CHECK(rows[0]["step_ms"].is_null());
  CHECK(rows[1]["status"] == "ok");
  CHECK(rows[1]["timed_steps"] == 1);
  CHECK(rows[1]["against"]["softmax"].is_null());
  const std::string table = bench_markdown(report);
  CHECK(contains(table, "| out of memory |"));
  CHECK(contains(table, "`softmax` at length 8176, batch 1: out of memory"));
}

TEST_CASE("a paced bench takes a step when it is asked to") {
  BenchOptions options = small_bench({"linear"}, {16});
  options.paced = true;
  options.steps = 3;
  const int64_t asked = GENERATE(0, 2, 5);
  std::vector<std::string> events;
  int64_t turns = 0;
  BenchRun run;
  run.ready = [&](const Json& row) {
    CHECK(row["parameters"].get<int64_t>() > 0);
    CHECK(row["peak_bytes"].get<int64_t>() > 0);
    events.push_back("ready");
  };
  run.turn = [&] { return turns++ < asked; };
  run.timed = [&](const std::string& model, const StepTime& time) {
    CHECK(time.ms > 0);
    CHECK_FALSE((time.host_ms || time.device_ms));  // which a device has
    events.push_back(model);
  };
  const Json report = report_of(options, run), row = report["rows"][0];
  const int64_t taken = std::min<int64_t>(asked, 3);  // --steps is the most
  std::vector<std::string> expected(static_cast<size_t>(taken) + 1, "linear");
  expected[0] = "ready";
  CHECK(events == expected);
  CHECK(report["conditions"]["paced"] == true);
  CHECK(row["status"] == "ok");
  CHECK(row["timed_steps"] == taken);
  CHECK(row["step_ms"].is_null() == (taken == 0));
  CHECK(row["peak_process_bytes"].get<int64_t>() > row["peak_bytes"].get<int64_t>());
  CHECK(contains(bench_markdown(report), fmt::format("paced, {} taken", taken)));
}

TEST_CASE("a paced bench whose row cannot be measured waits for nobody") {
  BenchOptions options = small_bench({"linear"}, {16});
  options.paced = true;
  BenchRun run;
  run.memory_limit = 10;
  run.turn = [] {
    FAIL("asked for a step");
    return false;
  };
  CHECK(report_of(options, run)["rows"][0]["status"] == "too-large");
}

TEST_CASE("a bench can have the valid lengths of the first training examples") {
  BenchOptions options = small_bench({"linear", "softmax"}, {24, 48});
  options.batches = {2, 5};
  options.layers.push_back({"--set",
                            {{"data.min_length", 10},
                             {"data.max_length", 60},
                             {"data.train_examples", 5},
                             {"data.dev_examples", 2},
                             {"data.test_examples", 2}}});
  std::vector<BenchCase> cases = bench_cases(options);
  for (const BenchCase& one : cases) CHECK(one.valid_lengths.empty());
  const scratch::Folder folder;
  data::DataLocation location;
  location.cache = folder / "cache";
  const auto nothing = [](auto&&...) {};
  take_valid_lengths(cases, location, nothing);
  const auto source = data::find_dataset("listops").open(cases[0].plan.group("data"), location, nothing);
  bool padded = false;
  for (const BenchCase& one : cases) {
    const data::HostBatch batch = bench_batch(one);
    REQUIRE(one.valid_lengths.size() == static_cast<size_t>(one.batch));
    REQUIRE(batch.whole("tokens").size() == static_cast<size_t>(one.batch * one.length));
    for (int64_t row = 0; row < one.batch; ++row) {
      const auto tokens = static_cast<int64_t>(source->read(data::Split::kTrain, row).ids[0].size());
      CHECK(one.valid_lengths[static_cast<size_t>(row)] == std::min(tokens, one.length));
      for (int64_t i = 0; i < one.length; ++i) {
        const auto place = static_cast<size_t>(row * one.length + i);
        const bool valid = i < tokens;
        padded = padded || !valid;
        CHECK((batch.key_valid[place] == 1) == valid);
        CHECK((batch.whole("tokens")[place] > 0) == valid);
      }
    }
  }
  CHECK(padded);
  const Json report = run_bench(options, cases, BenchRun{});
  for (size_t i = 0; i < cases.size(); ++i) CHECK(report["rows"][i]["valid_lengths"] == Json(cases[i].valid_lengths));
  CHECK(contains(report["conditions"]["input"], "training examples"));
  options.batches = {6};
  cases = bench_cases(options);
  CHECK(contains(scratch::message_of<DataError>([&] { take_valid_lengths(cases, location, nothing); }),
                 "a batch of 6 needs as many training examples, listops has 5"));
}

TEST_CASE("the table has a line for every row and ends with the conditions") {
  const Json report = report_of(small_bench({"softmax", "linear"}, {16}));
  std::istringstream text(bench_markdown(report));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  REQUIRE(lines.size() == 6);
  for (size_t i = 0; i < 4; ++i) CHECK(std::count(lines[i].begin(), lines[i].end(), '|') == 17);
  CHECK(lines[2].starts_with("| `softmax` | 16 | 2 |"));
  CHECK(lines[3].starts_with("| `linear` | 16 | 2 |"));
  CHECK(lines[4].empty());
  CHECK(lines[5].starts_with("Conditions: training steps of listops (mlpen)"));
  for (const char* part : {"cpu", "fp32", "deterministic on", "2 timed steps after 3 of warm-up", "LibTorch"})
    CHECK(contains(lines[5], part));
}

TEST_CASE("a bench that is told to stop ends between two steps") {
  const BenchOptions options = small_bench({"linear"}, {16});
  int64_t steps = 0;
  BenchRun run;
  run.progress = [&](const std::string&, double) { ++steps; };
  run.stop_requested = [&] { return steps == 4; };
  const auto stopped = scratch::message_of<Interrupted>([&] { report_of(options, run); });
  CHECK(contains(stopped, "not written"));
  CHECK(steps == 4);
}

TEST_CASE("a bench checks every word before it builds a model") {
  const BenchOptions good = small_bench({"linear"}, {16});
  CHECK(refusal(good).empty());
  const auto with = [&](const std::function<void(BenchOptions&)>& change) {
    BenchOptions options = good;
    change(options);
    return refusal(options);
  };
  CHECK(contains(with([](auto& o) { o.models = {"linear", "linfomer"}; }), "did you mean 'linformer'?"));
  CHECK(contains(with([](auto& o) { o.models = {}; }), "--models"));
  CHECK(contains(with([](auto& o) { o.models = {""}; }), "--models"));
  CHECK(contains(with([](auto& o) { o.lengths = {16, 0}; }), "--lengths: expected whole numbers from 1, got 0"));
  CHECK(contains(with([](auto& o) { o.batches = {-1}; }), "--batch: expected whole numbers from 1, got -1"));
  CHECK(contains(with([](auto& o) { o.mode = "trian"; }), "did you mean 'train'?"));
  CHECK(contains(with([](auto& o) { o.task = "lisops"; }), "did you mean 'listops'?"));
  CHECK(contains(with([](auto& o) { o.protocol = "mlpn"; }), "did you mean 'mlpen'?"));
  CHECK(contains(with([](auto& o) {
                   o.paced = true;
                   o.lengths = {16, 32};
                 }),
                 "--paced takes one row"));
  CHECK(contains(with([](auto& o) { o.widths = {16, 0}; }), "--widths: expected whole numbers from 1, got 0"));
  CHECK(contains(with([](auto& o) {
                   o.layers.clear();
                   o.widths = {17};
                 }),
                 "--widths 17: model.head_dim of 32 at model.dim 64"));
  CHECK(contains(with([](auto& o) { o.precisions = {"fp32", "fp8"}; }), "training.precision"));
  CHECK(contains(with([](auto& o) {
                   o.widths = {16};  // small_bench sets model.dim
                 }),
                 "not with both"));
  CHECK(contains(with([](auto& o) {
                   o.precisions = {"fp32"};
                   o.layers.push_back({"--set", {{"training.precision", "bf16"}}});
                 }),
                 "not with both"));
  const auto set = [&](const char* key, const Json& value) {
    return with([&](auto& o) { o.layers.push_back({"--set", {{key, value}}}); });
  };
  CHECK(contains(set("training.precision", "fp8"), "training.precision"));
  CHECK(contains(set("model.dmi", 8), "'model.dim'?"));
  CHECK(contains(set("training.batch", 4), "--batch"));
  CHECK(set("model.length_rule", "power_of_two").empty());  // 16 is one
  CHECK(contains(with([](auto& o) {
                   o.lengths = {17};
                   o.layers.push_back({"--set", {{"model.length_rule", "power_of_two"}}});
                 }),
                 "--lengths 17: linear would pad it to 32"));
  CHECK(contains(scratch::message_of<UserError>([&] {
                   BenchRun run;
                   run.cuda_graph = "on";
                   report_of(good, run);
                 }),
                 "--cuda-graph on"));
}

}  // namespace xformer::measure
