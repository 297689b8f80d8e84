// What tasks of two classes are judged by beside accuracy: whether scores put class 1 above class 0, and how well class
// 1 is found.
//
//   AUC  the share of all pairs of one example of each class whose example of class 1 has the higher score, equal
//        scores counting half: exact, from ranks, of equal scores the middle one (Hanley, McNeil 1982). 1/2, as of
//        scores that say nothing, where a class does not occur.
//   Gini 2 AUC - 1, what banks call it: 0 of scores that say nothing, 1 of those that put every pair in order.
//   F1   2 tp / (2 tp + fp + fn) of class 1, right, wrongly given and missed (van Rijsbergen 1979). 0 where it neither
//        occurs nor is given.
#pragma once

#include "tasks/task.h"

namespace xformer::tasks {

[[nodiscard]] MetricSpec auc_metric();
[[nodiscard]] MetricSpec gini_metric();
[[nodiscard]] MetricSpec f1_metric();

// Of outputs [b, columns], [b].
using OfRows = std::function<at::Tensor(const at::Tensor& outputs)>;

// `score`: the higher, the more it says class 1; one that is no number counts as the lowest. `predict`: to 0 or 1.
void add_two_class_meters(MeterList& meters, OfRows score, OfRows predict);
[[nodiscard]] std::unique_ptr<Meter> gini_meter(OfRows score);
// Puts the metric of this name, which must be among them, in front.
void lead_with(const std::string& metric, MeterList& meters);

// Those of label_answers, with what a constant answer reaches by these two.
// `further`: what it reaches by other metrics of the task.
[[nodiscard]] std::unique_ptr<Answers> two_class_answers(OfRows predict, std::vector<Metric> further = {});

}  // namespace xformer::tasks
