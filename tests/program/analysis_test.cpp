// What trained models show of themselves.
#include "program.h"

namespace xformer::program_test {

TEST_CASE("the span of a trained model and the errors of what would stand in softmax's place", "[cli]") {
  const Place place;
  REQUIRE(place.command(Words{program_path()} + tiny("softmax", "--steps 10 --out run")).code == 0);
  REQUIRE(place.command(Words{program_path()} + tiny("linear", "--steps 10 --out linear")).code == 0);
  const Outcome text = place.run(words("span run --examples 4 --threads 1"));
  INFO(text.err);
  REQUIRE(text.code == 0);
  CHECK(contains(text.out, "over 4 dev examples of listops"));
  const Json span = Json::parse(place.run(words("span run --examples 4 --threads 1 --json")).out);
  CHECK(span["heads"].size() == 4);  // two layers of two heads
  double mean = 0;
  for (const Json& one : span["heads"]) mean += one["span"].get<double>() / 4;
  CHECK(span["span"].get<double>() == Approx(mean));
  CHECK(span["span"].get<double>() > 0);
  // Expressions of 10 to 60 tokens: uniform weights reach a third of that.
  CHECK(span["uniform"].get<double>() > 10.0 / 3 - 1);
  CHECK(span["uniform"].get<double>() < 60.0 / 3);
  // The same examples at every call; others with another seed.
  CHECK(Json::parse(place.run(words("span run --examples 4 --threads 1 --json")).out) == span);
  CHECK(Json::parse(place.run(words("span run --examples 4 --threads 1 --json --seed 1")).out)["span"] != span["span"]);
  CHECK(span["weights"] == "softmax");
  // Other attentions by what they multiply values by; softmax in another implementation by the same.
  const Outcome other = place.run(words("span linear --examples 2"));
  CHECK(other.code == 0);
  CHECK(contains(other.out, "Effective weights: what linear multiplies its values by"));
  REQUIRE(place.command(Words{program_path()} + tiny("luna", "--steps 1 --out luna")).code == 0);
  CHECK(contains(place.run(words("span luna --examples 2")).err, "from layer to layer"));

  const Words analyse = words("analyse approximation run --examples 3 --threads 1 --json --models");
  const Outcome errors = place.run(
      analyse + "softmax-fused,nystromformer,linformer,adamra --set attention.landmarks=64 attention.projected_len=8");
  INFO(errors.err);
  REQUIRE(errors.code == 0);
  const Json rows = Json::parse(errors.out)["attentions"];
  REQUIRE(rows.size() == 4);
  // The same mathematics differs by rounding only; a projection that was never trained by much.
  for (const Json& layer : rows[0]["layers"]) {
    CHECK(layer["relative_error"].get<double>() < 1e-5);
    CHECK(layer["cosine"].get<double>() == Approx(1).epsilon(1e-6));
  }
  CHECK(rows[0]["untrained_parameters"] == 0);
  CHECK(rows[2]["untrained_parameters"].get<int64_t>() > 0);
  CHECK(rows[2]["layers"][0]["relative_error"].get<double>() > 0.1);
  CHECK(rows[3]["refusal"].is_string());
  CHECK(contains(place.run(words("analyse approximation run --models linear --set attention.window=3")).err,
                 "none of linear has this option"));
  // One that finds no memory is no reason to lose the others.
  const Outcome large = place.run(analyse + "performer,linear --set attention.features=1000000000000");
  INFO(large.err);
  REQUIRE(large.code == 0);
  const Json with_large = Json::parse(large.out)["attentions"];
  CHECK(contains(with_large[0]["refusal"].get<std::string>(), "out of memory"));
  CHECK(with_large[1]["layers"].size() == 2);

  // Of a model that sees no later place neither do the weights, nor what would stand in their place.
  for (const char* model : {"softmax", "linear"})
    REQUIRE(place
                .command(Words{program_path()} +
                         tiny(model, fmt::format("--steps 10 --out causal-{} model.causal=true", model)))
                .code == 0);
  const Json causal = Json::parse(place.run(words("span causal-softmax --examples 4 --threads 1 --json")).out);
  CHECK(causal["uniform"].get<double>() < 0.75 * span["uniform"].get<double>());
  CHECK(causal["uniform"].get<double>() > 0.6 * span["uniform"].get<double>());
  CHECK(place.run(words("span causal-linear --examples 2")).code == 0);
  const Outcome same = place.run(
      words("analyse approximation causal-softmax --examples 3 --threads 1 --json --models softmax-fused,linformer"));
  INFO(same.err);
  REQUIRE(same.code == 0);
  const Json both = Json::parse(same.out)["attentions"];
  for (const Json& layer : both[0]["layers"]) CHECK(layer["relative_error"].get<double>() < 1e-5);
  CHECK(contains(both[1]["refusal"].get<std::string>(), "causal"));
}

TEST_CASE("a model without layers has no span, and says so; a run's name may be any bytes", "[cli]") {
  const Place place;
  REQUIRE(place
              .run(words("train --model cnn --task pathfinder32-easy --steps 1 --batch 2 --threads 1 --out cnn --set "
                         "data.train_examples=8 data.dev_examples=4 data.test_examples=4 model.width=8"))
              .code == 0);
  const Outcome none = place.run(words("span cnn --examples 1 --threads 1"));
  CHECK(none.code == 2);
  CHECK(contains(none.err, "cnn reports no queries, keys and values"));
  const std::string odd = "r\xff";
  REQUIRE(place.run(tiny("softmax", "--steps 2") + Words{"--out", odd}).code == 0);
  for (const char* command : {"span --examples 2 --json", "eval --json"}) {
    const Outcome told = place.run(words(command) + odd);
    INFO(told.err);
    CHECK(told.code == 0);
    CHECK(Json::parse(told.out)["run"] == "r\\xff");
  }
}

}  // namespace xformer::program_test
