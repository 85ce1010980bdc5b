#include "schedule/missing_gradients.h"

#include <algorithm>
#include <utility>

namespace hvd {

void MissingGradients::ask(size_t position, std::string question, std::vector<Subject> about, Pass pass,
                           std::vector<std::optional<Pass>> passed, TimePoint now) {
  is_empty_ = false;
  Question& one = questions_[position].emplace_back();
  one.position = position;
  one.pass = pass;
  one.name = std::move(question);
  const auto is_anchor = [](const Subject& subject) { return subject.is_anchor; };
  if (const auto anchor = std::ranges::find_if(about, is_anchor); anchor != about.end()) one.anchor = anchor->name;
  std::erase_if(about, is_anchor);
  one.passed = std::move(passed);
  one.passed.resize(questions_.size());
  one.is_queried.resize(questions_.size(), false);
  one.is_in_none.resize(questions_.size(), false);
  one.decisions.resize(about.size());
  one.about = std::move(about);
  for (size_t i = 0; i < one.about.size(); ++i) one.places.emplace(one.about[i].name, i);
  one.since = now;
}

// Whether the other question belongs to the same pass, with the step after it, or to an earlier pass.
bool MissingGradients::counts_for(const Question& one, const Question& other) const {
  if (one.anchor.empty() || one.position == other.position) return true;
  const std::optional<Pass>& pass = one.passed[other.position];
  return pass && other.pass <= *pass;
}

const MissingGradients::Subject* MissingGradients::asked(const Question& one, size_t position, const std::string& name) const {
  for (const Question& other : questions_[position]) {
    if (name != one.anchor && !counts_for(one, other)) continue;
    if (const auto found = other.places.find(name); found != other.places.end()) return &other.about[found->second];
  }
  return nullptr;
}

// Whether some rank has started the operation in the same pass or before.
bool MissingGradients::is_started(const Question& one, const std::string& name, const Ranks& ranks) const {
  const auto* passes = ranks.started(name);
  if (passes == nullptr || one.anchor.empty()) return passes != nullptr;
  for (size_t position = 0; position < questions_.size(); ++position) {
    const std::optional<Pass>& started = (*passes)[position];
    if (started && (!one.passed[position] || *started <= *one.passed[position])) return true;
  }
  return false;
}

bool MissingGradients::has_left(const Question& one, size_t position, const Ranks& ranks) const {
  if (one.anchor.empty()) return false;
  const std::optional<Pass> pass = one.passed[position];
  return pass && (one.is_in_none[position] || ranks.latest_pass(position) > *pass);
}

std::optional<MissingGradient> MissingGradients::found(const Question& one, const std::string& name, const Ranks& ranks) const {
  if (is_started(one, name, ranks)) return MissingGradient::kStart;
  bool has_part = false, has_silent = false;
  for (size_t position = 0; position < questions_.size(); ++position) {
    const Subject* subject = asked(one, position, name);
    if (subject == nullptr && !ranks.has_joined(position)) {
      if (!has_left(one, position, ranks)) return std::nullopt;
      has_silent = true;
    }
    has_part = has_part || (subject != nullptr && subject->has_part);
  }
  if (has_silent) return MissingGradient::kNotYet;
  return has_part ? MissingGradient::kStart : MissingGradient::kNobodyHasIt;
}

// Decides for all questions of the same pass. A question with other undecided names must not get another decision later.
void MissingGradients::decide(const Question& by, const std::string& name, MissingGradient decision) {
  if (decision == MissingGradient::kStart) completed_.insert(name);
  for (auto& of_rank : questions_) {
    for (Question& one : of_rank) {
      if (!counts_for(by, one) || (decision == MissingGradient::kNotYet && &one != &by)) continue;
      const auto [begin, end] = one.places.equal_range(name);
      for (auto place = begin; place != end; ++place) {
        if (!one.decisions[place->second]) one.decisions[place->second] = decision;
      }
    }
  }
}

// A rank's pass is known if it has started the anchor, or asked about it.
void MissingGradients::note_passed(Question* one, const Ranks& ranks) const {
  if (one->anchor.empty()) return;
  const auto* started = ranks.started(one->anchor);
  for (size_t position = 0; position < questions_.size(); ++position) {
    if (one->passed[position]) continue;
    if (started != nullptr) one->passed[position] = (*started)[position];
    for (const Question& other : questions_[position]) {
      if (other.places.contains(one->anchor)) one->passed[position] = other.pass;
    }
  }
}

void MissingGradients::look(Question* one, const Ranks& ranks) {
  note_passed(one, ranks);
  for (size_t i = 0; i < one->about.size(); ++i) {
    if (one->decisions[i]) continue;
    const std::string& name = one->about[i].name;
    if (const auto decision = found(*one, name, ranks)) decide(*one, name, *decision);
  }
}

std::vector<MissingGradients::Answer> MissingGradients::answer(const Ranks& ranks) {
  for (auto& of_rank : questions_) {
    for (Question& one : of_rank) look(&one, ranks);
  }
  std::vector<Answer> answers;
  is_empty_ = true;
  for (auto& of_rank : questions_) {
    std::erase_if(of_rank, [&](Question& one) { return take_answer(&one, &answers); });
    is_empty_ = is_empty_ && of_rank.empty();
  }
  return answers;
}

bool MissingGradients::take_answer(Question* one, std::vector<Answer>* answers) {
  for (size_t i = 0; i < one->about.size(); ++i) {
    if (one->about[i].is_last && one->decisions[i]) settle(one, MissingGradient::kNobodyHasIt);
  }
  const auto is_decided = [](const auto& decision) { return decision.has_value(); };
  const auto is_start = [](const auto& decision) { return decision == MissingGradient::kStart; };
  if (!std::ranges::all_of(one->decisions, is_decided) && std::ranges::none_of(one->decisions, is_start)) return false;
  Answer& answer = answers->emplace_back(Answer{std::move(one->name), {}});
  for (const auto& decision : one->decisions) {
    answer.decisions.push_back(static_cast<int64_t>(decision.value_or(MissingGradient::kAskAgain)));
  }
  return true;
}

MissingGradients::Question* MissingGradients::find(const std::string& question) {
  for (auto& of_rank : questions_) {
    const auto one = std::ranges::find(of_rank, question, &Question::name);
    if (one != of_rank.end()) return &*one;
  }
  return nullptr;
}

void MissingGradients::note_waiting(const std::string& question) {
  if (Question* one = find(question)) one->is_waited_for = true;
}

std::vector<MissingGradients::PassQuery> MissingGradients::pass_queries(const Ranks& ranks) {
  std::vector<PassQuery> queries;
  for (auto& of_rank : questions_) {
    for (Question& one : of_rank) {
      if (one.anchor.empty() || !one.is_waited_for) continue;
      for (size_t position = 0; position < questions_.size(); ++position) {
        if (one.is_queried[position] || !one.passed[position] || !waits_for(one, position, ranks)) continue;
        one.is_queried[position] = true;
        queries.push_back({position, one.name});
      }
    }
  }
  return queries;
}

void MissingGradients::on_no_pass(size_t position, const std::string& question) {
  if (Question* one = find(question)) one->is_in_none[position] = true;
}

bool MissingGradients::waits_for(const Question& one, size_t position, const Ranks& ranks) const {
  if (ranks.has_joined(position)) return false;
  for (size_t i = 0; i < one.about.size(); ++i) {
    const std::string& name = one.about[i].name;
    if (one.decisions[i] || asked(one, position, name) != nullptr) continue;
    const auto* passes = ranks.started(name);
    if (passes == nullptr || !(*passes)[position]) return true;
  }
  return false;
}

std::optional<std::vector<size_t>> MissingGradients::waits_for(const std::string& question, const Ranks& ranks) {
  const Question* one = find(question);
  if (one == nullptr) return std::nullopt;
  std::vector<size_t> positions;
  for (size_t position = 0; position < questions_.size(); ++position) {
    if (waits_for(*one, position, ranks)) positions.push_back(position);
  }
  return positions;
}

std::map<std::string, MissingGradients::TimePoint> MissingGradients::undecided() const {
  std::map<std::string, TimePoint> since;
  for (const auto& of_rank : questions_) {
    for (const Question& one : of_rank) {
      for (size_t i = 0; i < one.about.size(); ++i) {
        if (one.decisions[i]) continue;
        const auto [first, is_new] = since.try_emplace(one.about[i].name, one.since);
        if (!is_new) first->second = std::min(first->second, one.since);
      }
    }
  }
  return since;
}

std::vector<size_t> MissingGradients::silent_about(const std::string& name, const Ranks& ranks) const {
  std::vector<size_t> positions;
  for (size_t position = 0; position < questions_.size(); ++position) {
    const auto mentions = [&](const Question& one) { return one.places.contains(name); };
    if (std::ranges::none_of(questions_[position], mentions) && !ranks.has_joined(position)) positions.push_back(position);
  }
  return positions;
}

bool MissingGradients::release(const std::string& question) {
  Question* one = find(question);
  if (one != nullptr) settle(one, MissingGradient::kNotYet);
  return one != nullptr;
}

void MissingGradients::settle(Question* one, MissingGradient rest) {
  for (auto& decision : one->decisions) {
    if (!decision) decision = rest;
  }
}

std::string to_text(const std::vector<MissingGradients::Subject>& about) {
  std::string text;
  for (const auto& [name, has_part, is_last, is_anchor] : about) {
    text.append(has_part ? "+" : "-").append(is_anchor ? "@" : is_last ? "." : ",").append(name).push_back('\0');
  }
  return text;
}

std::vector<MissingGradients::Subject> subjects_of(const std::string& text) {
  std::vector<MissingGradients::Subject> about;
  for (size_t from = 0, to; (to = text.find('\0', from)) != std::string::npos; from = to + 1) {
    if (to <= from + 1) continue;
    about.push_back({text.substr(from + 2, to - from - 2), text[from] == '+', text[from + 1] == '.', text[from + 1] == '@'});
  }
  return about;
}

}  // namespace hvd
