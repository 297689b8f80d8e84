// The bench's report as a Markdown table.
#include "core/text.h"
#include "measure/bench.h"

namespace xformer::measure {

namespace {

std::string cell(const Json& value, double unit, const char* form) {
  return value.is_null() ? "-" : fmt::format(fmt::runtime(form), value.get<double>() / unit);
}

}  // namespace

std::string bench_markdown(const Json& report) {
  const bool on_device = report["conditions"]["device"] != "cpu";
  std::string text = "| model | length | batch | step ms | p10 | p90", rule = "\n| --- ";
  int columns = 7;
  if (on_device) text += " | device ms | host ms", columns += 2;
  text += " | examples/s | tokens/s";
  for (const auto& [name, ratios] : report["rows"][0]["against"].items()) {
    text += fmt::format(" | speed / `{}` | memory / `{}`", name, name);
    columns += 2;
  }
  text += " | peak memory in tensors | parameters | GFLOP by formula | GFLOP counted | operator calls | backend |";
  for (int i = 0; i < columns + 5; ++i) rule += "| ---: ";
  text += rule + "| --- |\n";
  std::string notes;
  for (const Json& row : report["rows"]) {
    const bool timed = !row["step_ms"].is_null(), counted = !row["operator_calls"].is_null();
    const auto time = [&](const char* key) { return timed ? cell(row["step_ms"][key], 1, "{:.3f}") : "-"; };
    const auto flops = [&](const char* key) { return counted ? cell(row["flops"][key], 1e9, "{:.4g}") : "-"; };
    std::string backend = row["backend"].is_null() ? "-" : row["backend"].get<std::string>();
    if (row["captured"] == true) backend += ", captured";
    std::string apart;
    for (const char* key : {"device_ms", "host_ms"})
      if (on_device) apart += cell(row[key], 1, "{:.3f}") + " | ";
    std::string against;
    for (const auto& [name, ratios] : row["against"].items())
      against += ratios.is_null()
                     ? "- | - | "
                     : fmt::format("{:.2f} | {:.2f} | ", ratios["speed"].get<double>(), ratios["memory"].get<double>());
    text += fmt::format("| `{}` | {} | {} | {} | {} | {} | {}{} | {} | {}{} | {} | {} | {} | {} | {} |\n",
                        row["label"].get<std::string>(), row["length"].get<int64_t>(), row["batch"].get<int64_t>(),
                        row["status"] == "ok"          ? time("median")
                        : row["status"] == "too-large" ? "too large"
                                                       : "out of memory",
                        time("p10"), time("p90"), apart, cell(row["examples_per_s"], 1, "{:.1f}"),
                        cell(row["tokens_per_s"], 1, "{:.0f}"), against,
                        row["peak_bytes"].is_null() ? "-" : format_bytes(row["peak_bytes"].get<uint64_t>()),
                        cell(row["parameters"], 1, "{:.0f}"), flops("step_formula"), flops("step_counted"),
                        cell(row["operator_calls"], 1, "{:.0f}"), backend);
    if (row["status"] != "ok")
      notes +=
          fmt::format("\n`{}` at length {}, batch {}: {}\n", row["label"].get<std::string>(),
                      row["length"].get<int64_t>(), row["batch"].get<int64_t>(), row["message"].get<std::string>());
  }
  const Json &on = report["conditions"], &software = report["software"], &hardware = report["hardware"];
  const std::string machine =
      hardware.contains("gpu") ? hardware["gpu"].value("name", "GPU") : hardware["processor"].get<std::string>();
  const auto word = [&](const char* key) { return on[key].get<std::string>(); };
  // Nothing where no product was a tile's.
  const std::string products = word("products"),
                    kernels = word("kernels") + (products.empty() ? "" : " (products by " + products + ")");
  const auto yes = [&](const char* key) { return on[key].get<bool>() ? "on" : "off"; };
  return text + notes +
         fmt::format(
             "\nConditions: {} of {} ({}), {}; {} on {}, {} threads, {}, deterministic {}, kernels {}, CUDA graphs {}, "
             "dropout {}; {} timed steps after {} of warm-up at least, {}; xformer {} ({}{}), LibTorch {}; {}\n",
             on["mode"] == "train" ? "training steps" : "forward passes", word("task"), word("protocol"), word("input"),
             word("device"), machine, on["threads"].get<int64_t>(), word("precision"), yes("deterministic"), kernels,
             word("cuda_graph"), yes("dropout"), on["steps"].get<int64_t>(), on["warmup"].get<int64_t>(),
             on["interleaved"].get<bool>() ? "models in turns"
             : on["paced"].get<bool>() ? fmt::format("paced, {} taken", report["rows"][0]["timed_steps"].get<int64_t>())
                                       : "one model after the other",
             software["xformer"].get<std::string>(), software["commit"].get<std::string>().substr(0, 12),
             software["dirty"].get<bool>() ? ", modified" : "", software["libtorch"].get<std::string>(),
             report["date"].get<std::string>());
}

}  // namespace xformer::measure
