// Records made up for tests of tables, pages and plots.
#pragma once

#include <catch2/catch.hpp>

#include <stdexcept>
#include <string>

#include "reporting/result_table.h"

namespace xformer::reporting::made {

inline RunRecord run(const std::string& model, const std::string& task, int64_t seed, double score) {
  RunRecord record;
  record.path = fmt::format("{}-{}-{}.json", model, task, seed);
  record.task = task;
  record.model = model;
  record.protocol = "p";
  record.status = "completed";
  record.seed = seed;
  record.metrics = {{accuracy_metric(), "test", score, 0.5}};
  record.test = EvaluationPoint{{}, {{"accuracy", score}}, 0, 1000};
  record.parameters = 100;
  record.software = {{"commit", "0123456789abcdef"}};
  record.data = RunRecord::Data{"fedcba9876543210", "", {}, {}, {}};
  record.command = "xformer train";
  return record;
}

// Never tested.
inline void forget_score(RunRecord& record) { record.metrics[0].value.reset(); }
inline void make_error(RunRecord& record) { record.metrics[0].spec = rmse_metric(); }

inline const ResultCell& cell(const ResultTable& table, const std::string& row, const std::string& column) {
  for (size_t i = 0; i < table.rows.size(); ++i)
    for (size_t j = 0; j < table.columns.size(); ++j)
      if (table.rows[i].label == row && table.columns[j].label == column) return table.cells[i][j];
  FAIL("no cell " << row << ", " << column);
  throw std::logic_error("no cell");
}

}  // namespace xformer::reporting::made
