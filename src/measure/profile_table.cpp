// The profile's report as Markdown tables.
#include <fmt/ranges.h>

#include <algorithm>

#include "core/text.h"
#include "measure/profile.h"

namespace xformer::measure {

namespace {

double number(const Json& value) { return value.get<double>(); }

std::string cell(const Json& value, double unit, const char* form) {
  return value.is_null() ? "-" : fmt::format(fmt::runtime(form), number(value) / unit);
}

// Operators below it are summed in one line; the report has them all.
constexpr double kLeastShare = 0.0005;

// What every row ends with.
constexpr const char* kColumns =
    " calls | ms | share | GB read | GB written | GB gathered | GFLOP | GFLOP/s | of peak | floor, ms | times floor "
    "|\n";
constexpr const char* kRule = "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n";

std::string figures(const Json& row) {
  const bool multiplies = !row["flops"].is_null() && number(row["flops"]) > 0;
  const bool gathers = !row["gathered_bytes"].is_null() && number(row["gathered_bytes"]) > 0;
  return fmt::format(" {:.4g} | {:.2f} | {:.1f} % | {} | {} | {} | {} | {} | {} | {} | {} |\n", number(row["calls"]),
                     number(row["ms"]), 100 * number(row["share"]), cell(row["read_bytes"], 1e9, "{:.3f}"),
                     cell(row["written_bytes"], 1e9, "{:.3f}"),
                     gathers ? cell(row["gathered_bytes"], 1e9, "{:.3f}") : std::string("-"),
                     multiplies ? cell(row["flops"], 1e9, "{:.3f}") : std::string("-"),
                     cell(row["gflops_per_s"], 1, "{:.1f}"), cell(row["share_of_peak"], 0.01, "{:.0f} %"),
                     cell(row["floor_ms"], 1, "{:.2f}"), cell(row["times_floor"], 1, "{:.1f}"));
}

std::string outside_row(const Json& outside, const char* names) {
  return fmt::format("{} - | {:.2f} | {:.1f} % | - | - | - | - | - | - | - | - |\n", names, number(outside["ms"]),
                     100 * number(outside["share"]));
}

std::string operator_table(const Json& report) {
  std::string text = fmt::format("| operator | kind |{}| --- | --- {}", kColumns, kRule);
  Json others{{"calls", 0.0},
              {"ms", 0.0},
              {"share", 0.0},
              {"read_bytes", nullptr},
              {"written_bytes", 0.0},
              {"gathered_bytes", 0.0},
              {"flops", 0.0},
              {"gflops_per_s", nullptr},
              {"share_of_peak", nullptr},
              {"floor_ms", 0.0},
              {"times_floor", nullptr}};
  int64_t folded = 0;
  for (const Json& row : report["operators"]) {
    if (number(row["share"]) < kLeastShare) {
      ++folded;
      for (const char* key : {"calls", "ms", "share", "written_bytes", "gathered_bytes", "flops", "floor_ms"})
        if (!row[key].is_null()) others[key] = number(others[key]) + number(row[key]);
      continue;
    }
    text += fmt::format("| `{}` | {} |{}", row["operator"].get<std::string>(), row["kind"].get<std::string>(),
                        figures(row));
  }
  if (folded > 0) text += fmt::format("| {} more, each below {} % | |{}", folded, 100 * kLeastShare, figures(others));
  return text + outside_row(report["outside_operators"], "| outside operators | |");
}

std::string kind_table(const Json& report) {
  std::string text = fmt::format("| kind |{}| --- {}", kColumns, kRule);
  for (const Json& row : report["kinds"]) text += fmt::format("| {} |{}", row["kind"].get<std::string>(), figures(row));
  return text + outside_row(report["outside_operators"], "| outside operators |");
}

std::string product_table(const Json& products) {
  if (products.empty()) return "";
  std::string text =
      "\n| product | calls | GFLOP | ms | GFLOP/s | alone, ms | alone, GFLOP/s |\n"
      "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n";
  const auto side = [](const Json& row, const char* rows, const char* columns, const char* transposed) {
    const int64_t batch = row["batch"];
    return fmt::format("[{}{}, {}]{}", batch > 1 ? fmt::format("{}, ", batch) : "", row[rows].get<int64_t>(),
                       row[columns].get<int64_t>(), row[transposed].get<bool>() ? "^T" : "");
  };
  for (const Json& row : products)
    text +=
        fmt::format("| {} x {}{} | {:.4g} | {:.3f} | {:.2f} | {} | {:.2f} | {:.1f} |\n",
                    side(row, "rows", "inner", "left_transposed"), side(row, "inner", "columns", "right_transposed"),
                    row["type"] == "Float" ? "" : " " + row["type"].get<std::string>(), number(row["calls"]),
                    number(row["flops"]) / 1e9, number(row["ms"]), cell(row["gflops_per_s"], 1, "{:.1f}"),
                    number(row["alone_ms"]), number(row["alone_gflops_per_s"]));
  return text;
}

// From the slowest to the fastest.
std::string rates(const Json& copies) {
  double least = 0, most = 0;
  for (const Json& row : copies) {
    const double rate = number(row["gb_per_s"]);
    least = least == 0 ? rate : std::min(least, rate);
    most = std::max(most, rate);
  }
  return copies.size() > 1 ? fmt::format("{:.1f} to {:.1f}", least, most) : fmt::format("{:.1f}", most);
}

// What the clocks of host and device say of a step on a device; nothing on the CPU.
std::string device_lines(const Json& report) {
  const Json &events = report["events"], &captured = report["captured"], &host = report["host_ms"];
  if (events.is_null()) return "";
  std::string text;
  if (!host.is_null()) text += fmt::format("- of the step the host takes {:.2f} ms to ask for it\n", number(host));
  text += captured["step_ms"].is_null()
              ? fmt::format("- not captured: {}\n", captured["reason"].get<std::string>())
              : fmt::format("- captured in a CUDA graph: {:.2f} ms, {} kernels\n",
                            number(captured["step_ms"]["median"]), cell(captured["kernels_launched"], 1, "{:.0f}"));
  return text + fmt::format("- an operator's events take {:.2f} us each, which is taken off; {}\n",
                            number(events["us"]),
                            events["queued_ahead"].get<bool>()
                                ? "every step was in the queue before the device began it"
                                : "the host was not always ahead: times hold what the device waited for it");
}

// Every distinct finding in a line of its own.
std::string summary(const Json& report) {
  const Json &on = report["conditions"], &step = report["step_ms"], &floor = report["floor"],
             &memory = report["memory"], &parallel = report["outside_parallel"];
  std::string text = fmt::format(
      "`{}` on {} ({}): {} of {} x {} tokens\n\n"
      "- step: {:.2f} ms (median of {}; 10th to 90th percentile {:.2f} to {:.2f}); {:.2f} with every operator "
      "timed{}\n",
      on["model"].get<std::string>(), on["task"].get<std::string>(), on["protocol"].get<std::string>(),
      on["mode"] == "train" ? "training steps" : "forward passes", on["batch"].get<int64_t>(),
      on["length"].get<int64_t>(), number(step["median"]), on["steps"].get<int64_t>(), number(step["p10"]),
      number(step["p90"]), number(report["profiled_ms"]), on["device"] == "cpu" ? "" : ", by the device's clock");
  text += device_lines(report);
  const std::string where = on["device"] == "cpu"
                                ? fmt::format(" in cache on {} threads at once", on["threads"].get<int64_t>())
                                : std::string();
  for (const Json& peak : report["peaks"])
    text += fmt::format("- peak in {}: {:.1f} GFLOP/s by {}, products of {} x {} x {} (rows, columns, inner){}\n",
                        peak["precision"].get<std::string>(), number(peak["gflops_per_s"]),
                        peak["library"].get<std::string>(), peak["rows"].get<int64_t>(), peak["columns"].get<int64_t>(),
                        peak["inner"].get<int64_t>(), where);
  text += fmt::format("- arithmetic floor: {:.2f} ms for {:.4g} GFLOP, {} GFLOP/s; the step takes {} times that\n",
                      number(floor["ms"]), number(floor["flops"]) / 1e9, cell(floor["gflops_per_s"], 1, "{:.1f}"),
                      cell(floor["step_over_floor"], 1, "{:.2f}"));
  if (number(floor["products_flops"]) > 0)
    text += fmt::format("- of it {:.4g} GFLOP are LibTorch's products: {:.2f} ms, each alone on warm buffers\n",
                        number(floor["products_flops"]) / 1e9, number(floor["products_ms"]));
  text += fmt::format("- of it {:.4g} GFLOP are in fused operators, taken to run at the peak{}\n",
                      number(floor["other_flops"]) / 1e9,
                      floor["not_counted"].empty()
                          ? ""
                          : fmt::format("; without {}, whose FLOPs are not counted on a device",
                                        fmt::join(floor["not_counted"].get<std::vector<std::string>>(), ", ")));
  text += fmt::format(
      "- floor with memory: {:.2f} ms, where no operator is done before its bytes are copied ({:.2f} ms at {} GB/s); "
      "the "
      "step takes {} times that\n",
      number(floor["with_memory_ms"]), number(floor["memory_ms"]), rates(report["copies"]),
      cell(floor["step_over_floor_with_memory"], 1, "{:.2f}"));
  text += parallel["share"].is_null()
              ? fmt::format("- outside parallel regions: not measured ({})\n", parallel["reason"].get<std::string>())
              : fmt::format(
                    "- outside parallel regions: {:.1f} % of the step, {:.1f} % of the main thread's processor time\n",
                    100 * number(parallel["share"]), 100 * number(parallel["share_of_processor_time"]));
  text += fmt::format("- memory: {} in tensors at the peak; {:.4g} requests of the system",
                      format_bytes(memory["peak_bytes"].get<uint64_t>()), number(memory["system_requests_per_step"]));
  if (!memory["page_faults_per_step"].is_null())
    text += fmt::format(" and {:.4g} page faults", number(memory["page_faults_per_step"]));
  return text + " a step\n\n";
}

}  // namespace

std::string profile_markdown(const Json& report) {
  const Json &on = report["conditions"], &software = report["software"];
  const auto word = [&](const char* key) { return on[key].get<std::string>(); };
  // Nothing where no product was a tile's.
  const std::string products = word("products"),
                    kernels = word("kernels") + (products.empty() ? "" : " (products by " + products + ")");
  const auto yes = [&](const char* key) { return on[key].get<bool>() ? "on" : "off"; };
  return summary(report) + operator_table(report) + "\n" + kind_table(report) + product_table(report["products"]) +
         fmt::format(
             "\nConditions: {}; {} on {}, {} threads, {}, deterministic {}, kernels {}, backend {}, dropout {}; {} "
             "steps "
             "after {} of warm-up, and as many with every operator timed; xformer {} ({}{}), LibTorch {}; {}\n",
             word("input"), word("device"), report["hardware"]["processor"].get<std::string>(),
             on["threads"].get<int64_t>(), word("precision"), yes("deterministic"), kernels,
             report["backend"].get<std::string>(), yes("dropout"), on["steps"].get<int64_t>(),
             on["warmup"].get<int64_t>(), software["xformer"].get<std::string>(),
             software["commit"].get<std::string>().substr(0, 12), software["dirty"].get<bool>() ? ", modified" : "",
             software["libtorch"].get<std::string>(), report["date"].get<std::string>());
}

}  // namespace xformer::measure
