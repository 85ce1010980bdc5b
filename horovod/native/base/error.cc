#include "base/error.h"

#include <algorithm>
#include <iterator>
#include <new>

#include "base/bytes.h"
#include "base/text.h"

namespace hvd {
namespace {

struct Sentence {
  const char* code;
  ErrorKind kind;
  const char* cause;
  const char* remedy;
};

constexpr size_t kMostShown = 16;  // ranks or values in a sentence, as in horovod/common/sentences.py
constexpr char kJobEnds[] = "The job cannot go on", kJobGoesOn[] = "The job can go on";
constexpr Sentence kSentences[] = {
    {"", ErrorKind::HorovodInternalError, "", ""},
#define HVD_SAYS(code, kind, cause, remedy) {#code, ErrorKind::kind, cause, remedy},
#include "base/sentences.h"
#undef HVD_SAYS
};

const Sentence& sentence_of(Said said) { return kSentences[static_cast<size_t>(said)]; }

std::string value_of(const Facts& facts, const std::string& name) {
  if (name == "tensor") return facts.tensor;
  if (name == "ranks") return ranks_text(facts.ranks);
  if (name == "values") return by_rank(facts.ranks, facts.values);
  for (const Fact& fact : facts.others) {
    if (fact.name == name) return fact.value;
  }
  return "{" + name + "}";
}

// The engine's thread has no caller, so a wrong argument there is a failure of the job.
ErrorKind of_engine(ErrorKind kind) {
  const bool is_callers = kind == ErrorKind::WrongArgument || kind == ErrorKind::WrongSetting || kind == ErrorKind::CannotStart;
  return is_callers ? ErrorKind::HorovodInternalError : kind;
}

// Fills the braces of the text, but not braces within facts.
std::string filled(const std::string& text, const Facts& facts) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t open = text.find('{', at);
    const size_t close = text.find('}', open);
    out += text.substr(at, open - at);
    if (close == std::string::npos) break;
    out += value_of(facts, text.substr(open + 1, close - open - 1));
    at = close + 1;
  }
  return out;
}

// Whether std::to_string could have written the text.
bool is_digits(const std::string& text) {
  const size_t digits = text.starts_with('-') ? 1 : 0;
  return text.size() > digits && text.size() <= 20 && text.find_first_not_of("0123456789", digits) == std::string::npos;
}

// A leading variable name, such as HOROVOD_GPU_TRANSPORT, does not count.
bool begins_sentence(const std::string& text) {
  const auto is_capital = [&](size_t at) { return at < text.size() && text[at] >= 'A' && text[at] <= 'Z'; };
  return is_capital(0) && !is_capital(1);
}

bool is_name(const std::string& text) {
  return !text.empty() && text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string::npos;
}

}  // namespace

Failure::Failure(Said sentence, Facts about) : said(sentence), kind(sentence_of(sentence).kind), facts(std::move(about)) {}

Failure::Failure(Said sentence, Facts about, const Failure& cause) : Failure(sentence, std::move(about)) {
  kind = of_engine(cause.kind);
  if (facts.tensor.empty()) facts.tensor = cause.facts.tensor;
  if (facts.ranks.empty()) facts.ranks = cause.facts.ranks, facts.values = cause.facts.values;
  facts.others.emplace_back("why", cause.without_end().text());
  facts.others.emplace_back("cause", code_of(cause.said));
}

Failure Failure::of(const std::exception& error) {
  if (const auto* own = dynamic_cast<const Error*>(&error)) {
    Failure failure = own->failure();
    failure.kind = of_engine(failure.kind);
    return failure;
  }
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return {Said::no_memory};
  return {Said::unexpected, {.others = {{"why", error.what()}}}};
}

std::string Failure::remedy() const {
  std::string text = sentence_of(said).remedy;
  for (const std::string end : {kJobEnds, kJobGoesOn}) {
    if (!omits_end || !text.ends_with(end)) continue;
    text.erase(text.size() - end.size());
    if (text.ends_with(". ")) text.erase(text.size() - 2);
  }
  return filled(text, facts);
}

std::string Failure::text() const {
  std::string cause = filled(sentence_of(said).cause, facts);
  const std::string then = remedy();
  if (then.empty()) return cause;
  return cause + (begins_sentence(then) ? ". " : "; ") + then;
}

Failure Failure::without_end() const {
  Failure copy = *this;
  copy.omits_end = true;
  return copy;
}

Failure Failure::at_start() const {
  Failure copy = *this;
  if (kind == ErrorKind::CannotStart) return copy;
  copy.kind = ErrorKind::CannotStart;
  copy.facts.others.emplace_back("cause_class", name_of(kind));
  return copy;
}

const char* name_of(ErrorKind kind) {
  constexpr const char* kNames[] = {"WrongArgument", "WrongSetting", "CannotStart", "HorovodInternalError", "Disagreement",
                                    "LostRank",      "Stalled",      "ShutDown",    "DeviceFailure",        "TensorChanged"};
  return kNames[static_cast<size_t>(kind)];
}

const char* code_of(Said said) { return sentence_of(said).code; }

Said last_of(Said) { return static_cast<Said>(std::size(kSentences) - 1); }

void Fact::check(const ByteReader& in) const {
  if (!is_name(name) || (is_number && !is_digits(value))) in.refuse("has a fact that cannot be");
}

void Failure::check(const ByteReader& in) const {
  if (facts.values.size() > facts.ranks.size()) in.refuse("has more values than ranks");
}

std::string ranks_text(const std::vector<int>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + first_few(ranks, kMostShown, "more", number_text);
}

std::string by_rank(const std::vector<int>& ranks, const std::vector<std::string>& values) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (size_t i = 0; i < std::min(ranks.size(), values.size()); ++i) {
    size_t g = 0;
    while (g < groups.size() && groups[g].first != values[i]) ++g;
    if (g == groups.size()) groups.push_back({values[i], {}});
    groups[g].second.push_back(ranks[i]);
  }
  std::string text;
  const size_t shown = std::min(groups.size(), kMostShown);
  for (size_t g = 0; g < shown; ++g) text += (g == 0 ? "" : "; ") + ranks_text(groups[g].second) + ": " + groups[g].first;
  if (shown < groups.size()) text += "; " + std::to_string(groups.size() - shown) + " more values";
  return text;
}

}  // namespace hvd
