// Axes of plots: from data to the page, and which numbers stand beside them.
#pragma once

#include <string>
#include <vector>

#include "reporting/svg_plot.h"

namespace xformer::reporting {

// Round numbers from low to high, some five of them: 1, 2 or 5 times a power of ten apart.
[[nodiscard]] std::vector<double> round_ticks(double low, double high);

// As they stand beside an axis, written alike: {33, 33.5} -> "33.0", "33.5"; {8192, 16384} -> "8,192", "16,384".
[[nodiscard]] std::vector<std::string> tick_texts(const std::vector<double>& ticks, bool logarithmic);

class Scale {
 public:
  // Data from low to high lies from `from` to `to`, `room` away from both ends.
  Scale(const PlotAxis& axis, double low, double high, double from, double to, double room);
  [[nodiscard]] double operator()(double value) const {
    return from_ + (place(value) - low_) / (high_ - low_) * (to_ - from_);
  }
  [[nodiscard]] const std::vector<double>& ticks() const { return ticks_; }
  [[nodiscard]] std::vector<std::string> texts() const { return tick_texts(ticks_, logarithmic_); }

 private:
  [[nodiscard]] double place(double value) const;

  bool logarithmic_;
  double from_, to_, low_, high_;
  std::vector<double> ticks_;
};

}  // namespace xformer::reporting
