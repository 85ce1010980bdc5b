#include "schedule/missing_gradients.h"

#include <algorithm>
#include <utility>

namespace hvd {

void MissingGradients::ask(size_t position, std::string question, std::vector<Subject> about, TimePoint now) {
  Question& one = questions_.emplace_back();
  one.position = position;
  one.name = std::move(question);
  const auto is_anchor = [](const Subject& subject) { return subject.is_anchor; };
  if (const auto anchor = std::ranges::find_if(about, is_anchor); anchor != about.end()) one.anchor = anchor->name;
  std::erase_if(about, is_anchor);
  one.is_queried.resize(ranks_, false);
  one.is_in_none.resize(ranks_, false);
  one.decisions.resize(about.size());
  one.about = std::move(about);
  for (size_t i = 0; i < one.about.size(); ++i) one.places.emplace(one.about[i].name, i);
  one.since = now;
}

const MissingGradients::Subject* MissingGradients::asked(size_t position, const std::string& name) const {
  for (const Question& one : questions_) {
    if (one.position != position) continue;
    if (const auto found = one.places.find(name); found != one.places.end()) return &one.about[found->second];
  }
  return nullptr;
}

std::optional<MissingGradient> MissingGradients::found(const std::string& name, const HasStarted& has_started,
                                                       const IsSettled& has_joined) const {
  if (has_started(name)) return MissingGradient::kStart;
  bool has_part = false, has_silent = false;
  for (size_t position = 0; position < ranks_; ++position) {
    const Subject* subject = asked(position, name);
    if (subject == nullptr && !has_joined(position)) {
      if (!is_in_no_pass(position, name)) return std::nullopt;
      has_silent = true;
    }
    has_part = has_part || (subject != nullptr && subject->has_part);
  }
  if (has_silent) return MissingGradient::kNotYet;
  return has_part ? MissingGradient::kStart : MissingGradient::kNobodyHasIt;
}

bool MissingGradients::is_in_no_pass(size_t position, const std::string& name) const {
  return std::ranges::any_of(questions_,
                             [&](const Question& one) { return one.is_in_none[position] && one.places.contains(name); });
}

// About something that is undecided.
bool MissingGradients::is_silent(size_t position, const Question& one) const {
  for (size_t i = 0; i < one.about.size(); ++i) {
    if (!one.decisions[i] && asked(position, one.about[i].name) == nullptr) return true;
  }
  return false;
}

void MissingGradients::note_waiting(const std::string& question) {
  const auto one = std::ranges::find(questions_, question, &Question::name);
  if (one != questions_.end()) one->is_waited_for = true;
}

std::vector<MissingGradients::PassQuery> MissingGradients::pass_queries(const HasAsked& has_passed, const IsSettled& has_joined) {
  std::vector<PassQuery> queries;
  for (Question& one : questions_) {
    if (one.anchor.empty() || !one.is_waited_for) continue;
    const auto anchor = one.places.find(one.anchor);
    if (anchor != one.places.end() && !one.decisions[anchor->second]) continue;
    for (size_t position = 0; position < ranks_; ++position) {
      if (one.is_queried[position] || has_joined(position) || !has_passed(position, one.anchor)) continue;
      if (!is_silent(position, one)) continue;
      one.is_queried[position] = true;
      queries.push_back({position, one.name});
    }
  }
  return queries;
}

void MissingGradients::on_no_pass(size_t position, const std::string& question) {
  const auto one = std::ranges::find(questions_, question, &Question::name);
  if (one != questions_.end()) one->is_in_none[position] = true;
}

// Of all that ask about it: a rank whose other names are undecided must not hear something else later.
void MissingGradients::decide(const std::string& name, MissingGradient decision) {
  if (decision == MissingGradient::kStart) completed_.insert(name);
  for (Question& one : questions_) {
    const auto [begin, end] = one.places.equal_range(name);
    for (auto place = begin; place != end; ++place) {
      if (!one.decisions[place->second]) one.decisions[place->second] = decision;
    }
  }
}

std::vector<MissingGradients::Answer> MissingGradients::answer(const HasStarted& has_started, const IsSettled& has_joined) {
  for (size_t q = 0; q < questions_.size(); ++q) {
    for (size_t i = 0; i < questions_[q].about.size(); ++i) {
      if (questions_[q].decisions[i]) continue;
      const std::string& name = questions_[q].about[i].name;
      if (const auto decision = found(name, has_started, has_joined)) decide(name, *decision);
    }
  }
  for (Question& one : questions_) {
    for (size_t i = 0; i < one.about.size(); ++i) {
      if (one.about[i].is_last && one.decisions[i]) settle(&one, MissingGradient::kNobodyHasIt);
    }
  }
  std::vector<Answer> answers;
  std::erase_if(questions_, [&](Question& one) {
    const auto is_decided = [](const auto& decision) { return decision.has_value(); };
    const auto is_start = [](const auto& decision) { return decision == MissingGradient::kStart; };
    if (!std::ranges::all_of(one.decisions, is_decided) && std::ranges::none_of(one.decisions, is_start)) return false;
    Answer& answer = answers.emplace_back(Answer{std::move(one.name), {}});
    for (const auto& decision : one.decisions) {
      answer.decisions.push_back(static_cast<int64_t>(decision.value_or(MissingGradient::kAskAgain)));
    }
    return true;
  });
  return answers;
}

std::optional<std::vector<size_t>> MissingGradients::waits_for(const std::string& question, const IsSettled& has_joined,
                                                               const HasAsked& has_asked) const {
  const auto one = std::ranges::find(questions_, question, &Question::name);
  if (one == questions_.end()) return std::nullopt;
  std::vector<size_t> positions;
  for (size_t position = 0; position < ranks_; ++position) {
    bool is_awaited = false;
    for (size_t i = 0; i < one->about.size(); ++i) {
      const std::string& name = one->about[i].name;
      is_awaited = is_awaited || (!one->decisions[i] && asked(position, name) == nullptr && !has_asked(position, name));
    }
    if (is_awaited && !has_joined(position)) positions.push_back(position);
  }
  return positions;
}

std::map<std::string, MissingGradients::TimePoint> MissingGradients::undecided() const {
  std::map<std::string, TimePoint> since;
  for (const Question& one : questions_) {
    for (size_t i = 0; i < one.about.size(); ++i) {
      if (!one.decisions[i]) since.try_emplace(one.about[i].name, one.since);
    }
  }
  return since;
}

std::vector<size_t> MissingGradients::silent_about(const std::string& name, const IsSettled& has_joined) const {
  std::vector<size_t> positions;
  for (size_t position = 0; position < ranks_; ++position) {
    if (asked(position, name) == nullptr && !has_joined(position)) positions.push_back(position);
  }
  return positions;
}

bool MissingGradients::release(const std::string& question) {
  const auto one = std::ranges::find(questions_, question, &Question::name);
  if (one == questions_.end()) return false;
  settle(&*one, MissingGradient::kNotYet);
  return true;
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
