// Documents of pieces from their files to the loss: SentencePiece and LibTorch in one program, models that learn, and
// what a step with 32,000 pieces keeps in memory.
#include <ATen/Functions.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "data/datasets.h"
#include "scratch.h"
#include "tasks/task.h"
#include "tensor/memory.h"

namespace xformer::tasks::pieces_test {

namespace {

struct Learnt {
  double first = 0, last = 0, pieces = 0;  // losses in nats, and as many as a uniform model has
};

// Steps of plain gradient descent on train, by the task's own loss.
Learnt learn(const std::string& task, const std::string& family, int64_t steps) {
  const scratch::Folder cache;
  Json options = Json::object();
  for (const OptionInfo& option : data::find_dataset(task).options) options[option.name] = option.fallback;
  options.update({{"length", 32}, {"pieces", 400}});
  data::DataLocation location;
  location.folder = Path(XFORMER_SOURCE) / "datasets/text-lm/sample";
  location.cache = cache.path();
  const auto source = data::find_dataset(task).open(options, location, {});
  const data::DataShape& shape = source->info().shape;
  const auto kind = make_task(shape);
  models::ModelRequest request;
  request.input = {.max_tokens = shape.max_len,
                   .vocabulary = shape.vocabulary,
                   .segments = shape.further.empty() ? 0 : shape.further[0].range};
  request.outputs = kind->output().columns;
  request.causal = kind->output().causal;
  request.attention = attention::resolve("softmax");
  for (const OptionInfo& option : request.attention.options()) request.attention_options[option.name] = option.fallback;
  for (const OptionInfo& option : models::all_families().get(family).options)
    request.model_options[option.name] = option.fallback;
  request.model_options.update({{"dim", 32}, {"head_dim", 16}, {"layers", 1}, {"dropout", 0.0}, {"loss_block", 50}});
  const auto model = models::all_families().get(family).build(request);
  const std::vector<std::pair<std::string, at::Tensor>> trained = models::trainable(*model);
  constexpr int64_t kRows = 8;
  DeviceBatch batch(at::kCPU, kRows, 32, shape);
  Learnt result;
  result.pieces = std::log(static_cast<double>(shape.target.classes()));
  data::HostBatch host;
  for (int64_t step = 0; step < steps; ++step) {
    std::vector<int64_t> rows;
    for (int64_t row = 0; row < kRows; ++row) rows.push_back((step * kRows + row) % source->size(data::Split::kTrain));
    data::fill_batch(*source, data::Split::kTrain, {rows, 32}, kRows, host);
    batch.load(host);
    const BatchView& view = batch.widened();
    const at::Tensor loss = kind->loss(model->forward(view.inputs), view) / kind->weight(view);
    loss.backward();
    const at::NoGradGuard no_grad;
    for (const auto& [name, tensor] : trained) {
      tensor.sub_(tensor.grad(), 0.5);
      tensor.mutable_grad().zero_();
    }
    (step == 0 ? result.first : result.last) = loss.item<double>();
  }
  return result;
}

}  // namespace

TEST_CASE("models of pieces begin at what a uniform one has and learn, in one program with SentencePiece", "[pieces]") {
  for (const auto& [task, family] :
       {std::pair{"text-lm/mill", "decoder"}, std::pair{"text-mlm/mill", "token-encoder"}}) {
    CAPTURE(task);
    const Learnt learnt = learn(task, family, 80);
    CHECK(std::abs(learnt.first - learnt.pieces) < 0.3);
    CHECK(learnt.last < learnt.pieces - 1);
  }
}

TEST_CASE("a step with 32,000 pieces never holds the scores of all its places", "[pieces]") {
  install_caching_allocator();
  constexpr int64_t kPieces = 32'000, kPlaces = 1'024;
  const auto peak = [&](int64_t block) {
    const data::DataShape shape{
        .max_len = kPlaces,
        .vocabulary = kPieces + 1,
        .zero_is_padding = false,
        .target =
            data::place_target(kPieces, {.symbol = "piece", .scoring = "window", .perplexity = true, .words = true})};
    models::ModelRequest request;
    request.input = {.max_tokens = kPlaces, .vocabulary = shape.vocabulary};
    request.outputs = kPieces;
    request.causal = true;
    request.attention = attention::resolve("none");
    for (const OptionInfo& option : models::all_families().get("decoder").options)
      request.model_options[option.name] = option.fallback;
    request.model_options.update({{"dim", 8}, {"head_dim", 4}, {"layers", 1}, {"loss_block", block}});
    const auto model = models::all_families().get("decoder").build(request);
    Stream numbers(2);
    DeviceBatch batch(at::kCPU, 1, kPlaces, shape);
    batch.load(data::random_batch(shape, 1, kPlaces, numbers));
    const BatchView& view = batch.widened();
    reset_host_peak();
    const int64_t before = host_memory().live_bytes;
    make_task(shape)->loss(model->forward(view.inputs), view).backward();
    return host_memory().peak_bytes - before;
  };
  constexpr int64_t kAll = kPlaces * kPieces * static_cast<int64_t>(sizeof(float));
  CHECK(peak(0) > kAll);
  CHECK(peak(64) < kAll / 4);
}

}  // namespace xformer::tasks::pieces_test
