// Collects the families of variants/ and decorators/ and resolves names.
#include <regex>

#include "attention/descriptor.h"
#include "attention/multi_head.h"
#include "attention/plugin.h"
#include "attention/script.h"

#define XFORMER_DESCRIBE_TYPE std::vector<xformer::attention::Descriptor>
#include "attention/variants.inc"
#define XFORMER_DESCRIBE_TYPE std::vector<xformer::attention::Decorator>
#include "attention/decorators.inc"

namespace xformer::attention {

namespace {

template <class Entry, class ForEach>
std::vector<Entry> collect(const ForEach& for_each) {
  std::vector<Entry> result;
  for_each([&](std::vector<Entry> family) { result.insert(result.end(), family.begin(), family.end()); });
  return result;
}

}  // namespace

std::string complexity_name(Complexity complexity) {
  switch (complexity) {
    case Complexity::kLinear:
      return "n";
    case Complexity::kLinearithmic:
      return "n log n";
    case Complexity::kRootN:
      return "n sqrt n";
    case Complexity::kQuadratic:
      return "n^2";
  }
  return "?";
}

const Registry<Descriptor>& all_variants() {
  static const Registry<Descriptor> kVariants(
      "attention", collect<Descriptor>([](const auto& append) { variants::for_each_family(append); }));
  return kVariants;
}

const Registry<Decorator>& all_decorators() {
  static const Registry<Decorator> kDecorators(
      "decorator", collect<Decorator>([](const auto& append) { decorators::for_each_family(append); }));
  return kDecorators;
}

std::vector<OptionInfo> Resolved::options() const {
  std::vector<OptionInfo> result = base->options;
  if (decorator != nullptr) result.insert(result.end(), decorator->options.begin(), decorator->options.end());
  return result;
}

Traits Resolved::traits() const {
  Traits result = base->traits;
  // A group's mean holds later tokens, so a pooled core can never be causal.
  if (decorator != nullptr) result.causal_ok = result.cross_ok = false;
  return result;
}

namespace {

// What is known of a tensor; nothing known has no name.
TensorMeaning meaning_of(const Resolved& attention, const std::string& name) {
  // Scales and layers stand in front of a key of SharedObjects or within it ("performer_layer0_omega").
  static const std::regex kScope("((scale|layer)[0-9]+|cross)_");
  const std::string plain = std::regex_replace(name, kScope, "");
  std::vector<TensorMeaning> known = attention.base->tensors;
  if (attention.base->build_core) known.insert(known.end(), projection_meanings().begin(), projection_meanings().end());
  for (const TensorMeaning& tensor : known)
    if (plain == tensor.name || plain.ends_with("." + tensor.name)) return tensor;
  return {};
}

}  // namespace

std::string tensor_meaning(const Resolved& attention, const std::string& name) {
  return meaning_of(attention, name).meaning;
}

std::string tensor_fault(const Resolved& attention, const std::string& name, const at::Tensor& values) {
  const TensorMeaning meaning = meaning_of(attention, name);
  return meaning.fault ? meaning.fault(values) : "";
}

namespace {

// What a path says keeps its letters.
std::string canonical(const std::string& name) {
  const size_t file = own_file_at(name);
  return file == std::string::npos ? canonical_name(name) : canonical_name(name.substr(0, file)) + name.substr(file);
}

const Descriptor* find_base(const std::string& name) {
  if (name.starts_with(kScript)) return &script_attention(name);
  if (name.starts_with(kPlugin)) return &plugin_attention(name);
  return all_variants().find(name);
}

// A key has one meaning. The program's own names are held apart by whoever writes them.
void check_options_apart(const Descriptor& base, const Decorator& decorator) {
  for (const OptionInfo& option : base.options)
    for (const OptionInfo& other : decorator.options)
      XF_CHECK(option.name != other.name, UserError, "{}: its option '{}' is one of {}- in front of it", base.name,
               option.name, decorator.name);
}

}  // namespace

Resolved resolve(const std::string& name) {
  const std::string wanted = canonical(name);
  if (const Descriptor* exact = find_base(wanted)) return {exact, nullptr, exact->name};
  for (const Decorator& decorator : all_decorators().all()) {
    const std::string prefix = decorator.name + "-";
    if (!wanted.starts_with(prefix)) continue;
    const std::string rest = wanted.substr(prefix.size());
    XF_CHECK(!rest.starts_with(prefix), UserError, "'{}': the decorator '{}' applies once", name, decorator.name);
    const Descriptor* base = find_base(rest);
    if (base == nullptr) break;
    check_options_apart(*base, decorator);
    XF_CHECK(
        base->build_core != nullptr, UserError,
        "'{}' cannot be built: {} owns its projections, and {} works between projections, around an attention core",
        name, base->name, decorator.name);
    return {base, &decorator, prefix + base->name};
  }
  throw UserError(unknown_name_message("attention", name, all_names()));
}

std::vector<std::string> all_names() {
  std::vector<std::string> result = all_variants().names();
  for (const Decorator& decorator : all_decorators().all())
    for (const Descriptor& base : all_variants().all())
      if (base.build_core) result.push_back(decorator.name + "-" + base.name);
  std::sort(result.begin(), result.end());
  return result;
}

std::vector<std::string> distinct_names() {
  std::vector<std::string> result = all_names();
  std::erase_if(result, [](const std::string& name) { return resolve(name).name != name; });
  return result;
}

namespace {

// The part of `options` that `infos` declare.
Json only(const Json& options, const std::vector<OptionInfo>& infos) {
  Json result = Json::object();
  for (const OptionInfo& info : infos)
    if (const auto found = options.find(info.name); found != options.end()) result[info.name] = *found;
  return result;
}

}  // namespace

int64_t prefix_tokens(const Resolved& attention, const Json& options) {
  return attention.base->prefix_tokens(only(options, attention.base->options));
}

std::string depth_warning(const Resolved& attention, const Json& options, int64_t layers) {
  return attention.base->depth_warning(only(options, attention.base->options), layers);
}

void check_buildable(const Resolved& attention, const Json& options, int64_t heads, bool causal) {
  if (attention.decorator != nullptr) attention.decorator->check(only(options, attention.decorator->options), heads);
  attention.base->check(only(options, attention.base->options), attention.decorator != nullptr ? 0 : heads);
  XF_CHECK(!causal || attention.traits().causal_ok, UserError,
           "{} has no causal form{}; `xformer list` says which have one", attention.name,
           attention.decorator != nullptr ? ": the mean of a group of tokens holds later ones" : "");
}

void check_cross(const Resolved& attention) {
  XF_CHECK(attention.traits().cross_ok, UserError, "{} cannot attend to another sequence: it {}", attention.name,
           attention.base->build_core ? "needs queries and keys of the same places" : "owns its projections");
}

std::shared_ptr<AttentionCore> build_core(const Resolved& attention, const Json& options, const BuildContext& context) {
  check_buildable(attention, options, context.heads, context.causal);
  XF_CHECK(attention.base->build_core != nullptr, UserError, "{} owns its projections; it has no bare core",
           attention.name);
  const Json own = only(options, attention.base->options);
  if (attention.decorator == nullptr) return attention.base->build_core(own, context);
  const CoreFactory base = [&](const BuildContext& inner) { return attention.base->build_core(own, inner); };
  return attention.decorator->decorate(only(options, attention.decorator->options), context, base);
}

std::shared_ptr<SequenceMixer> build_mixer(const Resolved& attention, const Json& options,
                                           const BuildContext& context) {
  // A name that has a core too may build its mixer around it, but decorators take the core.
  if (attention.base->build_mixer && attention.decorator == nullptr) {
    check_buildable(attention, options, context.heads, context.causal);
    return attention.base->build_mixer(only(options, attention.base->options), context);
  }
  XF_ASSERT(!attention.base->build_block, "{} is a whole layer; build it as a block", attention.name);
  return std::make_shared<MultiHeadMixer>(context, build_core(attention, options, context));
}

std::shared_ptr<MultiHeadMixer> build_cross(const Resolved& attention, const Json& options,
                                            const BuildContext& context) {
  check_cross(attention);
  BuildContext own = context;
  own.causal = false;
  own.grid = own.pinned_tokens = 0;
  own.scope += "cross/";
  return std::make_shared<MultiHeadMixer>(own, build_core(attention, options, own));
}

}  // namespace xformer::attention
