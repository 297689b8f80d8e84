// What a person sees of a sweep: one line for all that runs, and one that stays for every cell that ends.
#pragma once

#include "cli/progress.h"
#include "sweep/sweep.h"

namespace xformer::engine {

class SweepView : public sweep::SweepObserver {
 public:
  explicit SweepView(bool quiet);
  void on_message(const std::string& line) override;
  void on_progress(const sweep::SweepProgress& progress) override;

 private:
  bool quiet_;
  cli::ProgressLine line_;
};

}  // namespace xformer::engine
