#include "reporting/plot_axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/text.h"

namespace xformer::reporting {
namespace {

// Powers of ten, and their halves and fifths where there are few.
std::vector<double> log_ticks(double low, double high) {
  std::vector<double> result;
  const bool few = std::log10(high / low) < 2.5;
  for (int power = static_cast<int>(std::floor(std::log10(low))); std::pow(10, power) <= high; ++power)
    for (const double times : few ? std::vector<double>{1, 2, 5} : std::vector<double>{1})
      result.push_back(times * std::pow(10, power));
  return result;
}

// Digits behind the point that a number needs; at most six.
int decimals_of(double value) {
  int decimals = 0;
  for (double scaled = std::abs(value); decimals < 6 && std::abs(scaled - std::round(scaled)) > 1e-6; ++decimals)
    scaled *= 10;
  return decimals;
}

}  // namespace

std::vector<double> round_ticks(double low, double high) {
  if (!(high > low)) return {low};
  const double rough = (high - low) / 5, power = std::pow(10, std::floor(std::log10(rough)));
  const double step = power * (rough / power < 1.5 ? 1 : rough / power < 3.5 ? 2 : rough / power < 7.5 ? 5 : 10);
  std::vector<double> result;
  for (double tick = std::ceil(low / step - 1e-9) * step; tick <= high + 1e-9 * step; tick += step)
    result.push_back(std::abs(tick) < 1e-9 * step ? 0 : tick);
  return result;
}

std::vector<std::string> tick_texts(const std::vector<double>& ticks, bool logarithmic) {
  constexpr double kMillion = 1e6, kGrouped = 1e4;
  double largest = 0;
  int decimals = 0;
  for (const double tick : ticks) {
    largest = std::max(largest, std::abs(tick));
    decimals = std::max(decimals, decimals_of(tick));
  }
  std::vector<std::string> result;
  for (const double tick : ticks) {
    if (std::abs(tick) >= kMillion) result.push_back(fmt::format("{:g}M", tick / kMillion));
    else if (largest >= kGrouped && std::abs(tick) >= 1)
      result.push_back((tick < 0 ? "-" : "") + format_count(static_cast<uint64_t>(std::llround(std::abs(tick)))));
    else
      result.push_back(logarithmic || largest >= kGrouped ? fmt::format("{:g}", tick)
                                                          : fmt::format("{:.{}f}", tick, decimals));
  }
  return result;
}

Scale::Scale(const PlotAxis& axis, double low, double high, double from, double to, double room)
    : logarithmic_(axis.logarithmic), from_(from), to_(to), low_(place(low)), high_(place(high)) {
  if (high_ - low_ < 1e-12) {
    // One value: half of it on either side, as far as its digits go.
    const double half = logarithmic_ ? 0.5 : std::max(0.5, std::abs(low_) / 20);
    low_ -= half, high_ += half;
  }
  const double share = room / std::max(1.0, std::abs(to - from) - 2 * room), more = share * (high_ - low_);
  low_ -= more, high_ += more;
  const double first = logarithmic_ ? std::pow(10, low_) : low_, last = logarithmic_ ? std::pow(10, high_) : high_;
  for (const double tick : !axis.ticks.empty() ? axis.ticks
                           : logarithmic_      ? log_ticks(first, last)
                                               : round_ticks(first, last))
    if ((!logarithmic_ || tick > 0) && place(tick) >= low_ && place(tick) <= high_) ticks_.push_back(tick);
}

double Scale::place(double value) const { return logarithmic_ ? std::log10(value) : value; }

}  // namespace xformer::reporting
