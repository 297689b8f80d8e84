// At every place one of the vectors that the sequence holds (`values`), by a vector of that width (Zaheer et al., "Big
// Bird", 2020, section 3.4, asks for the furthest from its own).
//
// The loss is the sum over valid places of |y - a|^2, its weight their number. The headline is the share of places
// whose y is nearer to the vector a asked for than to any other of the sequence, and no further from it than from -u,
// the mirror image of the place's own: among unit vectors the nearest to -u is the furthest from u, so that without
// this a model that sees nothing but u would be right everywhere. Beside it stands the root of the mean |y - a|^2.
#include <ATen/Functions.h>

#include <cmath>
#include <limits>

#include "tasks/task.h"

namespace xformer::tasks::kinds::place_vector {

namespace {

// For each point [b,n,k] the place of the nearest of the values [b,n,k] that are valid [b,n], -> [b,n]. In double,
// which tells any two vectors of floats apart: |p - v|^2 without |p|^2.
at::Tensor nearest_place(const at::Tensor& points, const at::Tensor& values, const at::Tensor& valid) {
  const at::Tensor vectors = values.to(at::kDouble);
  const at::Tensor distance =
      vectors.square().sum(-1).unsqueeze(1) - 2 * at::matmul(points.to(at::kDouble), vectors.transpose(1, 2));
  return distance.masked_fill(valid.logical_not().unsqueeze(1), std::numeric_limits<double>::infinity()).argmin(-1);
}

// [b,n], nowhere true where there is no place.
at::Tensor found_places(const at::Tensor& outputs, const at::Tensor& answers, const at::Tensor& values,
                        const at::Tensor& valid) {
  const at::Tensor points = outputs.to(at::kDouble);
  const at::Tensor from_answer = (points - answers).square().sum(-1), from_mirror = (points + values).square().sum(-1);
  return nearest_place(outputs, values, valid)
      .eq(nearest_place(answers, values, valid))
      .logical_and(from_answer.le(from_mirror))
      .logical_and(valid);
}

// |y - a|^2, [b,n]; 0 where there is no place, and there no gradient, whatever the output is.
at::Tensor squared_distances(const at::Tensor& outputs, const at::Tensor& answers, const at::Tensor& valid) {
  const at::Tensor apart = outputs - answers.to(outputs.scalar_type());
  return at::where(valid.unsqueeze(-1), apart, at::zeros({}, apart.options())).square().sum(-1);
}

// Of rows that hold an example, [b,n].
at::Tensor valid_places(const BatchView& batch) {
  return batch.inputs.key_valid.logical_and(batch.row_valid.gt(0).unsqueeze(1));
}

// A row for each sequence: its places, those found, and the sum of squared distances.
class VectorAnswers : public Answers {
 public:
  void add(const at::Tensor& outputs, const data::HostBatch& batch) override {
    const int64_t rows = outputs.size(0), length = outputs.size(1), width = outputs.size(2);
    const auto floats = [&](const char* name) {
      return at::from_blob(const_cast<float*>(batch.numbers(name).data()), {rows, length, width}, at::kFloat).clone();
    };
    Sequences next{floats("values"),
                   floats("answer"),
                   at::from_blob(const_cast<uint8_t*>(batch.key_valid.data()), {rows, length}, at::kByte).to(at::kBool),
                   {batch.indices.begin(), batch.indices.begin() + rows}};
    const auto [found, squared] = judged(outputs, next);
    const at::Tensor places = next.valid.sum(1);
    for (int64_t row = 0; row < rows; ++row)
      rows_.push_back({next.indices[static_cast<size_t>(row)], places.const_data_ptr<int64_t>()[row],
                       found.const_data_ptr<int64_t>()[row], squared.const_data_ptr<double>()[row]});
    batches_.push_back(std::move(next));
  }

  void write(const Path& path, const AnswerNames& names) const override {
    const NameColumns more(names, rows_.front().index);
    write_file_atomically(path, [&](const ByteSink& sink) {
      sink(fmt::format("index,places,right,squared_distance{}\n", more.head(/*labels=*/false)));
      for (const Row& row : rows_)
        sink(fmt::format("{},{},{},{:.9g}{}\n", row.index, row.places, row.right, row.squared, more.cells(row.index)));
    });
  }

  // Of the mean of all answers.
  std::vector<Metric> constant_answer() const override {
    double places = 0, right = 0, squared = 0;
    at::Tensor sum;
    for (const Sequences& one : batches_) {
      const at::Tensor own = (one.answers.to(at::kDouble) * one.valid.unsqueeze(-1)).sum(at::IntArrayRef({0, 1}));
      sum = sum.defined() ? sum + own : own;
      places += one.valid.sum().item<double>();
    }
    for (const Sequences& one : batches_) {
      const auto [found, distance] = judged((sum / places).expand(one.answers.sizes()), one);
      right += found.sum().item<double>();
      squared += distance.sum().item<double>();
    }
    return {{accuracy_metric(), right / places}, {rmse_metric(), std::sqrt(squared / places)}};
  }

 private:
  struct Sequences {
    at::Tensor values, answers, valid;
    std::vector<int64_t> indices;
  };
  struct Row {
    int64_t index, places, right;
    double squared;
  };
  // By row: how many places are found [b] int64, the sum of squared distances [b] double.
  static std::pair<at::Tensor, at::Tensor> judged(const at::Tensor& outputs, const Sequences& of) {
    return {found_places(outputs, of.answers, of.values, of.valid).sum(1),
            squared_distances(outputs.to(at::kDouble), of.answers, of.valid).sum(1)};
  }

  std::vector<Sequences> batches_;
  std::vector<Row> rows_;
};

class PlaceVector : public Task {
 public:
  explicit PlaceVector(int64_t width) : width_(width) {}

  OutputSpec output() const override { return {.columns = width_, .per_position = true}; }

  at::Tensor weight(const BatchView& batch) const override { return valid_places(batch).sum(at::kDouble); }

  at::Tensor loss(const at::Tensor& outputs, const BatchView& batch) const override {
    XF_ASSERT(outputs.dim() == 3 && outputs.size(2) == width_, "{} outputs where the task needs {} at a place",
              outputs.size(-1), width_);
    return squared_distances(outputs, batch.field("answer"), valid_places(batch)).sum();
  }

  MeterList meters() const override {
    MeterList result;
    result.push_back(mean_meter(accuracy_metric(), [](const at::Tensor& outputs, const BatchView& batch) {
      return found_places(outputs, batch.field("answer"), batch.field("values"), valid_places(batch)).sum();
    }));
    result.push_back(loss_meter(rmse_metric(), [](double loss) { return std::sqrt(loss); }));
    return result;
  }

  std::unique_ptr<Answers> answers() const override { return std::make_unique<VectorAnswers>(); }

 private:
  int64_t width_;
};

}  // namespace

TaskKind describe() {
  return {.name = "place-vector",
          .summary = "at every place one of the sequence's own vectors, by the nearest to the one predicted",
          .fields = {"answer"},
          .make = [](const data::DataShape& shape, const LossOptions&) {
            XF_ASSERT(shape.vocabulary == 0 && shape.target.fields.front().k == shape.width,
                      "answers of {} numbers at places of {}", shape.target.fields.front().k, shape.width);
            return std::make_unique<PlaceVector>(shape.width);
          }};
}

}  // namespace xformer::tasks::kinds::place_vector
