// The encoder-decoder against its equations; one symbol at a time is all at once; searches against exhaustive ones.
#include <ATen/Functions.h>

#include <catch2/catch.hpp>

#include "core/error.h"
#include "core/pair_symbols.h"
#include "models/decoding.h"
#include "models/family_model.h"

namespace xformer::models::encoder_decoder_test {

using namespace family_model;

namespace {

constexpr int64_t kSource = 20, kWritten = 12, kIds = 9, kClasses = 7;

ModelRequest writer(const std::string& attention, const Json& options = Json::object(),
                    const InputSpec& input = {
                        .max_tokens = kSource, .vocabulary = kIds, .sequences = 2, .written = kWritten}) {
  Json small{{"dim", 16}, {"head_dim", 8}, {"ff_dim", 24}};
  small.update(options);
  return request_for("encoder-decoder", attention, input, input.vocabulary - kEndId, small);
}

// In double precision; weights that begin at zero or nearly so would hide what they do.
std::shared_ptr<Model> built(const ModelRequest& request, double noise = 0.1, uint64_t seed = 7) {
  const auto model = build("encoder-decoder", request);
  model->to(at::kDouble);
  const InitStream draws(seed);
  for (const auto& [name, tensor] : trainable(*model))
    tensor.data().add_(draws.normal(name, tensor.sizes(), 1).to(at::kDouble), noise);
  return model;
}

// Two pairs: a source of all places and a text that fills what is written, and shorter ones.
ModelInput pairs() {
  ModelInput input{(at::arange(4 * kSource, at::kLong) * 5 % (kIds - 2) + 2).view({2, 2, kSource}),
                   at::ones({2, 2, kSource}, at::kBool)};
  input.tokens[1][0].narrow(0, 13, kSource - 13).zero_();
  input.key_valid[1][0].narrow(0, 13, kSource - 13).fill_(false);
  return input;
}

// The scores of the texts in the batch, one symbol at a time.
at::Tensor step_by_step(Model& model, const ModelInput& input, int64_t prompt) {
  const at::NoGradGuard no_grad;
  auto& writer = dynamic_cast<WritingModel&>(model);
  Writing writing = writer.read(input);
  const at::Tensor text = input.tokens.select(1, 1);
  const at::Tensor ids = at::cat({at::full({text.size(0), 1}, kMarkId, at::kLong), text}, 1);
  std::vector<at::Tensor> scores;
  for (int64_t place = prompt - 1; place < kWritten; ++place) {
    const int64_t first = scores.empty() ? 0 : place;
    scores.push_back(writer.decode(ids.narrow(1, first, place + 1 - first), writing));
  }
  return at::stack(scores, 1);
}

}  // namespace

TEST_CASE("an encoder-decoder is its equations", "[encoder-decoder]") {
  for (const std::string norm : {"pre", "post"})
    for (const bool tied : {true, false}) {
      CAPTURE(norm, tied);
      const auto model = build("encoder-decoder", writer("softmax", {{"norm", norm},
                                                                     {"tied", tied},
                                                                     {"decoder_attention", "softmax"},
                                                                     {"cross_attention", "softmax"},
                                                                     {"layers", 1},
                                                                     {"decoder_layers", 2}}));
      const Tensors of(*model);
      const bool pre = norm == "pre";
      const ModelInput input = pairs();
      const at::Tensor valid = input.key_valid.select(1, 0);
      // seen: [.., n, k] true where a query sees a key.
      const auto attend = [&](const std::string& name, const at::Tensor& x, const at::Tensor& y,
                              const at::Tensor& seen) {
        const auto heads = [](const at::Tensor& rows) { return rows.view({2, -1, 2, 8}).transpose(1, 2); };
        const at::Tensor q = heads(of.map(name + ".query", x)), k = heads(of.map(name + ".key", y));
        const at::Tensor weights =
            (at::matmul(q, k.transpose(2, 3)) / std::sqrt(8.0)).masked_fill(seen.logical_not(), -1e9).softmax(-1);
        const at::Tensor mixed = at::matmul(weights, heads(of.map(name + ".value", y)));
        return of.map(name + ".out", mixed.transpose(1, 2).reshape({2, -1, 16}));
      };
      using Part = std::function<at::Tensor(const at::Tensor&)>;
      const auto residual = [&](const at::Tensor& x, const std::string& name, const Part& part) {
        return pre ? x + part(of.norm(name, x)) : of.norm(name, x + part(x));
      };
      const auto fed = [&](const std::string& layer) -> Part {
        return
            [&, layer](const at::Tensor& y) { return of.map(layer + "ff.out", at::gelu(of.map(layer + "ff.in", y))); };
      };
      const at::Tensor source_seen = valid.view({2, 1, 1, kSource});
      at::Tensor source = at::embedding(of("tokens"), input.tokens.select(1, 0)) + of("positions");
      source = residual(source, "layer0.mixer_norm",
                        [&](const at::Tensor& y) { return attend("layer0.mixer", y, y, source_seen); });
      source = residual(source, "layer0.ff_norm", fed("layer0."));
      if (pre) source = of.norm("encoder_norm", source);
      const at::Tensor before = input.tokens.select(1, 1).narrow(1, 0, kWritten - 1);
      at::Tensor x =
          at::embedding(of("tokens"), at::cat({at::full({2, 1}, 1, at::kLong), before}, 1)) + of("decoder_positions");
      const at::Tensor earlier = at::ones({kWritten, kWritten}, at::kBool).tril();
      for (const std::string layer : {"decoder0.", "decoder1."}) {
        x = residual(x, layer + "self.mixer_norm",
                     [&](const at::Tensor& y) { return attend(layer + "self.mixer", y, y, earlier); });
        x = residual(x, layer + "cross_norm",
                     [&](const at::Tensor& y) { return attend(layer + "cross", y, source, source_seen); });
        x = residual(x, layer + "ff_norm", fed(layer));
      }
      if (pre) x = of.norm("norm", x);
      const at::Tensor meant =
          tied ? at::matmul(x, of("tokens").narrow(0, kIds - kClasses, kClasses).t()) : of.map("classifier_out", x);
      const at::Tensor found = model->forward(input);
      CHECK(found.sizes() == at::IntArrayRef({2, kWritten, kClasses}));
      CHECK(apart(found, meant) < 1e-5);
    }
}

TEST_CASE("one symbol at a time is all at once, with any causal attention and any that has another's keys",
          "[encoder-decoder]") {
  const auto check = [](const ModelRequest& request) {
    const auto model = built(request);
    const at::NoGradGuard no_grad;
    const at::Tensor whole = model->forward(pairs());
    for (const int64_t prompt : {1, 5}) {
      CAPTURE(prompt);
      CHECK(apart(step_by_step(*model, pairs(), prompt), whole.slice(1, prompt - 1)) < 1e-10);
    }
  };
  int64_t causal = 0, cross = 0;
  for (const std::string& name : attention::distinct_names()) {
    CAPTURE(name);
    const attention::Traits traits = attention::resolve(name).traits();
    if (traits.causal_ok && !attention::resolve(name).base->build_block) {
      ++causal;
      check(writer("linear", {{"decoder_attention", name}}));
    }
    if (traits.cross_ok) {
      ++cross;
      check(writer("softmax", {{"cross_attention", name}}));
    }
  }
  CHECK(causal >= 30);
  CHECK(cross >= 10);
}

TEST_CASE("the encoder takes any attention, and what it puts in front of the source is read too", "[encoder-decoder]") {
  for (const std::string& name : attention::distinct_names()) {
    CAPTURE(name);
    const auto model = built(writer(name));
    const at::NoGradGuard no_grad;
    const at::Tensor scores = model->forward(pairs());
    CHECK(scores.isfinite().all().item<bool>());
    ModelInput changed = pairs();
    changed.tokens[0][0][3] = 8;
    CHECK(apart(model->forward(changed)[0], scores[0]) > 1e-9);
  }
}

TEST_CASE("no symbol sees a later one, nor what lies behind a source", "[encoder-decoder]") {
  const auto model = built(writer("softmax"));
  const at::NoGradGuard no_grad;
  const at::Tensor before = model->forward(pairs());
  ModelInput changed = pairs();
  changed.tokens.select(1, 1).narrow(1, 6, kSource - 6).fill_(4);
  changed.tokens[1][0].narrow(0, 13, kSource - 13).fill_(5);  // behind the second source's end
  const at::Tensor after = model->forward(changed);
  CHECK(after.narrow(1, 0, 7).equal(before.narrow(1, 0, 7)));
  CHECK_FALSE(after.narrow(1, 7, 1).equal(before.narrow(1, 7, 1)));
}

TEST_CASE("a row without an example disturbs no other and no gradient", "[encoder-decoder]") {
  for (const char* const name : {"softmax-fused", "linear", "linformer", "entmax15"}) {
    CAPTURE(name);
    const auto model = built(writer(name, {{"cross_attention", name}}));
    ModelInput input = pairs();
    input.tokens[1].zero_();
    input.key_valid[1].fill_(false);
    const at::Tensor scores = model->forward(input);
    CHECK(apart(scores[0], model->forward(pairs())[0]) < 1e-10);
    scores[0].log_softmax(-1).select(-1, 3).sum().backward();
    for (const auto& [key, parameter] : trainable(*model)) {
      CAPTURE(key);
      if (parameter.grad().defined()) CHECK(parameter.grad().isfinite().all().item<bool>());
    }
  }
}

TEST_CASE("the second half of a batch drops what it drops within the whole", "[encoder-decoder]") {
  const auto model = built(writer("softmax", {{"dropout", 0.3}, {"attention_dropout", 0.3}}));
  model->train();
  const ModelInput all = pairs();
  const auto scores = [&](int64_t first, int64_t rows) {
    const ModelInput part{all.tokens.narrow(0, first, rows), all.key_valid.narrow(0, first, rows)};
    model->dropout_stream()->set_step(3, first * model->rows_of_example(part));
    return model->forward(part);
  };
  CHECK(apart(scores(1, 1), scores(0, 2).narrow(0, 1, 1)) < 1e-12);
}

TEST_CASE("one beam is the greedy text", "[encoder-decoder]") {
  for (const uint64_t seed : {1, 2, 3}) {
    ModelRequest request = writer("softmax");
    request.seed = seed;
    const auto model = built(request, 0.5);
    const at::NoGradGuard no_grad;
    const auto texts = write_texts(dynamic_cast<WritingModel&>(*model), pairs(), {});
    ModelInput input = pairs();
    for (int64_t row = 0; row < 2; ++row) {
      std::vector<int64_t> greedy;
      double log_probability = 0;
      while (greedy.empty() || (greedy.back() != kEndClass && static_cast<int64_t>(greedy.size()) < kWritten)) {
        const auto place = static_cast<int64_t>(greedy.size());
        const at::Tensor scores = model->forward(input)[row][place].log_softmax(-1);
        greedy.push_back(scores.argmax().item<int64_t>());
        log_probability += scores.max().item<double>();
        input.tokens[row][1][place] = greedy.back() + kEndId;
      }
      CHECK(texts[static_cast<size_t>(row)].classes == greedy);
      CHECK(texts[static_cast<size_t>(row)].log_probability == Approx(log_probability).epsilon(1e-9));
    }
  }
}

TEST_CASE("as many beams as there are texts find the best of all, and fewer a text of their own", "[encoder-decoder]") {
  // An end and two symbols, four places: 1 + 2 + 4 + 24 texts.
  constexpr int64_t kLongest = 4;
  int64_t missed = 0;
  for (const uint64_t seed : {1, 2, 3, 4, 5, 6})
    for (const double penalty : {0.0, 1.0, 3.0}) {
      CAPTURE(seed, penalty);
      const ModelRequest request =
          writer("softmax", Json::object(), {.max_tokens = 8, .vocabulary = 5, .sequences = 2, .written = kLongest});
      const auto model = built(request, 0.6, seed);
      const at::NoGradGuard no_grad;
      ModelInput input{at::full({1, 2, 8}, 3, at::kLong), at::ones({1, 2, 8}, at::kBool)};
      WrittenText best{.score = -1e300};
      const std::function<void(const WrittenText&)> visit = [&](const WrittenText& text) {
        const auto place = static_cast<int64_t>(text.classes.size());
        for (int64_t i = 0; i < place; ++i) input.tokens[0][1][i] = text.classes[static_cast<size_t>(i)] + kEndId;
        const at::Tensor scores = model->forward(input)[0][place].log_softmax(-1);
        for (int64_t symbol = 0; symbol < 3; ++symbol) {
          WrittenText longer = text;
          longer.classes.push_back(symbol);
          longer.log_probability += scores[symbol].item<double>();
          if (symbol != kEndClass && place + 1 < kLongest) {
            visit(longer);
            continue;
          }
          longer.score = longer.log_probability / std::pow((6.0 + static_cast<double>(place)) / 6, penalty);
          if (longer.score > best.score) best = longer;
        }
      };
      visit({});
      const auto found = write_texts(dynamic_cast<WritingModel&>(*model), input, {24, penalty}).front();
      CHECK(found.classes == best.classes);
      CHECK(found.score == Approx(best.score).epsilon(1e-9));
      const auto greedy = write_texts(dynamic_cast<WritingModel&>(*model), input, {1, penalty}).front();
      missed += greedy.classes == best.classes ? 0 : 1;
    }
  CHECK(missed > 0);  // else the search would have had nothing to find
}

TEST_CASE("texts of a batch are those of each source by itself, with any number of beams", "[encoder-decoder]") {
  const auto model = built(writer("softmax"), 0.5);
  for (const int64_t beams : {1, 3}) {
    const auto together = write_texts(dynamic_cast<WritingModel&>(*model), pairs(), {beams, 1});
    for (int64_t row = 0; row < 2; ++row) {
      const ModelInput one{pairs().tokens.narrow(0, row, 1), pairs().key_valid.narrow(0, row, 1)};
      const auto alone = write_texts(dynamic_cast<WritingModel&>(*model), one, {beams, 1}).front();
      CHECK(together[static_cast<size_t>(row)].classes == alone.classes);
      CHECK(together[static_cast<size_t>(row)].score == Approx(alone.score).epsilon(1e-9));
    }
  }
}

TEST_CASE("the decoder's attentions take options that they share with the encoder's", "[encoder-decoder]") {
  ModelRequest request = writer("linformer", {{"cross_attention", "linformer"}});
  request.attention_options["projected_len"] = 5;
  const Tensors of(*build("encoder-decoder", request));
  CHECK(of("shared.decoder_cross_linformer_e").size(-2) == 5);
}

TEST_CASE("what an encoder-decoder is not made for is refused with the reason", "[encoder-decoder]") {
  using Catch::Matchers::Contains;
  const auto refused = [](const Json& options, const ModelRequest& request) {
    ModelRequest asked = request;
    asked.model_options.update(options);
    try {
      all_families().get("encoder-decoder").check(asked);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const ModelRequest good = writer("bigbird-itc");
  CHECK(refused(Json::object(), good) == "accepted");
  CHECK_THAT(refused({{"decoder_attention", "linformer"}}, good),
             Contains("model.decoder_attention") && Contains("no causal form"));
  CHECK_THAT(refused({{"decoder_attention", "sotfmax"}}, good), Contains("softmax"));
  CHECK_THAT(refused({{"cross_attention", "local-window"}}, good),
             Contains("model.cross_attention") && Contains("another sequence"));
  ModelRequest plain = good;
  plain.input.written = 0;
  CHECK_THAT(refused(Json::object(), plain), Contains("no text to be written"));
}

}  // namespace xformer::models::encoder_decoder_test
