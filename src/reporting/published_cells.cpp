#include "reporting/published_cells.h"

#include <algorithm>

#include "reporting/record_selection.h"

namespace xformer::reporting {
namespace {

bool is_of_model(const PublishedValue& value, const RunRecord& run) {
  return value.model == run.model || value.model == run.name;
}

bool has_options(const RunRecord& run, const Json& options) {
  for (const auto& [key, option] : options.items())
    if (!run.plan.contains(key) || run.plan[key] != option) return false;
  return true;
}

bool is_judged_by(const PublishedValue& value, const MetricSpec& metric) {
  return value.metric.empty() || metric.name.empty() || value.metric == metric.name;
}

Json part(const Json& options, bool of_data) {
  Json result = Json::object();
  for (const auto& [key, option] : options.items())
    if (key.starts_with("data.") == of_data) result[key] = option;
  return result;
}

class Placement {
 public:
  Placement(ResultTable& table, bool all)
      : table_(table), all_(all), run_rows_(table.rows.size()), run_columns_(table.columns.size()) {}

  void add(const PublishedValue& value) {
    const bool of_row = value.task == kAverage && is_judged_by(value, accuracy_metric());
    if ((of_row ? add_average(value) : add_beside_runs(value)) || !all_) return;
    if (of_row) {
      table_.rows[own_row(value)].published_average.push_back(value);
      return;
    }
    const size_t column = column_of(value), row = row_of(value);
    put(row, column, value);
  }

  // Columns of one heading stand side by side.
  void gather() {
    std::vector<size_t> order;
    for (size_t first = 0; first < table_.columns.size(); ++first)
      for (size_t column = first; column < table_.columns.size(); ++column)
        if (table_.columns[column].label == table_.columns[first].label &&
            std::find(order.begin(), order.end(), column) == order.end())
          order.push_back(column);
    const auto ordered = [&](const auto& all) {
      std::decay_t<decltype(all)> result;
      for (const size_t column : order) result.push_back(all[column]);
      return result;
    };
    table_.columns = ordered(table_.columns);
    for (auto& row : table_.cells) row = ordered(row);
  }

 private:
  template <class Fits>
  [[nodiscard]] bool any_run(size_t row, size_t column, const Fits& fits) const {
    const auto& asked = table_.cells[row][column].asked;
    return std::any_of(asked.begin(), asked.end(), [&](const RunRecord* run) { return fits(*run); });
  }

  bool add_average(const PublishedValue& value) {
    const std::vector<size_t> rows = rows_of(value);
    for (const size_t row : rows) table_.rows[row].published_average.push_back(value);
    return !rows.empty();
  }

  bool add_beside_runs(const PublishedValue& value) {
    bool placed = false;
    for (size_t row = 0; row < run_rows_; ++row)
      for (size_t column = 0; column < run_columns_; ++column) {
        if (!any_run(row, column, [&](const RunRecord& run) {
              return run.task == value.task && is_of_model(value, run) && has_options(run, value.options);
            }))
          continue;
        const ResultColumn& own = table_.columns[column];
        if (is_judged_by(value, own.metric)) table_.cells[row][column].published.push_back(value);
        else if (all_) put(row, new_column({own.label, own.task, published_metric(value)}), value);
        placed = true;
      }
    return placed;
  }

  void put(size_t row, size_t column, PublishedValue value) {
    if (row >= run_rows_) value.remark.clear();  // the row is named by it
    table_.cells[row][column].published.push_back(std::move(value));
  }

  // Of the same model and options, whatever the task.
  [[nodiscard]] std::vector<size_t> rows_of(const PublishedValue& value) const {
    const Json options = part(value.options, /*of_data=*/false);
    std::vector<size_t> result;
    for (size_t row = 0; row < run_rows_; ++row)
      for (size_t column = 0; column < run_columns_; ++column)
        if (any_run(row, column,
                    [&](const RunRecord& run) { return is_of_model(value, run) && has_options(run, options); })) {
          result.push_back(row);
          break;
        }
    return result;
  }

  size_t row_of(const PublishedValue& value) {
    const std::vector<size_t> rows = rows_of(value);
    return rows.size() == 1 && value.remark.empty() ? rows.front() : own_row(value);
  }

  size_t own_row(const PublishedValue& value) {
    const std::string label = with_options(value.model, part(value.options, /*of_data=*/false)) +
                              (value.remark.empty() ? "" : ", " + value.remark);
    for (size_t row = run_rows_; row < table_.rows.size(); ++row)
      if (table_.rows[row].label == label) return row;
    table_.rows.push_back({.label = label});
    table_.cells.emplace_back(table_.columns.size());
    return table_.rows.size() - 1;
  }

  size_t column_of(const PublishedValue& value) {
    const Json options = part(value.options, /*of_data=*/true);
    std::vector<size_t> fitting;
    for (size_t column = 0; column < run_columns_; ++column)
      for (size_t row = 0; row < run_rows_; ++row)
        if (any_run(row, column,
                    [&](const RunRecord& run) { return run.task == value.task && has_options(run, options); })) {
          fitting.push_back(column);
          break;
        }
    if (fitting.size() == 1) {
      const ResultColumn& own = table_.columns[fitting.front()];
      return is_judged_by(value, own.metric) ? fitting.front()
                                             : new_column({own.label, own.task, published_metric(value)});
    }
    return new_column({with_options(value.task, options), value.task, published_metric(value)});
  }

  // That of publications alone under this heading and metric.
  size_t new_column(const ResultColumn& wanted) {
    for (size_t column = run_columns_; column < table_.columns.size(); ++column)
      if (table_.columns[column].label == wanted.label && table_.columns[column].metric.name == wanted.metric.name)
        return column;
    table_.columns.push_back(wanted);
    for (auto& row : table_.cells) row.emplace_back();
    return table_.columns.size() - 1;
  }

  ResultTable& table_;
  bool all_;
  size_t run_rows_, run_columns_;  // those of publications alone stand behind them
};

}  // namespace

void place_published(ResultTable& table, const std::vector<PublishedValue>& published, bool all) {
  Placement placement(table, all);
  for (const PublishedValue& value : published) placement.add(value);
  placement.gather();
}

}  // namespace xformer::reporting
